"""Ports that are known before their listener starts: free, each another, and out of the kernel's reach."""

import socket
from pathlib import Path

import pytest

from tests.support.sockets.ports import FIRST, LAST, LOOPBACK, RANGE, candidates, free_port, free_ports


def test_ports_differ_and_can_be_listened_on() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        socket.create_server((LOOPBACK, port)).close()


def test_the_kernel_gives_none_of_them_to_anybody_else() -> None:
    lowest = int(RANGE.read_text().split()[0])
    assert lowest <= FIRST or max(free_ports(50)) < lowest


def test_a_port_that_is_taken_is_not_given() -> None:
    with socket.create_server((LOOPBACK, free_port())) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"got 0 free ports from {port} to {port}, expected 1"):
            free_ports(1, port, port)


@pytest.mark.parametrize(
    ("text", "last"), [("32768\t60999\n", LAST), ("20000 60999\n", 19_999), ("1024 65535\n", LAST), ("", LAST)]
)
def test_ports_are_below_the_kernels_own_where_there_are_any(tmp_path: Path, text: str, last: int) -> None:
    (tmp_path / "range").write_text(text)
    assert candidates(FIRST, LAST, tmp_path / "range") == range(FIRST, last + 1)


def test_a_system_that_does_not_tell_has_all(tmp_path: Path) -> None:
    assert candidates(FIRST, LAST, tmp_path / "absent") == range(FIRST, LAST + 1)
