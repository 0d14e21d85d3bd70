"""`pulsar-proxy admin` against a proxy in a process of its own: reload and drain with their reports."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from protocol.command_type import CommandType
from proxy.cli.demo.broker import EmbeddedBroker
from proxy.cli.demo.topics import GeneratedTopics
from proxy.cli.main import main
from tests.support.proxies.running_proxy import Running, child_proxy

LISTS = CommandType.GET_TOPICS_OF_NAMESPACE


@asynccontextmanager
async def running(directory: Path, **keys: object) -> AsyncIterator[tuple[Running, EmbeddedBroker]]:
    async with (
        EmbeddedBroker(GeneratedTopics(1, 100, 100)) as broker,
        child_proxy(directory, broker, brokerProxyAllowedTargetPorts="*", **keys) as proxy,
    ):
        yield proxy, broker


async def admin(proxy: Running, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    # In a thread: the broker that the proxy asks is on this loop.
    # By the socket: a file with faults would say where it is no more.
    code = await asyncio.to_thread(main, ["admin", *arguments, "--socket", str(proxy.config.parent / "control.sock")])
    return code, *capsys.readouterr()


async def test_a_reload_comes_back_with_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path) as (proxy, _):
        good = proxy.config.read_text()
        proxy.config.write_text(f"{good}acceptBacklog=7\nmaxConcurrentLookupRequests=77\n")
        code, out, _ = await admin(proxy, capsys, "reload")
        assert code == 0
        assert "changed maxConcurrentLookupRequests: 50000 -> 77\n" in out
        assert "needs a restart acceptBacklog: 4096 -> 7\napplied\n" in out
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
    async with running(tmp_path) as (proxy, broker):
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
    async with running(tmp_path) as (proxy, _):
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
