"""Write dist/sbom.json, a CycloneDX document of the proxy and of each library that its image installs.

Rule: what is listed is what requirements/image.txt locks, with licences and dependencies as the installed packages
declare them; a version that is installed here but not locked is an error. Packages of the image's base are not
listed: they are the base's, whose maker tells of them.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from proxy.core.version import VERSION  # noqa: E402

LOCK: Final = ROOT / "requirements" / "image.txt"
LOCKED: Final = re.compile(r"^[A-Za-z0-9][^\\\n]*==[^\\\n]*", re.MULTILINE)


class NotLocked(Exception):
    """This environment is not what is locked; the text says which package."""


def locked(text: str) -> dict[str, str]:
    """Give name and version of each line of a lock that counts for this Python."""
    found = [Requirement(line.strip()) for line in LOCKED.findall(text)]
    here = [wanted for wanted in found if wanted.marker is None or wanted.marker.evaluate()]
    return {canonicalize_name(wanted.name): str(wanted.specifier).removeprefix("==") for wanted in here}


def of_environment() -> dict[str, Any]:
    """Describe all that is installed beside this interpreter."""
    asked = [
        sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject", str(ROOT / "pyproject.toml"),
        "--mc-type", "application", "--of", "JSON", "--output-reproducible",
        # What is written is looked at by a test; to look at all that is installed here takes 15 s, and most is dropped.
        "--no-validate", sys.executable,
    ]  # fmt: skip
    done = subprocess.run(asked, capture_output=True, text=True, timeout=300, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def only_locked(document: dict[str, Any], wanted: Mapping[str, str]) -> dict[str, Any]:
    """Keep what is locked; raises NotLocked if it is not installed in that version."""
    components: dict[str, Any] = {canonicalize_name(found["name"]): found for found in document["components"]}
    for name, version in wanted.items():
        installed = components[name]["version"] if name in components else "nothing"
        if installed != version:
            raise NotLocked(f"{name}: got {installed}, expected {version}: make test installs what is locked")
    kept = [licensed(components[name]) for name in sorted(wanted)]
    root = document["metadata"]["component"]
    root["version"] = VERSION
    references = {component["bom-ref"] for component in (*kept, root)}
    return document | {"components": kept, "dependencies": list(_among(document["dependencies"], references))}


def licensed(component: dict[str, Any]) -> dict[str, Any]:
    """Add the licence that a package names in its own words; those of SPDX are there already."""
    if component.get("licenses"):
        return component
    package = metadata.metadata(component["name"])
    told = package["License"] if "License" in package else ""  # noqa: SIM401 - a message has no typed get
    if not told:
        return component
    # Some put the whole text there; it begins with the name.
    name = told.strip().splitlines()[0].strip()
    return component | {"licenses": [{"license": {"name": name, "acknowledgement": "declared"}}]}


def _among(dependencies: list[dict[str, Any]], references: set[str]) -> Iterator[dict[str, Any]]:
    for entry in dependencies:
        if entry["ref"] in references:
            on = [reference for reference in entry.get("dependsOn", ()) if reference in references]
            yield {"ref": entry["ref"]} | ({"dependsOn": on} if on else {})


def main() -> int:
    """Run as a command; gives the exit code."""
    parser = argparse.ArgumentParser(prog="scripts.write_sbom")
    parser.add_argument("--to", type=Path, default=ROOT / "dist" / "sbom.json", metavar="FILE", help="where to")
    to: Path = parser.parse_args().to
    try:
        document = only_locked(of_environment(), locked(LOCK.read_text(encoding="utf-8")))
    except NotLocked as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {to}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
