"""The way of descriptors to another process of the same user."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from io import BytesIO
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest

from proxy.cli.admin.client import NoAnswer, Refused
from proxy.cli.inherited import (
    Inherited,
    Predecessor,
    TakeOverFailed,
    _received,
    inherited_of,
    sockets_of_systemd,
)
from proxy.config.config import Config
from proxy.core.log import open_log
from proxy.net.listen import unix_sockets
from proxy.net.listen.listening import Handed, PortPurpose
from proxy.web.admin import hand_over
from proxy.web.admin.control_socket import control_paths
from proxy.web.admin.hand_over import SOCKETS_A_MESSAGE, send_sockets

PURPOSE = PortPurpose("servicePort")


@pytest.fixture
def waiting() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as found:
        found.bind("")
        found.listen(4)
        yield found


def name_of(waiting: socket.socket) -> str:
    return f"@{waiting.getsockname()[1:].decode()}"


def test_all_sockets_arrive_in_their_order_however_many(waiting: socket.socket) -> None:
    with ExitStack() as held:
        given = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        many = [Handed(given[number % 3], PURPOSE) for number in range(SOCKETS_A_MESSAGE + 1)]
        send_sockets(name_of(waiting), many)
        found = [held.enter_context(socket.socket(fileno=number)) for number in _received(waiting, len(many))]
        assert [each.getsockname() for each in found] == [each.listening.getsockname() for each in many]
        assert not any(os.get_inheritable(each.fileno()) for each in found)


@pytest.mark.parametrize("name", ["", "/tmp/x", "@", "@0001", "@0001f/", "@0001g", "0001f", "@0001f\n"])
def test_only_a_name_that_the_kernel_chose_is_connected_to(name: str) -> None:
    with pytest.raises(ValueError, match="a name that the kernel chose"):
        send_sockets(name, [])


@pytest.mark.threat("stolen-listening-sockets")
def test_a_process_of_another_user_gets_nothing(waiting: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    myself = os.geteuid()
    monkeypatch.setattr(hand_over, "_ROOT", -1)
    monkeypatch.setattr(os, "geteuid", lambda: myself + 1)
    with pytest.raises(PermissionError):
        send_sockets(name_of(waiting), [])
    accepted, _ = waiting.accept()
    with accepted:
        assert accepted.recv(1) == b""


@pytest.mark.threat("default-path-taken")
def test_a_default_path_that_another_user_made_first_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as theirs:
        environ = {"TMPDIR": directory}
        monkeypatch.setattr(os, "environ", environ)
        config = Config.load(overrides={"brokerServiceURL": "pulsar://broker"})
        (path,) = control_paths("", config.client_port, environ)
        path.parent.mkdir()
        path.parent.chmod(0o777)
        theirs.bind(str(path))
        theirs.listen(4)
        written = BytesIO()
        found = inherited_of(config, environ, open_log("info", "json", written), take_over=True)
        assert found == Inherited([], None)
        assert b"nothing is taken over from another user's process" in written.getvalue()


@pytest.mark.threat("stolen-listening-sockets")
def test_a_stranger_who_connects_first_is_passed_over(waiting: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as held:
        held.enter_context(socket.socket(socket.AF_UNIX)).connect(waiting.getsockname())
        given = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        send_sockets(name_of(waiting), [Handed(given, PURPOSE)])
        answers = iter([unix_sockets.PeerCredentials(1, 2**31, 1)])
        real = unix_sockets.credentials_of
        monkeypatch.setattr("proxy.cli.inherited.credentials_of", lambda sock: next(answers, None) or real(sock))
        (number,) = _received(waiting, 1)
        assert held.enter_context(socket.socket(fileno=number)).getsockname() == given.getsockname()


def test_too_few_sockets_are_a_fault_and_none_stays_open(waiting: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as given:
        send_sockets(name_of(waiting), [Handed(given, PURPOSE)])
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(OSError, match="expected 2 sockets, got 1"):
            _received(waiting, 2)
        assert len(os.listdir("/proc/self/fd")) == before


class Answers:
    """An admin API that answers so, in this order."""

    def __init__(self, *answers: object) -> None:
        self._answers = iter(answers)

    def ask(self, *_: object) -> Mapping[str, Any]:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, dict)
        return answer


def predecessor(pid: int, *answers: object) -> Predecessor:
    return Predecessor(cast(Any, Answers(*answers)), "@0001f", {"pid": pid, "budget_bytes": 1})


def test_a_predecessor_that_is_gone_has_no_clients_left() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert predecessor(ended.pid, NoAnswer("nobody")).leave() == 0


def test_a_predecessor_that_lives_is_asked_until_it_says_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.cli.inherited.sleep", lambda _: None)
    assert predecessor(os.getpid(), NoAnswer("nobody"), {"connections": 7}).leave() == 7
    with pytest.raises(TakeOverFailed, match="goes on: another has them"):
        predecessor(os.getpid(), NoAnswer("nobody"), Refused(409, {"reason": "another has them"})).leave()


# --- systemd --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"LISTEN_PID": "43", "LISTEN_FDS": "1"},
        {"LISTEN_FDS": "1"},
        {"LISTEN_PID": "42", "LISTEN_FDS": "many"},
        {"LISTEN_PID": "42", "LISTEN_FDS": "0", "LISTEN_FDNAMES": ""},
    ],
)
def test_sockets_for_another_process_are_left_and_the_variables_are_gone(variables: dict[str, str]) -> None:
    environ = {**variables, "OTHER": "stays"}
    assert list(sockets_of_systemd(environ, 42, open_log("error"))) == []
    assert environ == {"OTHER": "stays"}
