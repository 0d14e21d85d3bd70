"""A test that needs a disk gets one, in the checkout if need be; without one it is a gap that CI does not pass over."""

from pathlib import Path

import pytest

from tests.support import tools
from tests.support.sockets import local_disk as disks
from tests.support.sockets.local_disk import local_disk


def shared(directory: Path) -> Path:
    """Return a directory that the proxy refuses."""
    directory.mkdir()
    directory.chmod(0o777)
    return directory


def test_a_directory_beside_the_sources_serves_where_temporary_files_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "BESIDE", tmp_path / "beside")
    with local_disk(shared(tmp_path / "temporary")) as found:
        assert found.parent.parent == tmp_path / "beside"
        found.mkdir()
    assert list((tmp_path / "beside").iterdir()) == []


@pytest.mark.parametrize("required", [True, False])
def test_without_a_disk_a_test_is_skipped_and_fails_where_tools_are_required(
    tmp_path: Path, required: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "BESIDE", tmp_path / "beside")
    monkeypatch.setattr(disks, "directory_for_lists", lambda places: None)
    monkeypatch.setattr(tools, "RECORD", tmp_path / "missing.jsonl")
    monkeypatch.setenv("REQUIRE_TOOLS", "1" if required else "")
    expected = pytest.fail.Exception if required else pytest.skip.Exception
    with pytest.raises(expected, match="lists on disk"), local_disk(tmp_path):
        pass
    assert len(tools.recorded(tmp_path / "missing.jsonl")) == (not required)
