"""Build the native extension of `native/` and install it into the environment of the checkout, where that is possible.

Rule: without a Rust toolchain, after a failed build or a build that takes too long, one line says so and the exit code
is 0, unless `--required` is given: the demo does without (`--without-extension`), the tests do not. Wheels are kept in
`.cache/native` of this checkout by a hash of what they are built from, so that an unchanged tree costs a look at its
files. A build that failed is not tried again for the same tree, unless `--again` asks for it.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
DISTRIBUTION: Final = "pulsar-proxy-native"
MODULE: Final = "pulsar_proxy_native"
# A minute or two on an idle machine; at a load of eight it took more than five.
LIMIT_SECONDS: Final = 900.0
# Two states of a branch: going back and forth between them builds nothing anew.
WHEELS_KEPT: Final = 2
_AGAIN: Final = "make native tries again"


class NotBuilt(Exception):
    """There is no extension; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class Build:
    """Where to build, into which environment, and how long that may take."""

    root: Path = ROOT
    python: str = sys.executable
    limit_seconds: float = LIMIT_SECONDS
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def crate(self) -> Path:
        """Return the directory of the crate."""
        return self.root / "native"

    @property
    def locked(self) -> Path:
        """Return the lock file of the build tool."""
        return self.root / "requirements" / "native.txt"

    @property
    def cache(self) -> Path:
        """Return the directory of the wheels."""
        return self.root / ".cache" / "native"

    @property
    def state(self) -> Path:
        """Return the file that says what the environment has; the file goes with the environment."""
        return Path(self.python).parent.parent / ".native.json"


def sources(crate: Path) -> Iterator[Path]:
    """Yield the files of a crate, without what was built."""
    for folder, folders, names in os.walk(crate):
        folders[:] = sorted(name for name in folders if name != "target" and not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names))


def key_of(build: Build) -> str:
    """Return a hash of everything that a wheel depends on and that a checkout can change."""
    kept = hashlib.sha256(f"{platform.system()} {platform.machine()} {platform.libc_ver()[0]}\n".encode())
    for path in (*sources(build.crate), build.locked):
        # The lengths separate files: moving bytes from the end of a file to the next file changes the hash.
        content = path.read_bytes()
        kept.update(f"{path.relative_to(build.root)} {len(content)}\n".encode() + content)
    return kept.hexdigest()


def bring_up_to_date(build: Build, *, again: bool = False) -> str | None:
    """Install the extension of this tree, or remove that of another tree; return the line to say, if any."""
    key = key_of(build)
    state = _read_state(build)
    if state.get("key") == key and not again:
        failed = state.get("failed")
        if failed is None:
            return None
        no_cargo = bool(state.get("no_cargo"))
        # A toolchain that has come since is used.
        if (shutil.which("cargo", path=_path(build)) is None) == no_cargo:
            return _without(str(failed) if no_cargo else f"{failed}; {_AGAIN}")
    began = time.monotonic()
    try:
        wheel = kept_wheel(build, key) or _built_wheel(build, key, began)
        _install(build, wheel, began)
    except NotBuilt as error:
        # An extension of other sources would be tested and measured in the place of this tree's.
        _uninstall(build)
        no_cargo = shutil.which("cargo", path=_path(build)) is None
        _write_state(build, {"key": key, "failed": str(error), "no_cargo": no_cargo})
        return _without(str(error))
    _write_state(build, {"key": key})
    return None


def kept_wheel(build: Build, key: str) -> Path | None:
    """Return the wheel that was built of the tree with this hash."""
    return next((build.cache / key).glob("*.whl"), None)


def _built_wheel(build: Build, key: str, began: float) -> Path:
    if shutil.which("cargo", path=_path(build)) is None:
        raise NotBuilt("there is no cargo here (https://rustup.rs has it)")
    print("building the native extension, once for this state of native/: about half a minute", flush=True)
    pip = [build.python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    _run(build, [*pip, "install", "--require-hashes", "-r", str(build.locked)], began)
    made = build.cache / "new"
    shutil.rmtree(made, ignore_errors=True)
    _run(
        build,
        [
            build.python, "-m", "maturin", "build", "--quiet", "--release", "--locked",
            "--interpreter", build.python, "--manifest-path", str(build.crate / "Cargo.toml"), "--out", str(made),
        ],
        began,
    )  # fmt: skip
    if not any(made.glob("*.whl")):
        raise NotBuilt("the build made no wheel")
    kept = build.cache / key
    shutil.rmtree(kept, ignore_errors=True)
    made.rename(kept)
    for old in _oldest_first(build.cache)[:-WHEELS_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return next(kept.glob("*.whl"))


def _oldest_first(cache: Path) -> list[Path]:
    return sorted((path for path in cache.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)


def _install(build: Build, wheel: Path, began: float) -> None:
    pip = [build.python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    _run(build, [*pip, "install", "--no-index", "--no-deps", "--force-reinstall", str(wheel)], began)
    # A library that the loader refuses is no extension.
    _run(build, [build.python, "-c", f"import {MODULE}"], began)


def _uninstall(build: Build) -> None:
    if _read_state(build):
        command = [build.python, "-m", "pip", "--disable-pip-version-check", "--quiet", "uninstall", "-y", DISTRIBUTION]
        subprocess.run(command, env=dict(build.environ), capture_output=True, check=False)


def _run(build: Build, command: Sequence[str], began: float) -> None:
    """Run a program until the time of the whole build is over; raises NotBuilt."""
    left = build.limit_seconds - (time.monotonic() - began)
    # In a session of its own: the compilers that a killed cargo leaves behind would go on.
    running = subprocess.Popen(
        command, cwd=build.root, env=dict(build.environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = running.communicate(timeout=max(left, 0.0))
    except subprocess.TimeoutExpired:
        raise NotBuilt(f"the build took more than {build.limit_seconds:g} s") from None
    finally:
        # Also after Ctrl-C, which a session of its own does not get.
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
    if running.returncode:
        raise NotBuilt(f"the build failed: {_first_error(output)}")


def _first_error(output: str) -> str:
    """Return the line of a program's output that says most."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    wrong = [line for line in lines if line.lower().startswith(("error", "💥"))]
    return ([*wrong, *lines[-1:]] or ["no output"])[0][:300]


def _without(reason: str) -> str:
    return f"no native extension: {reason}"


def _path(build: Build) -> str:
    return build.environ.get("PATH", os.defpath)


def _read_state(build: Build) -> Mapping[str, object]:
    try:
        found = json.loads(build.state.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_state(build: Build, state: Mapping[str, object]) -> None:
    build.state.write_text(json.dumps(state), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="scripts.build_native", description="build and install the native extension")
    parser.add_argument("--again", action="store_true", help="also if this tree's build failed before")
    parser.add_argument("--required", action="store_true", help="exit with code 1 where it cannot be built")
    options = parser.parse_args(arguments)
    line = bring_up_to_date(Build(), again=options.again)
    if line is not None:
        print(line, flush=True)
    return int(options.required and line is not None)


if __name__ == "__main__":
    raise SystemExit(main())
