"""`pulsar-proxy top` and `pulsar-proxy admin` against a proxy in a process of its own, through its real socket."""

import asyncio
import json
import os
import signal
import socket
import stat
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from unicodedata import bidirectional, combining, east_asian_width

import pytest

from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb
from proxy.cli.main import main
from proxy.web.admin.control_socket import control_paths
from tests.support.auth.tokens import SECRET, data_url, signed
from tests.support.clients.async_client import LOOPBACK, connect_frame, eventually
from tests.support.patience import in_time, patient_millis
from tests.support.proxies.running_proxy import Running, proxy_and_broker
from tests.support.sockets.ports import free_port

ROOT: Final = Path(__file__).resolve().parents[2]
LISTS: Final = CommandType.GET_TOPICS_OF_NAMESPACE


def top(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the command, which must succeed, and give what it printed."""
    capsys.readouterr()
    assert main(["top", "--once", *arguments]) == 0
    return capsys.readouterr().out


async def test_one_document_of_a_running_proxy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    millis = patient_millis(1500)
    async with proxy_and_broker(tmp_path, topicListRequestTimeoutMillis=millis, shutdownDrainMillis=200) as (
        proxy,
        broker,
    ):
        lookup, relayed = await proxy.connected(), await proxy.client()
        await relayed.connect(target=f"{LOOPBACK}:{broker.port}")
        await lookup.topics("demo/ns-0")
        broker.script.hold(LISTS)
        await lookup.refused_topics("demo/refused")
        shown = json.loads(top(capsys, "--json", "--config", str(proxy.config)))
        assert shown["proxy"]["pid"] == proxy.child.pid
        assert (shown["proxy"]["state"], shown["proxy"]["address"]) == ("serving", f"{LOOPBACK}:{proxy.port}")
        assert (shown["clients"]["lookup_mode"], shown["clients"]["relayed"]) == (1, 1)
        assert shown["lists"]["asked"] == 2
        assert {name: count for name, count in shown["lists"]["outcomes"].items() if count} == {
            "answered": 1,
            "timed_out": 1,
        }
        assert shown["limiters"]["heap"]["limit_bytes"] == 100 * 1024 * 1024
        assert shown["limiters"]["heap"]["peak_held_bytes"] > 0
        (refusal,) = shown["refusals"]
        assert (refusal["stage"], refusal["subject"]) == ("broker", "demo/refused")
        assert refusal["change"] == "topicListRequestTimeoutMillis"
        assert shown["config"]["topicListRequestTimeoutMillis"] == str(millis)
        assert 0 < shown["memory"]["resident_bytes"] < shown["memory"]["budget_bytes"]


async def test_the_screen_of_a_running_proxy_and_its_restart_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with proxy_and_broker(tmp_path) as (proxy, _):
        with proxy.config.open("a") as file:
            file.write("tcpUserTimeoutMillis=7\nmaxTopicListInFlightHeapMemSizeMB=33\n")
        os.kill(proxy.child.pid, signal.SIGHUP)
        await eventually(lambda: proxy.said("configuration reloaded"), "the reload")
        out = top(capsys, "--socket", str(tmp_path / "control.sock"))
        assert out.startswith("pulsar-proxy ")
        assert f"pid {proxy.child.pid}  {LOOPBACK}:{proxy.port}  cluster test" in out
        assert "of 33.0 MiB" in out
        assert "restart  needed for tcpUserTimeoutMillis" in out
        assert (
            json.loads(top(capsys, "--json", "--config", str(proxy.config)))["config"]["tcpUserTimeoutMillis"]
            == "30000"
        )


async def test_the_socket_is_private_is_there_in_the_drain_and_gone_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "control.sock"
    async with proxy_and_broker(tmp_path) as (proxy, broker):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        gate = broker.script.hold(LISTS)
        client = await proxy.connected()
        await client.ask_topics("demo/ns-0")
        await broker.record.seen(LISTS)
        await proxy.draining()
        assert json.loads(top(capsys, "--json", "--socket", str(path)))["proxy"]["state"] == "draining"
        answers = [await proxy.get(page) for page in ("/readyz", "/status.html", "/healthz")]
        assert [answer.split()[1] for answer in answers] == [b"503", b"503", b"200"]
        gate.set()
        await client.answer()
        assert await proxy.exit_code() == 0
    assert not path.exists()
    assert main(["top", "--once", "--socket", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(path) in error
    assert "controlSocketPath" in error


async def test_a_drain_that_is_cut_short_removes_the_socket_too(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path, shutdownDrainMillis=3_600_000) as (proxy, broker):
        broker.script.hold(LISTS)
        client = await proxy.connected()
        await client.ask_topics("demo/ns-0")
        await broker.record.seen(LISTS)
        await proxy.draining()
        os.kill(proxy.child.pid, signal.SIGTERM)
        assert await proxy.exit_code() == 0
    assert not (tmp_path / "control.sock").exists()


async def test_a_killed_proxys_socket_is_replaced_and_a_live_ones_is_not(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    for directory in (first, second, third):
        directory.mkdir()
    path = tmp_path / "s"
    async with proxy_and_broker(first, controlSocketPath=path) as (proxy, _):
        os.kill(proxy.child.pid, signal.SIGKILL)
        await proxy.exit_code()
    assert path.exists()
    async with proxy_and_broker(second, controlSocketPath=path) as (proxy, _):
        config = proxy.config.read_text()
        (third / "proxy.conf").write_text(config)
        command = [sys.executable, "-m", "proxy", "serve", "--config", str(third / "proxy.conf")]
        failed = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
        async with in_time(60):
            _, said = await failed.communicate()
        assert failed.returncode == 1
        assert b"cannot start" in said
        assert b"controlSocketPath" in said
        assert proxy.child.running
        assert path.exists()


async def test_a_reader_that_has_seen_enough_ends_the_command(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path):
        command = [sys.executable, "-m", "proxy", "top", "--json", "--interval", "0.1"]
        read, write = os.pipe()
        with os.fdopen(read, "rb") as output:
            process = await asyncio.create_subprocess_exec(
                *command, "--socket", str(tmp_path / "control.sock"),
                cwd=ROOT, stdout=write, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            os.close(write)
            line = await asyncio.to_thread(output.readline)
        assert json.loads(line)["proxy"]["state"] == "serving"
        async with in_time(60):
            _, said = await process.communicate()
        assert (process.returncode, said) == (0, b"")


# --- admin ----------------------------------------------------------------------------------------


async def admin(proxy: Running, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    # In a thread: the broker that the proxy asks is on this loop.
    # By the socket: a file with faults would say where it is no more.
    code = await asyncio.to_thread(main, ["admin", *arguments, "--socket", str(proxy.config.parent / "control.sock")])
    return code, *capsys.readouterr()


async def test_a_reload_comes_back_with_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with proxy_and_broker(tmp_path) as (proxy, _):
        good = proxy.config.read_text()
        proxy.config.write_text(f"{good}tcpUserTimeoutMillis=7\nmaxConcurrentLookupRequests=77\n")
        code, out, _ = await admin(proxy, capsys, "reload")
        assert code == 0
        assert "changed maxConcurrentLookupRequests: 50000 -> 77\n" in out
        assert "needs a restart tcpUserTimeoutMillis: 30000 -> 7\napplied\n" in out
        proxy.config.write_text(f"{good}maxConcurrentLookupRequests=no\nlogLevel=loud\n")
        code, out, err = await admin(proxy, capsys, "reload")
        assert (code, out) == (1, "")
        assert "maxConcurrentLookupRequests: got 'no', expected a whole number" in err
        assert "logLevel: got 'loud', expected one of" in err
        assert "configuration refused, the old one stays in force: 2 faults" in err
        code, out, _ = await admin(proxy, capsys, "limiters")
        lookups = next(line for line in out.splitlines() if line.startswith("lookups"))
        assert lookups.split()[:3] == ["lookups", "0", "77"]
        assert [line["action"] for line in proxy.lines("admin change")] == ["reload", "reload"]


async def test_a_drain_is_begun_once_and_lets_requests_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with proxy_and_broker(tmp_path) as (proxy, broker):
        gate = broker.script.hold(LISTS)
        client = await proxy.connected()
        await client.ask_topics("demo/ns-0")
        await broker.record.seen(LISTS)
        code, out, _ = await admin(proxy, capsys, "groups")
        assert (code, len(out.splitlines())) == (0, 2)
        assert out.splitlines()[1].startswith("demo/ns-0")
        code, out, err = await admin(proxy, capsys, "drain")
        assert (code, err) == (0, "")
        assert out.endswith(" 1 connections, at most 15.0s\n")
        code, _, err = await admin(proxy, capsys, "drain")
        assert (code, err.startswith("error: the proxy is stopping already")) == (1, True)
        assert (await admin(proxy, capsys, "reload"))[0] == 1
        gate.set()
        await client.answer()
        assert await proxy.exit_code() == 0
    assert (await admin(proxy, capsys, "limiters"))[0] == 1


async def test_who_is_killed_is_told_from_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with proxy_and_broker(tmp_path) as (proxy, _):
        client = await proxy.connected()
        _, out, _ = await admin(proxy, capsys, "connections")
        title, line = out.splitlines()
        assert title.split()[0] == "ID"
        number = line.split()[0]
        assert (await admin(proxy, capsys, "kill", number))[:2] == (
            0, f"killed {number}: {{}}:{{}}, lookup\n".format(*client.sock.getsockname())
        )  # fmt: skip
        await client.rest()
        assert (await admin(proxy, capsys, "kill", number))[0] == 3
        code, out, _ = await admin(proxy, capsys, "connections", "--json")
        assert (code, out) == (0, "")


@pytest.mark.threat("names-distort-screen")
async def test_no_name_that_clients_choose_moves_or_turns_what_an_operator_sees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("alice", "\u65e5\u672c\u8a9e", "\u05d0\u05d1", "\u0661", "e" + "\u0301" * 9)
    keys = {"authenticationEnabled": "true", "tokenSecretKey": data_url(SECRET), "authenticationProviders": "token"}
    async with proxy_and_broker(tmp_path, **keys, forwardAuthorizationCredentials="false") as (proxy, _):
        for name in names:
            client = await proxy.client()
            token = signed({"sub": f"{name}.", "exp": time.time() + 3600})
            await client.send(connect_frame(auth_method_name="token", auth_data=token, client_version=f"\u202e{name}"))
            assert (await client.command()).type == pb.BaseCommand.CONNECTED
            await client.topics("demo/ns-0")
        _, table, _ = await admin(proxy, capsys, "connections")
        screen = top(capsys, "--config", str(proxy.config))
    people = screen.partition("\nPRINCIPAL")[2].partition("\n\n")[0]
    for rows in (table.splitlines()[1:], people.splitlines()[1:]):
        assert len(rows) == len(names)
        assert all(row.isprintable() for row in rows)
        chars = [char for row in rows for char in row]
        assert not [char for char in chars if combining(char) or bidirectional(char) in ("R", "AL", "AN")]
        # Each row is as wide as the others, those with letters of two columns, too.
        assert len({len(row) + sum(east_asian_width(char) == "W" for char in row) for row in rows}) == 1


@pytest.mark.threat("default-path-taken")
async def test_nobody_is_asked_at_a_default_path_that_others_may_have_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The path of a socket is short.
    with TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as theirs:
        monkeypatch.setenv("TMPDIR", directory)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        keys = {"controlSocketPath": "", "servicePort": free_port()}
        async with proxy_and_broker(tmp_path, **keys) as (proxy, _):
            config = proxy.config
            assert json.loads(top(capsys, "--json", "--config", str(config)))["proxy"]["pid"] == proxy.child.pid
            (path,) = control_paths("", proxy.port, os.environ)
        path.parent.chmod(0o777)
        theirs.bind(str(path))
        theirs.listen()
        theirs.setblocking(False)
        assert main(["top", "--once", "--config", str(config)]) == 1
        assert "only its owner writes to" in capsys.readouterr().err
        with pytest.raises(BlockingIOError):
            theirs.accept()
        (tmp_path / "next").mkdir()
        async with proxy_and_broker(tmp_path / "next", options=("--take-over",), **keys) as (proxy, _):
            assert proxy.lines("nothing is taken over from another user's process")
