"""Listening sockets: several addresses, Unix sockets, and sockets that another process has handed over."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from proxy.net.listen.listening import Handed, ListeningSockets, PortPurpose, place_of, port_of
from tests.support.sockets.ports import free_port

SERVICE = PortPurpose("servicePort")
BACKLOG = 16


@pytest.fixture
def held() -> Iterator[ExitStack]:
    """Close what a test has opened."""
    with ExitStack() as stack:
        yield stack


def server(held: ExitStack, host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    return held.enter_context(socket.create_server((host, port)))


def listen(held: ExitStack, sockets: ListeningSockets, *hosts: str, port: int = 0) -> list[socket.socket]:
    return [held.enter_context(each) for each in sockets.listen(hosts, port, SERVICE, BACKLOG)]


def accepts(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as client:
        return client.connect_ex((host, port)) == 0


# --- addresses ------------------------------------------------------------------------------------


def test_several_addresses_have_the_same_free_port(held: ExitStack) -> None:
    first, second = listen(held, ListeningSockets(), "127.0.0.1", "127.0.0.2")
    assert port_of(first) == port_of(second) != 0
    assert [place_of(each).partition(":")[0] for each in (first, second)] == ["127.0.0.1", "127.0.0.2"]


def test_an_address_that_cannot_be_had_leaves_none_open_and_is_named_with_its_key(held: ExitStack) -> None:
    # Of the kernel's own ports, one of others may be in use at 127.0.0.1.
    taken = port_of(server(held, "127.0.0.2", free_port()))
    sockets = ListeningSockets()
    with pytest.raises(
        OSError, match=rf"cannot listen on 127\.0\.0\.2:{taken} \(servicePort\): address already in use"
    ):
        listen(held, sockets, "127.0.0.1", "127.0.0.2", port=taken)
    assert not accepts("127.0.0.1", taken)
    assert list(sockets.opened()) == []


# --- handed over ----------------------------------------------------------------------------------


def test_a_socket_that_was_handed_over_is_used_and_not_bound_again(held: ExitStack) -> None:
    given = server(held)
    sockets = ListeningSockets([Handed(given)])
    (found,) = listen(held, sockets, "127.0.0.1", port=port_of(given))
    assert found is given
    assert not given.getblocking()
    assert [each.purpose for each in sockets.opened()] == [SERVICE]
    assert sockets.close_unused() == []


def test_any_free_port_is_the_one_that_the_process_before_had_for_the_same(held: ExitStack) -> None:
    other, given = server(held), server(held)
    handed = [Handed(other, PortPurpose("webServicePort")), Handed(given, SERVICE)]
    assert listen(held, ListeningSockets(handed), "127.0.0.1") == [given]


def test_what_is_handed_over_for_another_address_is_closed_and_named(held: ExitStack) -> None:
    given = server(held, port=free_port())
    port = port_of(given)
    sockets = ListeningSockets([Handed(given)])
    (found,) = listen(held, sockets, "127.0.0.2", port=port)
    assert found is not given
    assert sockets.close_unused() == [f"127.0.0.1:{port}"]
    assert given.fileno() < 0
    assert not accepts("127.0.0.1", port)


def test_a_receive_buffer_that_the_process_before_has_bounded_is_the_kernels_again(held: ExitStack) -> None:
    given, fresh = server(held), server(held)
    given.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listen(held, ListeningSockets([Handed(given)]), "127.0.0.1", port=port_of(given))
    sizes = [each.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) for each in (given, fresh)]
    assert sizes[0] == sizes[1]


# --- Unix sockets ---------------------------------------------------------------------------------


def test_a_unix_socket_has_its_mode_and_goes_with_its_process(tmp_path: Path, held: ExitStack) -> None:
    path, sockets = tmp_path / "s", ListeningSockets()
    held.enter_context(sockets.listen_at(str(path), 0o660, SERVICE, BACKLOG))
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    sockets.remove_files()
    assert not path.exists()


@pytest.mark.parametrize("removes", [True, False])
def test_the_file_of_a_socket_that_was_handed_over_is_removed_by_whoever_made_it(
    tmp_path: Path, held: ExitStack, removes: bool
) -> None:
    # systemd removes its own files.
    path = tmp_path / "s"
    given = held.enter_context(socket.socket(socket.AF_UNIX))
    given.bind(str(path))
    given.listen()
    sockets = ListeningSockets([Handed(given, removes=removes)])
    assert sockets.listen_at(str(path), 0o600, SERVICE, BACKLOG) is given
    assert [each.removes for each in sockets.opened()] == [removes]
    sockets.remove_files()
    assert path.exists() != removes


def test_a_process_that_has_handed_over_leaves_the_file(tmp_path: Path, held: ExitStack) -> None:
    path, sockets = tmp_path / "s", ListeningSockets()
    held.enter_context(sockets.listen_at(str(path), 0o600, SERVICE, BACKLOG))
    sockets.hand_over()
    sockets.remove_files()
    assert path.exists()


def test_two_processes_do_not_share_a_path(tmp_path: Path, held: ExitStack) -> None:
    path = tmp_path / "s"
    held.enter_context(ListeningSockets().listen_at(str(path), 0o600, SERVICE, BACKLOG))
    with pytest.raises(OSError, match=r"another process listens on .*servicePort"):
        ListeningSockets().listen_at(str(path), 0o600, SERVICE, BACKLOG)
    assert os.path.exists(path)
