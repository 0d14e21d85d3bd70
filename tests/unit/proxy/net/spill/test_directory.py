"""Which directories are used for lists on disk, and how the others are refused."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from proxy.auth.failures import SettingFault
from proxy.config.config import Config
from proxy.net.spill.directory import MEMORY, NETWORK, check_directory, check_path, open_directory
from proxy.net.spill.disk import NAME_PREFIX, DirectoryDisk
from tests.support.tools import unusable

EXT4, XFS, BTRFS, OVERLAY = 0xEF53, 0x58465342, 0x9123683E, 0x794C7630


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "lists"
    path.mkdir(mode=0o700)
    return path


def refusal(path: str | Path) -> str:
    with pytest.raises(SettingFault) as raised:
        open_directory(str(path)).shut()
    assert raised.value.key == Config.topic_list_spill_directory.name
    with pytest.raises(SettingFault) as checked:
        check_path(str(path))
    assert checked.value.problem == raised.value.problem
    return raised.value.problem


def test_a_directory_of_the_own_user_is_used(own: Path) -> None:
    disk = open_directory(str(own))
    fd = disk.create()
    disk.write(fd, memoryview(b"x" * 5000), 0)
    assert disk.read(fd, 1, 4999) == b"x" * 4999
    disk.close(fd)
    disk.shut()


def test_the_last_part_of_the_path_is_made_and_no_other(tmp_path: Path) -> None:
    check_path(str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    open_directory(str(tmp_path / "new")).shut()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert "No such file" in refusal(tmp_path / "a" / "b")


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "Not a directory" in refusal(tmp_path / "file")


def test_a_link_is_not_followed(tmp_path: Path, own: Path) -> None:
    (tmp_path / "link").symlink_to(own)
    assert "expected a directory" in refusal(tmp_path / "link")


def test_a_relative_path_is_refused() -> None:
    assert refusal("lists") == "got 'lists', expected an absolute path"


@pytest.mark.threat("spill-files-read")
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o720, 0o1777])
def test_a_directory_that_others_may_write_to_is_refused(own: Path, mode: int) -> None:
    own.chmod(mode)
    assert f"has mode {mode:04o}, expected one that only its owner may write to" in refusal(own)


def test_a_directory_of_another_user_is_refused(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    assert f"is owned by user {os.getuid()}, expected {os.getuid() + 1}" in refusal(own)


def test_a_tmpfs_is_memory_and_refused() -> None:
    if not os.path.ismount("/dev/shm"):
        unusable("tmpfs", "none at /dev/shm")
    path = f"/dev/shm/pulsar-proxy-test-{os.getpid()}"
    os.mkdir(path, 0o700)
    try:
        assert "is on tmpfs, which is memory" in refusal(path)
    finally:
        os.rmdir(path)


@pytest.mark.parametrize(("refused", "why"), [(MEMORY, "which is memory"), (NETWORK, "which may stop to answer")])
def test_file_systems_in_memory_or_of_the_network_are_refused(own: Path, refused: Iterable[int], why: str) -> None:
    for magic in refused:
        with pytest.raises(SettingFault, match=why):
            check(own, magic)


@pytest.mark.parametrize("magic", [EXT4, XFS, BTRFS, OVERLAY])
def test_local_disks_are_used(own: Path, magic: int) -> None:
    check(own, magic)


def check(path: Path, magic: int) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        check_directory(directory, str(path), magic)
    finally:
        os.close(directory)


def test_leftovers_are_removed_and_nothing_else(own: Path) -> None:
    leftover, other = own / f"{NAME_PREFIX}0123", own / "notes.txt"
    leftover.write_text("names")
    other.write_text("mine")
    (own / f"{NAME_PREFIX}directory").mkdir()
    (own / f"{NAME_PREFIX}link").symlink_to(other)
    open_directory(str(own)).shut()
    assert not leftover.exists()
    assert sorted(path.name for path in own.iterdir()) == [
        "notes.txt", f"{NAME_PREFIX}directory", f"{NAME_PREFIX}link",
    ]  # fmt: skip
    assert other.read_text() == "mine"


def test_a_disk_that_cannot_be_written_to_is_refused_with_the_reason(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(disk: DirectoryDisk) -> int:
        raise OSError(30, "Read-only file system")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(DirectoryDisk, "create", read_only)
    with pytest.raises(SettingFault, match="cannot be written to: Read-only file system"):
        open_directory(str(own))
    assert len(os.listdir("/proc/self/fd")) == before
