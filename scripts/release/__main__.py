"""Build what a release has into dist/: `make release`, with options in ARGS."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from proxy.core.version import VERSION
from scripts.generated import ROOT
from scripts.image_base import SOURCES, NoSnapshot, base_from
from scripts.release import parts, record
from scripts.release.wheelhouse import wheelhouse


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the files, print each, and return the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _options(given)
    began = datetime.now(UTC)
    try:
        base = "" if options.without_image else base_from(options.base).moment
        notes = record.notes()
        options.to.mkdir(parents=True, exist_ok=True)
        record.remove_old(options.to)
        revision = git("describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")
        if revision.endswith("-dirty"):
            print("warning: this tree has changes that no commit has; the record says so", file=sys.stderr)
        epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct"))
        for name, step in _steps(options, epoch):
            print(f"building {name}", flush=True)
            step()
    except KeyError:
        print(f"error: CHANGELOG.md: got no section {VERSION}, expected one", file=sys.stderr)
        return 1
    except (parts.NotReleased, NoSnapshot) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    (options.to / record.NOTES).write_text(notes, encoding="utf-8")
    record.write_record(options.to, record.record(options.to, revision, epoch, given, base, began))
    for line in (options.to / record.SUMS).read_text(encoding="utf-8").splitlines():
        path = options.to / line.partition("  ")[2]
        print(f"{path.stat().st_size / 1e6:9.2f} MB  {path.name}")
    return 0


def _steps(options: argparse.Namespace, epoch: int) -> list[tuple[str, Callable[[], None]]]:
    to: Path = options.to
    steps: list[tuple[str, Callable[[], None]]] = [
        ("the packages of Python", partial(parts.python_packages, to, epoch)),
        ("the charts", partial(parts.charts, to, epoch)),
        ("the bill of materials", partial(parts.bill_of_materials, to, epoch)),
        ("the native extension", partial(parts.native_packages, to, epoch)),
    ]
    if options.wheelhouse:
        steps.append(("the wheelhouse", partial(wheelhouse, to, epoch, options.python or [_this_python()])))
    if not options.without_image:
        steps.append(("the image", partial(parts.image, to, epoch, options.base)))
    return steps


def _options(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "dist", metavar="FOLDER", help="(default: dist)")
    parser.add_argument("--wheelhouse", action="store_true", help="add an archive that installs without an index")
    parser.add_argument(
        "--python", action="append", metavar="3.N", help="versions of the wheelhouse (default: this one)"
    )
    parser.add_argument("--without-image", action="store_true", help="leave out the image (needs root and buildah)")
    parser.add_argument("--base", choices=SOURCES, default="snapshot", help="packages of the image's base")
    return parser.parse_args(given)


def _this_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def git(*arguments: str) -> str:
    """Return what git says of the sources; raises NotReleased outside a repository."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise parts.NotReleased(f"git {arguments[0]}: {done.stderr.strip()}: a release is built of a commit")
    return done.stdout.strip()


if __name__ == "__main__":
    raise SystemExit(main())
