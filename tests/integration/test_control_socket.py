"""The control socket: whose it is, how it comes and goes, and that no other end of it can hurt the proxy."""

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from proxy import control
from proxy.control import (
    LONGEST_REQUEST_BYTES,
    MOST_CONNECTIONS,
    VERSION,
    Answers,
    ControlSocket,
    control_paths,
    open_control,
)
from proxy.log import open_log
from proxy.top.ask import NoAnswer, ask_top
from tests.support.async_client import eventually

PORT = 7001
TOP = b'{"show": "top"}\n'


def shown() -> Mapping[str, object]:
    return {"number": 1}


def change(request: Mapping[str, Any]) -> Mapping[str, object]:
    if request.get("level") == "loud":
        raise ValueError("level: got 'loud', expected another")
    return {"now": request.get("level")}


async def opened(
    setting: object,
    show: Callable[[], Mapping[str, object]] = shown,
    report: Callable[[BaseException], None] = pytest.fail,  # type: ignore[assignment]
) -> ControlSocket | None:
    loop, log = asyncio.get_running_loop(), open_log("info", "json", BytesIO())
    return await open_control(loop, str(setting), PORT, Answers({"top": show}, {"level": change}), log, report)


@asynccontextmanager
async def listening(path: Path, *numbers: Callable[..., Any]) -> AsyncIterator[ControlSocket]:
    """Listen on `path` until the block ends; `numbers` are what is shown, and who hears if that fails."""
    found = await opened(path, *numbers)
    assert found is not None
    try:
        yield found
    finally:
        found.close()
        await eventually(lambda: not found._exchanges, "no exchange left")


async def exchange(path: Path, request: bytes) -> bytes:
    """Send `request`, and read until the other side ends it: nothing if that comes first."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(request)
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def connected(path: Path) -> socket.socket:
    """Open a connection on which nothing happens by itself."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))
    return sock


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- whose it is ----------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
async def test_only_its_owner_can_open_it_from_its_first_moment_on(
    tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, modes = tmp_path / "s", []
    bind = socket.socket.bind

    class Watched(socket.socket):
        def bind(self, address: Any) -> None:
            bind(self, address)
            modes.append(mode(path))

    monkeypatch.setattr(control.socket, "socket", Watched)  # type: ignore[attr-defined]
    before = os.umask(umask)
    try:
        async with listening(path):
            assert modes == [0o600]
            assert mode(path) == 0o600
        assert os.umask(umask) == umask
    finally:
        os.umask(before)


async def test_a_stopped_proxy_leaves_nothing_behind_and_a_second_close_does_nothing(tmp_path: Path) -> None:
    async with listening(tmp_path / "s") as found:
        assert (tmp_path / "s").exists()
    assert not (tmp_path / "s").exists()
    found.close()


async def test_the_socket_of_a_dead_proxy_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    async with listening(path):
        assert json.loads(await exchange(path, TOP))["top"] == {"number": 1}
        assert mode(path) == 0o600


async def test_a_live_proxys_socket_is_left_alone_and_the_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with listening(path):
        with pytest.raises(OSError, match=f"another process listens on {path}.*controlSocketPath"):
            await opened(path)
        assert json.loads(await exchange(path, TOP))["top"] == {"number": 1}


async def test_a_successors_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with listening(path) as found:
        path.unlink()
        async with listening(path):
            found.close()
            assert path.exists()


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("/dev/null")])
async def test_what_is_no_socket_is_never_removed(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "s"
    make(path)
    with pytest.raises(OSError, match=r"controlSocketPath\): expected a socket or nothing"):
        await opened(path)
    assert path.exists()


@pytest.mark.parametrize("name", ["n" * 108, "missing/s"])
async def test_a_path_that_cannot_be_had_names_the_key(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match=f"{name}.*controlSocketPath"):
        await opened(tmp_path / name)


# --- where it is ----------------------------------------------------------------------------------


def test_the_default_is_the_users_runtime_directory_then_one_of_its_own() -> None:
    own = Path(f"/var/tmp/pulsar-proxy-{os.getuid()}/pulsar-proxy-7001.sock")
    temporary = {"TMPDIR": "/var/tmp"}
    assert list(control_paths("", PORT, {"XDG_RUNTIME_DIR": "/run/user/7", **temporary})) == [
        Path("/run/user/7/pulsar-proxy-7001.sock"),
        own,
    ]
    assert list(control_paths("", PORT, {"XDG_RUNTIME_DIR": "", **temporary})) == [own]
    assert list(control_paths("", PORT, {})) == [Path("/tmp") / own.relative_to("/var/tmp")]
    assert list(control_paths("/a/b", PORT, {"XDG_RUNTIME_DIR": "/run/user/7"})) == [Path("/a/b")]


async def test_without_a_key_it_is_made_in_a_directory_of_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "absent"))
    found = await opened("")
    assert found is not None
    assert found.path.parent.parent == tmp_path
    assert mode(found.path.parent) == 0o700
    found.close()


async def test_a_directory_that_others_may_write_to_is_no_place_and_no_reason_not_to_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    (own,) = control_paths("", PORT, os.environ)
    own.parent.mkdir()
    own.parent.chmod(0o777)
    found = await opened("")
    if found is not None:
        found.close()
    assert found is None
    assert not own.exists()


async def test_a_directory_of_another_user_is_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    myself = os.getuid()
    # What is made from now on belongs to somebody else, as it seems.
    monkeypatch.setattr(os, "getuid", lambda: myself + 1)
    (own,) = control_paths("", PORT, os.environ)
    own.parent.mkdir(0o700)
    found = await opened("")
    if found is not None:
        found.close()
    assert found is None
    assert not own.exists()


async def test_none_is_no_socket() -> None:
    assert await opened("none") is None


# --- what may happen at its other end -------------------------------------------------------------


async def test_one_line_of_json_for_one_line_of_json(tmp_path: Path) -> None:
    async with listening(tmp_path / "s", lambda: {"nan": float("nan"), "name": "\x1b[2J\n"}):
        answer = await exchange(tmp_path / "s", TOP + b"ignored")
        assert answer.count(b"\n") == 1
        assert json.loads(answer) == {"version": VERSION, "top": {"nan": None, "name": "\x1b[2J\n"}}


async def test_a_change_is_answered_with_what_it_did(tmp_path: Path) -> None:
    async with listening(tmp_path / "s"):
        answer = await exchange(tmp_path / "s", b'{"change": "level", "level": "debug"}\n')
        assert json.loads(answer) == {"version": VERSION, "level": {"now": "debug"}}


@pytest.mark.parametrize(
    ("request_line", "error"),
    [
        (b"\n", "expected a line of JSON"),
        (b"\xff\xfe\n", "expected a line of JSON"),
        (b"[1]\n", 'expected {"show": "top"}, {"change": "level"}'),
        (b'{"show": "secrets"}\n', 'expected {"show": "top"}, {"change": "level"}'),
        (b'{"show": ["top"]}\n', 'expected {"show": "top"}, {"change": "level"}'),
        (b'{"change": "level", "level": "loud"}\n', "level: got 'loud', expected another"),
        (b"x" * (LONGEST_REQUEST_BYTES + 1), "expected a line of at most 1024 bytes"),
        (b"x" * 1_000_000, "expected a line of at most 1024 bytes"),
    ],
)
async def test_a_wrong_request_gets_an_error(tmp_path: Path, request_line: bytes, error: str) -> None:
    async with listening(tmp_path / "s"):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(request_line)
        async with asyncio.timeout(20):
            answer = await reader.readline()
        writer.transport.abort()
        assert json.loads(answer) == {"version": VERSION, "error": error}
        assert json.loads(await exchange(tmp_path / "s", TOP))["top"] == {"number": 1}


async def test_who_leaves_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    async with listening(tmp_path / "s") as found:
        for request in (b"", b'{"show"', TOP):
            _, writer = await asyncio.open_unix_connection(tmp_path / "s")
            writer.write(request)
            writer.close()
        await eventually(lambda: not found._exchanges, "no exchange left")


async def test_the_silent_and_the_stuck_are_cut_and_hold_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "EXCHANGE_SECONDS", 0.2)
    async with listening(tmp_path / "s", lambda: {"much": "x" * 8_000_000}) as found:
        with connected(tmp_path / "s") as silent, connected(tmp_path / "s") as stuck:
            stuck.sendall(TOP)
            await eventually(lambda: len(found._exchanges) == 2, "two exchanges")
            await eventually(lambda: not found._exchanges, "both cut")
            assert silent.recv(1) == b""


async def test_more_than_a_few_are_turned_away_and_a_place_is_free_again(tmp_path: Path) -> None:
    async with listening(tmp_path / "s") as found:
        with ExitStack() as held:
            for _ in range(MOST_CONNECTIONS):
                held.enter_context(connected(tmp_path / "s"))
            await eventually(lambda: len(found._exchanges) == MOST_CONNECTIONS, "all places taken")
            with pytest.raises(NoAnswer, match=rf"as many as may ask at once \({MOST_CONNECTIONS}\)"):
                await asyncio.to_thread(ask_top, [tmp_path / "s"])
        await eventually(lambda: not found._exchanges, "free places")
        assert json.loads(await exchange(tmp_path / "s", TOP))["top"] == {"number": 1}


async def test_numbers_that_cannot_be_had_end_their_exchange_alone(tmp_path: Path) -> None:
    def broken() -> Mapping[str, object]:
        raise RuntimeError("no numbers")

    told: list[BaseException] = []
    async with listening(tmp_path / "s", broken, told.append) as found:
        assert "internal error" in json.loads(await exchange(tmp_path / "s", TOP))["error"]
        await eventually(lambda: not found._exchanges, "no exchange left")
        assert [str(error) for error in told] == ["no numbers"]


# --- who asks -------------------------------------------------------------------------------------


async def test_the_first_place_where_a_proxy_listens_answers(tmp_path: Path) -> None:
    async with listening(tmp_path / "s"):
        asked = await asyncio.to_thread(ask_top, [tmp_path / "absent", tmp_path / "s"])
        assert asked == {"number": 1}


async def test_no_answer_names_the_paths_and_the_key(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    with pytest.raises(NoAnswer, match=rf"{absent} \(no such file or directory\).*controlSocketPath"):
        ask_top([absent])
    with pytest.raises(NoAnswer, match="turns the socket off"):
        ask_top([])
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "dead"))
    dead.close()
    with pytest.raises(NoAnswer, match="connection refused"):
        ask_top([tmp_path / "dead"])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "without an answer"),
        (b"nonsense\n", "expecting value"),
        (b'{"version": 99, "top": {}}\n', "another version"),
        (b'{"version": 1, "error": "no"}\n', "it answers 'no'"),
    ],
)
async def test_an_answer_that_is_none_is_said_to_be_none(tmp_path: Path, answer: bytes, reason: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        writer.close()

    async with await asyncio.start_unix_server(serve, tmp_path / "s"):
        with pytest.raises(NoAnswer, match=reason):
            await asyncio.to_thread(ask_top, [tmp_path / "s"])
