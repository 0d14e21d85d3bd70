"""What any disk for lists does, a directory's and the fake's; and what only a directory can show."""

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.net.spill.disk import NAME_PREFIX, DirectoryDisk
from tests.support.sockets.fake_disk import FakeDisk

KIB = 1024


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DirectoryDisk]:
    disk = DirectoryDisk(os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY))
    yield disk
    disk.shut()


@pytest.fixture(params=["directory", "fake"])
def disk(request: pytest.FixtureRequest) -> DirectoryDisk:
    if request.param == "fake":
        return FakeDisk()
    found: DirectoryDisk = request.getfixturevalue("directory")
    return found


class TestAnyDisk:
    def test_bytes_come_back_from_where_they_were_written(self, disk: DirectoryDisk) -> None:
        data = os.urandom(300 * KIB)
        fd = disk.create()
        disk.write(fd, memoryview(data)[: 100 * KIB], 0)
        disk.write(fd, memoryview(data)[100 * KIB :], 100 * KIB)
        assert disk.read(fd, 0, len(data)) == data
        assert disk.read(fd, 99 * KIB + 7, 2 * KIB) == data[99 * KIB + 7 : 101 * KIB + 7]
        disk.close(fd)

    def test_a_read_past_the_end_is_an_error(self, disk: DirectoryDisk) -> None:
        fd = disk.create()
        disk.write(fd, memoryview(b"x" * KIB), 0)
        with pytest.raises(OSError, match="ended early") as raised:
            disk.read(fd, KIB - 1, 2)
        assert raised.value.errno == errno.EIO
        disk.close(fd)

    def test_a_closed_file_is_gone(self, disk: DirectoryDisk) -> None:
        fd = disk.create()
        disk.close(fd)
        with pytest.raises(OSError) as raised:  # noqa: PT011
            disk.read(fd, 0, 1)
        assert raised.value.errno == errno.EBADF


class TestDirectory:
    def test_a_file_has_no_name_and_is_the_owners_only(self, directory: DirectoryDisk, tmp_path: Path) -> None:
        fd = directory.create()
        assert os.listdir(tmp_path) == []
        assert os.fstat(fd).st_nlink == 0
        assert os.fstat(fd).st_mode & 0o777 == 0o600
        assert os.get_inheritable(fd) is False
        os.close(fd)

    @pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL])
    def test_without_unnamed_files_the_name_lasts_a_moment(
        self, directory: DirectoryDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        asked: list[str] = []
        really = os.open

        def no_tmpfile(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(number, "no O_TMPFILE here")
            asked.append(path)
            assert flags & os.O_EXCL
            assert mode == 0o600
            return really(path, flags, mode, dir_fd=dir_fd)

        monkeypatch.setattr("os.open", no_tmpfile)
        fd = directory.create()
        assert asked[0].startswith(NAME_PREFIX)
        assert os.listdir(tmp_path) == []
        assert os.fstat(fd).st_nlink == 0
        os.close(fd)

    def test_other_errors_are_not_taken_for_an_old_file_system(
        self, directory: DirectoryDisk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def none_left(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            raise OSError(errno.EMFILE, "too many open files")

        monkeypatch.setattr("os.open", none_left)
        with pytest.raises(OSError, match="too many"):
            directory.create()

    def test_what_was_written_and_read_is_not_in_the_page_cache(self, directory: DirectoryDisk) -> None:
        fd = directory.create()
        piece = memoryview(bytearray(1024 * KIB))
        for step in range(4):
            directory.write(fd, piece, step * len(piece))
            assert cached_bytes(fd, (step + 1) * len(piece)) == 0
        directory.read(fd, 5 * KIB + 3, 256 * KIB)
        assert cached_bytes(fd, 4 * len(piece)) <= 64 * KIB
        os.close(fd)

    def test_without_sync_file_range_the_data_is_synced_all_the_same(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_library(name: object, **options: object) -> object:
            raise OSError("no such library")

        with monkeypatch.context() as without:
            without.setattr("ctypes.CDLL", no_library)
            disk = DirectoryDisk(os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY))
        fd = disk.create()
        disk.write(fd, memoryview(bytearray(1024 * KIB)), 0)
        assert cached_bytes(fd, 1024 * KIB) == 0
        os.close(fd)
        disk.shut()


def cached_bytes(fd: int, size: int) -> int:
    """Count the bytes of a file that are in the page cache, by mincore(2)."""
    page = mmap.PAGESIZE
    with mmap.mmap(fd, size, access=mmap.ACCESS_COPY) as mapped:
        found = (ctypes.c_ubyte * (size // page))()
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        assert libc.mincore(address, size, ctypes.addressof(found)) == 0, os.strerror(ctypes.get_errno())
        return sum(flag & 1 for flag in found) * page
