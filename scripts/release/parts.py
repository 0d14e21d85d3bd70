"""Build the files of a release: Python packages, the native extension, charts, image, bill of materials.

Rule: each function writes into the folder that it is given and nowhere else but .cache, and the same commit gives the
same bytes where the tool allows it (packages of Python, charts).
"""

import gzip
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from helm_python import package

from proxy.core.version import VERSION
from scripts.generated import ROOT
from scripts.helm.render import GATEWAY, LIBRARY

MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
# The oldest glibc (2.28: RHEL 8, Debian 10) on which a file of a release runs, whatever the building machine has.
OLDEST_GLIBC_MINOR: Final = 28
STEP_SECONDS: Final = 1800.0


class NotReleased(Exception):
    """A file of the release cannot be made; the text says which, and why."""


def run(command: Sequence[str], epoch: int) -> str:
    """Run a program of this environment to its end, with the time of the commit, and return its output."""
    # maturin finds zig by PATH.
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    environ = os.environ | {"SOURCE_DATE_EPOCH": str(epoch), "PATH": path}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=STEP_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotReleased(f"{command[0]}: {error}") from error
    if done.returncode:
        raise NotReleased(f"{' '.join(command)}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout.strip()


def python_packages(to: Path, epoch: int) -> None:
    """Write the source distribution and the wheel of the proxy."""
    run([sys.executable, "-m", "hatchling", "build", "--directory", str(to)], epoch)


def native_packages(to: Path, epoch: int) -> None:
    """Write the wheel of the native extension for this machine's processor, and its source distribution.

    zig links it for the oldest glibc; maturin names the wheel after it, and refuses one that needs more.
    """
    locks = [word for name in ("native", "zig") for word in ("-r", str(ROOT / "requirements" / f"{name}.txt"))]
    run([sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", *locks], epoch)
    where = ["--manifest-path", str(ROOT / "native" / "Cargo.toml"), "--out", str(to)]
    oldest = ["--zig", "--compatibility", f"manylinux_2_{OLDEST_GLIBC_MINOR}"]
    run([sys.executable, "-m", "maturin", "build", "--quiet", "--release", "--locked", *oldest, *where], epoch)
    run([sys.executable, "-m", "maturin", "sdist", *where], epoch)


def charts(to: Path, epoch: int) -> None:
    """Write the archive of each chart; the gateway's has the library inside."""
    for path in (GATEWAY, LIBRARY):
        settle(Path(package(path, destination=to)), epoch)


def settle(archive: Path, epoch: int) -> None:
    """Write an archive again with the time of the commit in the place of the clock's, and without an owner."""
    with tarfile.open(archive) as packed:
        members = [(member, _content(packed, member)) for member in packed.getmembers()]
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as out,
    ):
        for member, content in members:
            settled = tarfile.TarInfo(member.name)
            settled.size, settled.mode, settled.type = len(content), member.mode, member.type
            settled.mtime = epoch
            out.addfile(settled, io.BytesIO(content))


def _content(packed: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = packed.extractfile(member)
    return b"" if file is None else file.read()


def image(to: Path, epoch: int, base: str) -> None:
    """Write the image as an archive for `docker load`; raises NotReleased."""
    name = f"pulsar-proxy-image-{VERSION}-linux-{MACHINES.get(platform.machine(), platform.machine())}.tar"
    archive = to / name
    run([sys.executable, "-m", "scripts.build_image", "--base", base, "--archive", str(archive)], epoch)
    with (
        archive.open("rb") as plain,
        (to / f"{name}.gz").open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch, compresslevel=6) as zipped,
    ):
        shutil.copyfileobj(plain, zipped, 1024 * 1024)
    archive.unlink()


def bill_of_materials(to: Path, epoch: int) -> None:
    """Write the CycloneDX document of the proxy and of all that its image installs."""
    run([sys.executable, "-m", "scripts.write_sbom", "--to", str(to / f"pulsar-proxy-{VERSION}.cdx.json")], epoch)
