"""What was built, and of what: checksums, the build record, the notes out of the changelog.

Rule: the record is a statement in the format of in-toto with a provenance of SLSA, so that usual tools can sign and
check it. It is not signed here. It names no machine and no index.
"""

import hashlib
import json
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from proxy.core.version import VERSION
from scripts.generated import ROOT
from scripts.image_base import SUITE

RECORD: Final = f"pulsar-proxy-{VERSION}.provenance.json"
SUMS: Final = "SHA256SUMS"
NOTES: Final = "RELEASE_NOTES.md"
CHANGELOG: Final = ROOT / "CHANGELOG.md"
# What decides what is in the files, beside the sources.
LOCKS: Final = (*(f"requirements/{name}.txt" for name in ("image", "build", "native", "zig")), "native/Cargo.lock")
PACKAGES: Final = ("hatchling", "maturin", "ziglang", "helm-python-sdk", "cyclonedx-bom", "pip")
PROGRAMS: Final = (("rustc", "--version"), ("buildah", "--version"), ("debootstrap", "--version"))
_SECTION: Final = re.compile(r"^## (\S+).*\n((?:(?!## ).*\n?)*)", re.MULTILINE)


def notes(version: str = VERSION, text: str | None = None) -> str:
    """Return the section of the changelog for a version; raises KeyError."""
    found = _SECTION.findall(CHANGELOG.read_text(encoding="utf-8") if text is None else text)
    return f"{dict(found)[version].strip()}\n"


def files_of(folder: Path) -> list[Path]:
    """Return the files of a release by name, without those that list the others."""
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name not in (SUMS, RECORD))


def sha256(path: Path) -> str:
    """Return the hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def record(
    folder: Path, revision: str, epoch: int, arguments: Sequence[str], base: str, began: datetime
) -> Mapping[str, Any]:
    """Return the build record of the files in a folder."""
    subjects = [{"name": path.name, "digest": {"sha256": sha256(path)}} for path in files_of(folder)]
    locks = [{"name": name, "digest": {"sha256": sha256(ROOT / name)}} for name in LOCKS]
    source = {"name": "source", "digest": {"gitCommit": revision.removesuffix("-dirty")}}
    debian = {"name": f"debian/{SUITE}", "annotations": {"packages": base}}
    definition = {
        "buildType": "urn:pulsar-proxy-sidecar:make-release:1",
        "externalParameters": {"version": VERSION, "arguments": list(arguments)},
        "internalParameters": {
            "python": platform.python_version(), "machine": platform.machine(), "system": platform.system(),
            # A tree with changes that no commit has cannot be built again.
            "changed": revision.endswith("-dirty"), "sourceDateEpoch": epoch, "tools": dict(_tools()),
        },
        "resolvedDependencies": [source, *locks, debian],
    }  # fmt: skip
    times = {"startedOn": _text(began), "finishedOn": _text(datetime.now(UTC))}
    details = {"builder": {"id": "urn:pulsar-proxy-sidecar:make-release"}, "metadata": times}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {"buildDefinition": definition, "runDetails": details},
    }


def write_record(folder: Path, made: Mapping[str, Any]) -> None:
    """Write the build record, then the checksums of every file, the record among them, as sha256sum reads them."""
    (folder / RECORD).write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    lines = [f"{sha256(path)}  {path.name}\n" for path in sorted([*files_of(folder), folder / RECORD])]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def remove_old(folder: Path) -> None:
    """Remove the files of the last release from a folder: those that its checksums list, and no other."""
    sums = folder / SUMS
    if not sums.exists():
        return
    for line in sums.read_text(encoding="utf-8").splitlines():
        name = Path(line.partition("  ")[2]).name
        (folder / name).unlink(missing_ok=True)
    sums.unlink()


def _tools() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    for command in PROGRAMS:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            yield command[0], done.stdout.strip().removeprefix(command[0]).strip()


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
