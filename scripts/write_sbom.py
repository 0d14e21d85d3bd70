"""Write dist/sbom.json, a CycloneDX document of the proxy and of each library that its image installs, the crates of
the native extension among them.

Rule: the document lists what requirements/image.txt locks, with licences and dependencies as the installed packages
declare them. An installed version that differs from the lock is an error. Packages of the base image are not listed:
the vendor of the base has its own document. `crates.py` has the crates.
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

from proxy.core.version import VERSION
from scripts.crates import UnknownCrate, with_crates
from scripts.generated import ROOT

LOCK: Final = ROOT / "requirements" / "image.txt"
LOCKED: Final = re.compile(r"^[A-Za-z0-9][^\\\n]*==[^\\\n]*", re.MULTILINE)


class NotLocked(Exception):
    """This environment differs from the lock; the text names the package."""


def locked(text: str) -> dict[str, str]:
    """Return the version of each locked package, by name, for this version of Python."""
    found = [Requirement(line.strip()) for line in LOCKED.findall(text)]
    here = [wanted for wanted in found if wanted.marker is None or wanted.marker.evaluate()]
    return {canonicalize_name(wanted.name): str(wanted.specifier).removeprefix("==") for wanted in here}


def of_environment() -> dict[str, Any]:
    """Return the document of all packages installed for this interpreter."""
    asked = [
        sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject", str(ROOT / "pyproject.toml"),
        "--mc-type", "application", "--of", "JSON", "--output-reproducible",
        # A test validates the final document. Validation here takes 15 s, and most of this document is dropped.
        "--no-validate", sys.executable,
    ]  # fmt: skip
    done = subprocess.run(asked, capture_output=True, text=True, timeout=300, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def only_locked(document: dict[str, Any], wanted: Mapping[str, str]) -> dict[str, Any]:
    """Return the document without packages that are not locked; raises NotLocked for a wrong version."""
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
    """Return a component with the licence that its package declares in free text, unless it has an SPDX licence."""
    if component.get("licenses"):
        return component
    package = metadata.metadata(component["name"])
    text = package["License"] if "License" in package else ""  # noqa: SIM401 - a message has no typed get
    if not text:
        return component
    # Some packages declare the full text of their licence, whose first line is its name.
    name = text.strip().splitlines()[0].strip()
    return component | {"licenses": [{"license": {"name": name, "acknowledgement": "declared"}}]}


def _among(dependencies: list[dict[str, Any]], references: set[str]) -> Iterator[dict[str, Any]]:
    for entry in dependencies:
        if entry["ref"] in references:
            on = [reference for reference in entry.get("dependsOn", ()) if reference in references]
            yield {"ref": entry["ref"]} | ({"dependsOn": on} if on else {})


def main() -> int:
    """Write the document and return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts.write_sbom")
    parser.add_argument("--to", type=Path, default=ROOT / "dist" / "sbom.json", metavar="FILE", help="output file")
    to: Path = parser.parse_args().to
    try:
        document = with_crates(only_locked(of_environment(), locked(LOCK.read_text(encoding="utf-8"))))
    except (NotLocked, UnknownCrate) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {to}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
