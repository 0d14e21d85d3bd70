"""The wheelhouse: one archive from which the proxy is installed where no index of packages can be reached.

Rule: pip checks the hash of each library by the lock, offline as well. The archive says in INSTALL.txt how it is used,
and a test runs that file as it stands.
"""

import platform
import shutil
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from proxy.core.version import VERSION
from scripts.generated import ROOT
from scripts.release.parts import OLDEST_GLIBC_MINOR, NotReleased, run, settle

NAME: Final = f"pulsar-proxy-wheelhouse-{VERSION}"
LOCK: Final = ROOT / "requirements" / "image.txt"
INSTALL: Final = """\
# pulsar-proxy {version} without an index of packages: Python {pythons}, {machine} or newer.
# Run these lines with a shell in this folder; PREFIX is where the proxy will be.
: "${{PREFIX:=/opt/pulsar-proxy}}" "${{PYTHON:=python3}}"
"$PYTHON" -m venv "$PREFIX"
"$PREFIX/bin/pip" install --quiet --no-index --find-links wheels --require-hashes -r requirements.txt
"$PREFIX/bin/pip" install --quiet --no-index --no-deps own/*.whl
"$PREFIX/bin/pulsar-proxy" --version
"""


def wheelhouse(to: Path, epoch: int, pythons: Sequence[str]) -> None:
    """Write the archive with wheels of all libraries for such versions of Python; raises NotReleased."""
    # Downloads for an older Python would miss what only that one needs: pip judges the lock by its own version.
    here = sys.version_info[:2]
    older = [version for version in pythons if tuple(map(int, version.split("."))) < here]
    if older:
        raise NotReleased(f"--python {older[0]}: expected {here[0]}.{here[1]}, which runs this, or newer")
    # manylinux2014 stands for all that is older.
    tags = [*(f"manylinux_2_{minor}" for minor in range(OLDEST_GLIBC_MINOR, 16, -1)), "manylinux2014"]
    platforms = [word for tag in tags for word in ("--platform", f"{tag}_{platform.machine()}")]
    with TemporaryDirectory(dir=to) as temporary:
        house = Path(temporary) / NAME
        (house / "own").mkdir(parents=True)
        for version in pythons:
            run([
                sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--require-hashes",
                "--only-binary", ":all:", "--python-version", version, *platforms, "--dest", str(house / "wheels"),
                "-r", str(LOCK),
            ], epoch)  # fmt: skip
        for wheel in sorted(to.glob("*.whl")):
            shutil.copy2(wheel, house / "own")
        shutil.copy2(LOCK, house / "requirements.txt")
        shutil.copy2(ROOT / "LICENSE", house)
        named, machine = ", ".join(pythons), f"Linux, {platform.machine()}, glibc 2.{OLDEST_GLIBC_MINOR}"
        text = INSTALL.format(version=VERSION, pythons=named, machine=machine)
        (house / "INSTALL.txt").write_text(text, encoding="utf-8")
        archive = to / f"{NAME}-linux-{platform.machine()}.tar.gz"
        with tarfile.open(archive, "w:gz", compresslevel=1) as out:
            for path in sorted(house.rglob("*")):
                out.add(path, f"{NAME}/{path.relative_to(house)}", recursive=False)
    settle(archive, epoch)
