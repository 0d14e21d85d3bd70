"""`make release` without what takes minutes: the image, the extension, the wheelhouse are for `make release-test`."""

import hashlib
import json
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proxy.core.version import VERSION
from scripts.release import parts, record
from scripts.release.__main__ import main

EPOCH = 1_800_000_000
WHEEL = f"pulsar_proxy_sidecar-{VERSION}-py3-none-any.whl"
SOURCE = f"pulsar_proxy_sidecar-{VERSION}.tar.gz"
CHARTS = {f"pulsar-proxy-gateway-{VERSION}.tgz", f"pulsar-proxy-sidecar-lib-{VERSION}.tgz"}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of Python and the charts of this tree."""
    to = tmp_path_factory.mktemp("dist")
    parts.python_packages(to, EPOCH)
    parts.charts(to, EPOCH)
    return to


def names_in(archive: Path) -> set[str]:
    with tarfile.open(archive) as packed:
        return {name.partition("/")[2] for name in packed.getnames()}


def test_the_source_distribution_has_what_its_wheel_is_built_of_and_no_test(folder: Path) -> None:
    names = names_in(folder / SOURCE)
    assert {"pyproject.toml", "LICENSE", "CHANGELOG.md", "scripts/packaging/hook.py", "proxy/cli/serve.py"} <= names
    assert [name for name in names if name.startswith(("tests/", "benchmarks/", "native/", ".ci/", "docs/"))] == []


def test_a_commit_gives_the_same_bytes_twice(folder: Path, tmp_path: Path) -> None:
    parts.python_packages(tmp_path, EPOCH)
    parts.charts(tmp_path, EPOCH)
    hashes = [{path.name: record.sha256(path) for path in place.iterdir()} for place in (folder, tmp_path)]
    assert hashes[0] == hashes[1]
    assert hashes[0].keys() == {WHEEL, SOURCE, *CHARTS}


def test_the_record_is_a_statement_about_each_file_and_names_what_it_was_built_of(tmp_path: Path) -> None:
    (tmp_path / "one.whl").write_bytes(b"one")
    made = record.record(tmp_path, "a" * 40 + "-dirty", EPOCH, ["--wheelhouse"], "20261101T000000Z", datetime.now(UTC))
    assert (made["_type"], made["predicateType"]) == (
        "https://in-toto.io/Statement/v1",
        "https://slsa.dev/provenance/v1",
    )
    assert made["subject"] == [{"name": "one.whl", "digest": {"sha256": hashlib.sha256(b"one").hexdigest()}}]
    definition = made["predicate"]["buildDefinition"]
    sources = {each["name"]: each for each in definition["resolvedDependencies"]}
    assert sources["source"]["digest"] == {"gitCommit": "a" * 40}
    assert definition["internalParameters"]["changed"] is True
    assert "://" not in json.dumps(definition), "no machine and no index is named"


def test_notes_are_the_section_of_the_version() -> None:
    text = "# Changelog\n\n## 0.2.0 - 2027-01-01\n\n### Added\n\n- two\n\n## 0.1.0\n\nThe first.\n"
    assert record.notes("0.2.0", text) == "### Added\n\n- two\n"
    assert record.notes("0.1.0", text) == "The first.\n"
    assert record.notes().startswith("### ")


def test_a_version_without_a_section_is_not_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## 0.0.9\n")
    monkeypatch.setattr(record, "CHANGELOG", changelog)
    assert main(["--without-image", "--to", str(tmp_path / "dist")]) == 1
    assert f"got no section {VERSION}" in capsys.readouterr().err
    assert not (tmp_path / "dist").exists()
