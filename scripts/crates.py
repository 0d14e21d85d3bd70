"""The crates that the native extension is built of, from its lock file, as CycloneDX components.

Rule: what only tests or other features need is not listed. A crate without a licence in the table here is an error:
the lock file has none, and nobody needs cargo to write the document. Where cargo is, a test compares the table with
what the crates declare.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from scripts.generated import ROOT

CRATE: Final = ROOT / "native"
_COMMON: Final = "MIT OR Apache-2.0"
LICENCES: Final[Mapping[str, str]] = {
    "aws-lc-rs": "ISC AND (Apache-2.0 OR ISC)",
    "aws-lc-sys": "ISC AND (Apache-2.0 OR ISC) AND Apache-2.0 AND MIT AND BSD-3-Clause AND (Apache-2.0 OR ISC OR MIT) "
    "AND (Apache-2.0 OR ISC OR MIT-0)",
    "cc": _COMMON,
    "cmake": _COMMON,
    "dunce": "CC0-1.0 OR MIT-0 OR Apache-2.0",
    "find-msvc-tools": _COMMON,
    "fs_extra": "MIT",
    "heck": _COMMON,
    "jobserver": _COMMON,
    "libc": _COMMON,
    "once_cell": _COMMON,
    "pkg-config": _COMMON,
    "portable-atomic": "Apache-2.0 OR MIT",
    "proc-macro2": _COMMON,
    "pyo3": _COMMON,
    "pyo3-build-config": _COMMON,
    "pyo3-ffi": _COMMON,
    "pyo3-macros": _COMMON,
    "pyo3-macros-backend": _COMMON,
    "quote": _COMMON,
    "rustls": "Apache-2.0 OR ISC OR MIT",
    "rustls-pki-types": _COMMON,
    "rustls-webpki": "ISC",
    "shlex": _COMMON,
    "subtle": "BSD-3-Clause",
    "syn": _COMMON,
    "target-lexicon": "Apache-2.0 WITH LLVM-exception",
    "unicode-ident": "(MIT OR Apache-2.0) AND Unicode-3.0",
    "untrusted": "ISC",
    "zeroize": "Apache-2.0 OR MIT",
}
# The lock file names what other platforms or features would need, too: rustls' other library, and what Windows needs.
NOT_BUILT: Final = frozenset({"getrandom", "ring"})


class UnknownCrate(Exception):
    """The lock file and this table do not fit; the text names the crate."""


@dataclass(frozen=True, slots=True)
class Crate:
    """A locked crate; `needs` are those that it is built with, as the lock file names them."""

    name: str
    version: str
    checksum: str
    needs: tuple[str, ...]

    @property
    def reference(self) -> str:
        """Return the name of the crate inside the document."""
        return f"crate {self.name} {self.version}"


def locked_crates(folder: Path = CRATE) -> tuple[Crate, list[Crate]]:
    """Return the crate of the extension, and all crates that its default features are built of, by name."""
    manifest = tomllib.loads((folder / "Cargo.toml").read_text(encoding="utf-8"))
    packages = tomllib.loads((folder / "Cargo.lock").read_text(encoding="utf-8"))["package"]
    found = [_crate(package) for package in packages]
    own = _named(manifest["package"]["name"], found)
    built_in = set(_built_in(manifest))
    own = replace(own, needs=tuple(need for need in own.needs if need.partition(" ")[0] in built_in))
    wanted: dict[str, Crate] = {}
    todo = list(own.needs)
    while todo:
        need = todo.pop()
        if need not in wanted:
            wanted[need] = _named(need, found)
            todo += wanted[need].needs
    return own, sorted(set(wanted.values()), key=lambda crate: crate.reference)


def _crate(package: Mapping[str, Any]) -> Crate:
    needs = tuple(need for need in package.get("dependencies", ()) if need.partition(" ")[0] not in NOT_BUILT)
    return Crate(package["name"], package["version"], package.get("checksum", ""), needs)


def _named(need: str, crates: Iterable[Crate]) -> Crate:
    """Return the crate that a line of the lock file names; a version stands behind the name if there are several."""
    fitting = [crate for crate in crates if need in {crate.name, f"{crate.name} {crate.version}"}]
    if len(fitting) != 1:
        raise UnknownCrate(f"{need}: got {len(fitting)} such crates in Cargo.lock, expected one")
    return fitting[0]


def _built_in(manifest: Mapping[str, Any]) -> Iterator[str]:
    features = manifest.get("features", {})
    enabled = {part for name in features.get("default", ()) for part in features.get(name, ())}
    for name, wanted in manifest["dependencies"].items():
        optional = isinstance(wanted, dict) and wanted.get("optional", False)
        if not optional or f"dep:{name}" in enabled:
            yield name


def with_crates(document: Mapping[str, Any], folder: Path = CRATE) -> dict[str, Any]:
    """Return a CycloneDX document that lists the native extension and its crates, too.

    Raises UnknownCrate.
    """
    own, crates = locked_crates(folder)
    parts = [_component(own, "Apache-2.0"), *(_component(crate, _licence(crate)) for crate in crates)]
    graph = [
        {"ref": crate.reference, "dependsOn": [_named(need, crates).reference for need in crate.needs]}
        for crate in (own, *crates)
    ]
    root = document["metadata"]["component"]["bom-ref"]
    edges = [dict(entry) for entry in document["dependencies"]]
    for entry in edges:
        if entry["ref"] == root:
            entry["dependsOn"] = [*entry.get("dependsOn", ()), own.reference]
    return {**document, "components": [*document["components"], *parts], "dependencies": [*edges, *graph]}


def _licence(crate: Crate) -> str:
    if crate.name not in LICENCES:
        raise UnknownCrate(f"{crate.name} {crate.version}: its licence is missing in scripts/crates.py")
    return LICENCES[crate.name]


def _component(crate: Crate, licence: str) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library", "bom-ref": crate.reference, "name": crate.name, "version": crate.version,
        "licenses": [{"expression": licence}],
    }  # fmt: skip
    if not crate.checksum:
        return component
    return component | {
        "hashes": [{"alg": "SHA-256", "content": crate.checksum}],
        "purl": f"pkg:cargo/{crate.name}@{crate.version}",
    }
