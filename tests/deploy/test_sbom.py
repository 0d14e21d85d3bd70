"""The bill of materials: what is locked for the image, with licences, and nothing of what only tests need."""

import json
import sys
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from proxy.core.version import VERSION
from scripts import write_sbom
from scripts.write_sbom import LOCK, NotLocked, locked, only_locked


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
    licences = {component["name"]: component["licenses"][0] for component in document["components"]}
    assert licences["aiohttp"]["expression"] == "Apache-2.0 AND MIT"
    assert licences["uvloop"]["license"]["id"] == "MIT"
    assert licences["protobuf"]["license"]["name"] == "3-Clause BSD License"
    dependencies = {entry["ref"]: entry.get("dependsOn", []) for entry in document["dependencies"]}
    [root] = [on for ref, on in dependencies.items() if ref == document["metadata"]["component"]["bom-ref"]]
    assert any(reference.startswith("uvloop") for reference in root)


def test_a_lock_is_read_with_its_markers() -> None:
    text = 'one==1.2 \\\n    --hash=sha256:00\ntwo==3 ; python_version < "3" \\\n    --hash=sha256:00\nThree_x==4\n'
    assert locked(text) == {"one": "1.2", "three-x": "4"}
    assert len(locked(LOCK.read_text(encoding="utf-8"))) > 15


@pytest.mark.parametrize("components", [[], [{"name": "one", "version": "1.3", "bom-ref": "one==1.3"}]])
def test_what_is_installed_in_another_version_is_not_told_as_locked(components: list[dict[str, str]]) -> None:
    with pytest.raises(NotLocked, match=r"one: got (nothing|1\.3), expected 1\.2"):
        only_locked({"components": components}, {"one": "1.2"})
