"""Build the image of deploy/image/Dockerfile without a Docker engine and without a registry of images (deploy/image).

Rule: nothing is written outside .cache, deploy/image/wheels and the archive named by an option. debootstrap makes the
base from the packages of one date, which the archive of Debian keeps; where that archive cannot be reached, from those
of today at the mirror that apt uses here. Libraries come from the index that pip uses here. The image keeps no trace of
either. The build needs root, as debootstrap does.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from proxy.core.version import VERSION
from scripts.build_native import Build, kept_wheel, key_of
from scripts.generated import ROOT
from scripts.image_base import SOURCES, SUITE, SUITE_PYTHON, Base, NoSnapshot, base_from

DOCKERFILE: Final = ROOT / "deploy" / "image" / "Dockerfile"
# The packages that the base of the Dockerfile needs.
PACKAGES: Final = "python3-minimal,python3-venv,ca-certificates"
# Half of the size of debootstrap's result; licences (usr/share/doc) stay.
UNNEEDED: Final = ("var/cache/apt", "var/lib/apt/lists", "usr/share/locale", "usr/share/man", "var/log")
NAME: Final = f"localhost/pulsar-proxy:{VERSION}"
# A build step shares kernel and network with the machine: a machine without an engine may offer nothing else.
ISOLATION: Final = "chroot"
STEP_SECONDS: Final = 900.0


class BuildFailed(Exception):
    """A step failed; the text is its command and the end of its output."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The programs that build the image."""

    buildah: str = "buildah"
    debootstrap: str = "debootstrap"
    python: str = sys.executable


class Images:
    """A store of images for this project only, below `home`, used by a single builder at a time."""

    def __init__(self, home: Path, tools: Tools) -> None:
        self.home = home
        self._tools = tools

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Lock out other builders until the block ends."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Remove the containers of killed builders: no other builder runs while this one has the lock.
            self.buildah("rm", "--all")
            yield

    def buildah(self, *arguments: str) -> str:
        """Run a command of buildah in this store and return its output; raises BuildFailed."""
        store = ("--root", str(self.home / "storage"), "--runroot", str(self.home / "run"), "--storage-driver", "vfs")
        return run([self._tools.buildah, *store, *arguments])

    def has(self, name: str) -> bool:
        """Return whether the store has an image."""
        return bool(self.buildah("images", "--quiet", "--filter", f"reference={name}"))

    def configuration(self, name: str) -> dict[str, Any]:
        """Return the start settings of an image: Entrypoint, Cmd, Env, User, Labels, Healthcheck."""
        found: dict[str, Any] = json.loads(self.buildah("inspect", "--type", "image", name))["Docker"]["config"]
        return found

    @contextmanager
    def root_of(self, name: str) -> Iterator[Path]:
        """Yield the root directory of a new container of an image, until the block ends."""
        container = self.buildah("from", "--pull-never", name)
        try:
            yield Path(self.buildah("mount", container))
        finally:
            self.buildah("rm", container)

    def make_base(self, base: Base) -> None:
        """Build the base image from Debian packages, unless the store has it."""
        if self.has(base.name):
            return
        directory = self.home / "base"
        shutil.rmtree(directory, ignore_errors=True)
        variant = ("--variant=minbase", f"--include={PACKAGES}")
        run([self._tools.debootstrap, *variant, SUITE, str(directory), *base.arguments])
        for unneeded in UNNEEDED:
            shutil.rmtree(directory / unneeded, ignore_errors=True)
        container = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", container, str(directory), "/")
        self.buildah("commit", "--quiet", "--rm", "--format", "docker", container, base.name)
        shutil.rmtree(directory)

    def fetch_wheels(self) -> Path:
        """Fetch the locked libraries with their hashes, from pip's own index and with its credentials."""
        wheels = self.home / "wheels"
        locked = [ROOT / "requirements" / f"{name}.txt" for name in ("image", "build")]
        wanted = SUITE_PYTHON + "".join(path.read_text(encoding="utf-8") for path in locked)
        complete = wheels / "fetched-for.txt"
        if complete.exists() and complete.read_text(encoding="utf-8") == wanted:
            return wheels
        files = [word for path in locked for word in ("-r", str(path))]
        run([
            self._tools.python, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--require-hashes",
            "--only-binary", ":all:", "--python-version", SUITE_PYTHON, "--dest", str(wheels), *files,
        ])  # fmt: skip
        complete.write_text(wanted, encoding="utf-8")
        return wheels

    def build(self, base: Base) -> str:
        """Return the name of the image, after building it if its inputs have changed; raises BuildFailed."""
        stage_extension(Build())
        made = arguments(base)
        inputs = digest(made)
        built = self.home / "built-of.txt"
        if built.exists() and built.read_text(encoding="utf-8") == inputs and self.has(NAME):
            return NAME
        # Run in parallel, as both steps mostly wait for other machines.
        with ThreadPoolExecutor(max_workers=1) as beside:
            wheels = beside.submit(self.fetch_wheels)
            self.make_base(base)
            self._bud(wheels.result(), made)
        # The previous image has lost its name to the new image, and would otherwise stay in the store.
        self.buildah("rmi", "--prune")
        built.write_text(inputs, encoding="utf-8")
        return NAME

    def _bud(self, wheels: Path, made: Mapping[str, str]) -> None:
        settings = self.home / "pip.conf"
        settings.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
        self.buildah(
            "bud", "--pull-never", "--isolation", ISOLATION, "--format", "docker",
            "--layers=false", "--force-rm", "--quiet",
            "--secret", f"id=pip,src={settings}", "--volume", f"{wheels}:/wheels:ro",
            *(word for name, value in made.items() for word in ("--build-arg", f"{name}={value}")),
            "--file", str(DOCKERFILE), "--tag", NAME, str(ROOT),
        )  # fmt: skip


def stage_extension(build: Build) -> Path:
    """Put the wheel of the native extension where the Dockerfile looks; return it. Raises BuildFailed without one."""
    folder = build.root / "deploy" / "image" / "wheels"
    wheel = kept_wheel(build, key_of(build))
    for other in folder.glob("*.whl"):
        if wheel is None or other.name != wheel.name:
            other.unlink()
    if wheel is None:
        raise BuildFailed("the image needs the native extension of this tree: make native")
    return Path(shutil.copy2(wheel, folder))


def arguments(base: Base) -> dict[str, str]:
    """Return the build arguments of the Dockerfile for this state of the sources."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct")
    # The revision in the image says "dirty" if the sources differ from their commit.
    revision = _git("describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")
    return {"BASE": base.name, "VERSION": VERSION, "REVISION": revision, "CREATED": _date(epoch)}


def digest(made: Mapping[str, str], root: Path = ROOT) -> str:
    """Return a hash of everything that the image is built from."""
    kept = hashlib.sha256(repr(sorted(made.items())).encode())
    for path in sorted(context(root)):
        # The lengths separate files: moving bytes from the end of a file to the next file changes the hash.
        content = path.read_bytes()
        kept.update(f"{path.relative_to(root)} {path.stat().st_mode & 0o111:o} {len(content)}\n".encode() + content)
    return kept.hexdigest()


def context(root: Path = ROOT) -> Iterator[Path]:
    """Yield .dockerignore, the Dockerfile, and each file that the Dockerfile may copy."""
    ignore = root / ".dockerignore"
    yield from (ignore, root / DOCKERFILE.relative_to(ROOT))
    for line in ignore.read_text(encoding="utf-8").splitlines():
        for path in root.glob(line[1:]) if line.startswith("!") else ():
            files = path.rglob("*") if path.is_dir() else (path,)
            yield from (file for file in files if file.is_file() and not _ignored(file.relative_to(root)))


def _ignored(path: Path) -> bool:
    return path.suffix == ".pyc" or not {"__pycache__", "target"}.isdisjoint(path.parts)


def run(command: Sequence[str]) -> str:
    """Run a program to its end and return its output; raises BuildFailed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=STEP_SECONDS, check=False, cwd=ROOT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(f"{command[0]}: {error}") from error
    if done.returncode:
        raise BuildFailed(f"{' '.join(command)}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout.strip()


def _git(*arguments: str) -> str:
    # An archive of the sources has no git history.
    try:
        return run(["git", *arguments])
    except BuildFailed:
        return "0" if "log" in arguments else "unknown"


def _date(epoch: str) -> str:
    return run(["date", "--utc", "--date", f"@{epoch}", "+%Y-%m-%dT%H:%M:%SZ"])


def main() -> int:
    """Build the image, write the archive if an option names a file, and return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts.build_image", description="build the image without a Docker engine")
    parser.add_argument("--archive", metavar="FILE", help="write the image to an archive for `docker load`")
    parser.add_argument(
        "--base", choices=SOURCES, default="either",
        help="packages of the base: of the snapshot, of today, or of today if the snapshot cannot be had (default)",
    )  # fmt: skip
    options = parser.parse_args()
    images = Images(ROOT / ".cache" / "image", Tools())
    try:
        with images.owned():
            base = base_from(options.base)
            name = images.build(base)
            print(f"built {name} on {base.name}")
            if options.archive:
                images.buildah("push", "--quiet", name, f"docker-archive:{options.archive}:pulsar-proxy:{VERSION}")
                print(f"wrote {options.archive}")
    except (BuildFailed, NoSnapshot) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
