"""The bill of materials: what is locked for the image, with licences, and nothing of what only tests need."""

import json
import sys
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from proxy.core.version import VERSION
from scripts import write_sbom
from scripts.crates import CRATE, LICENCES, UnknownCrate, locked_crates, with_crates


def test_it_lists_what_the_image_installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = tmp_path / "dist" / "sbom.json"
    monkeypatch.setattr(sys, "argv", ["write_sbom", "--to", str(to)])
    assert write_sbom.main() == 0
    text = to.read_text(encoding="utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document = json.loads(text)
    assert document["metadata"]["component"]["version"] == VERSION
    named = {component["name"].lower() for component in document["components"]}
    assert named >= {"uvloop", "aiohttp", "pulsar-client"}
    assert not named & {"pytest", "pyspark", "mypy"}
    assert [component["name"] for component in document["components"] if not component.get("licenses")] == []
    dependencies = {entry["ref"]: entry.get("dependsOn", []) for entry in document["dependencies"]}
    root = dependencies[document["metadata"]["component"]["bom-ref"]]
    (extension,) = [reference for reference in root if "pulsar-proxy-native" in reference]
    assert any(reference.startswith("crate pyo3 ") for reference in dependencies[extension])
    crates = {component["name"]: component for component in document["components"] if "crate" in component["bom-ref"]}
    assert crates.keys() == {*LICENCES, "pulsar-proxy-native"}
    assert crates["pyo3"]["hashes"][0]["content"] in (CRATE / "Cargo.lock").read_text(encoding="utf-8")


def crate_with(folder: Path, *lines: str) -> Path:
    """Write a crate that has `one` and an optional `three`, which need a `two` each; `lines` end its manifest."""
    told = ('[package]\nname = "own"\nversion = "1.0.0"', "[dependencies]", 'one = "0"', *lines)
    folder.joinpath("Cargo.toml").write_text("\n".join((*told, "")))
    needs = {
        ("own", "1.0.0"): ["one", "three", "four"], ("one", "0.1"): ["two 0.1"], ("three", "0.1"): ["two 0.2"],
        ("two", "0.1"): [], ("two", "0.2"): [],
    }  # fmt: skip
    entries = (
        f'[[package]]\nname = "{name}"\nversion = "{version}"\nchecksum = "{"a" * 64}"\ndependencies = {on}\n'
        for (name, version), on in needs.items()
    )
    folder.joinpath("Cargo.lock").write_text("version = 4\n" + "".join(entries))
    return folder


OPTIONAL = 'three = { version = "0", optional = true }'


@pytest.mark.parametrize(
    ("lines", "listed"),
    [
        ([], ["one 0.1", "two 0.1"]),
        ([OPTIONAL], ["one 0.1", "two 0.1"]),
        ([OPTIONAL, "[features]", 'other = ["dep:three"]'], ["one 0.1", "two 0.1"]),
        (
            [OPTIONAL, "[features]", 'default = ["fast"]', 'fast = ["dep:three"]'],
            ["one 0.1", "three 0.1", "two 0.1", "two 0.2"],
        ),
    ],
)
def test_crates_of_the_default_features_are_listed_and_no_others(
    lines: list[str], listed: list[str], tmp_path: Path
) -> None:
    own, crates = locked_crates(crate_with(tmp_path, *lines))
    assert (own.name, [f"{crate.name} {crate.version}" for crate in crates]) == ("own", listed)


def test_a_crate_without_a_licence_or_without_a_lock_is_an_error(tmp_path: Path) -> None:
    document = {"metadata": {"component": {"bom-ref": "root"}}, "components": [], "dependencies": []}
    with pytest.raises(UnknownCrate, match=r"one 0\.1: its licence is missing in scripts/crates\.py"):
        with_crates(document, crate_with(tmp_path))
    with pytest.raises(UnknownCrate, match=r"four: got 0 such crates in Cargo\.lock, expected one"):
        with_crates(document, crate_with(tmp_path, 'four = "0"'))
