"""Relays under `proxyLogLevel`: every command has its line, the bytes pass as they came, plain and with TLS."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.commands import PONG_FRAME
from proxy.core.loop_budget import ITERATION_SECONDS
from proxy.relay import relay_log
from proxy.relay.engine import Direction
from proxy.relay.logged_commands import COMMANDS_A_TURN
from proxy.relay.relay_log import RelayLog, RelayTap
from tests.integration.test_direct_mode import greet, joined
from tests.support.auth.tls import serve_with_tls
from tests.support.brokers.raw_broker import raw_broker
from tests.support.clients.async_client import connect_frame
from tests.support.log_lines import LogLines
from tests.support.proxies.proxy_under_test import kept_log, staged
from tests.support.sockets.frames import framed, ping, send
from tests.support.sockets.producer_frames import producer_frame
from tests.support.tools import native_extension

TOPIC = b"persistent://a/b/c"


@pytest.fixture(params=["plain", "tls"], autouse=True)
def transport(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have relays of the native engine, whose clients have TLS or not, and as many lines as there are commands."""
    native_extension()
    if request.param == "tls":
        serve_with_tls(tmp_path, monkeypatch)
    monkeypatch.setattr(relay_log, "LINES_PER_SECOND", 1_000_000)


def shown(log: LogLines) -> list[tuple[str, str]]:
    """Give direction and command of each line but those about the answer to CONNECT."""
    lines = log.of("relayed command")
    return [(line["direction"], line["command"]) for line in lines if line["command"] != "CONNECTED"]


async def test_each_command_has_a_line_in_either_direction_and_no_byte_is_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = kept_log(monkeypatch)
    async with staged(proxyLogLevel=1) as stage, raw_broker(greet) as broker:
        pair = await joined(stage, broker)
        data = (producer_frame(TOPIC, 1) + send(b"secret" * 20_000) + ping()) * 5
        await pair.client.send(data)
        assert await pair.broker.receive(len(data)) == data
        await pair.broker.send(data)
        assert await pair.client.receive(len(data)) == data
        await stage.until(lambda: len(shown(log)) == 30, "a line for each")
        for direction in ("to_broker", "to_client"):
            of_one = [command for way, command in shown(log) if way == direction]
            assert of_one == ["PRODUCER", "SEND", "PING"] * 5
        assert "secret" not in str(log.of("relayed command"))
        assert log.of("relayed command")[-1]["bytes"] == len(ping())


async def test_commands_that_came_with_the_handshake_have_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    log = kept_log(monkeypatch)
    async with staged(proxyLogLevel=1) as stage, raw_broker(greet) as broker:
        client = await stage.client()
        early = producer_frame(TOPIC, 1) + ping() * 2_000
        await client.send(connect_frame(f"127.0.0.1:{broker.port}") + early)
        await client.command()
        assert await broker.peers[-1].receive(len(early)) == early
        await stage.until(lambda: shown(log).count(("to_broker", "PING")) == 2_000, "a line for each")
        assert shown(log).count(("to_broker", "PRODUCER")) == 1


async def test_what_a_relay_said_last_is_shown_and_its_topics_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    log = kept_log(monkeypatch)
    async with staged(proxyLogLevel=2) as stage, raw_broker(greet) as broker:
        pair = await joined(stage, broker)
        await pair.client.send(producer_frame(TOPIC, 1) + PONG_FRAME * 40)
        pair.client.close()
        pair.broker.close()
        await stage.until(lambda: shown(log).count(("to_broker", "PONG")) == 40, "the last line")
        await stage.until(lambda: not stage.proxy.relay_log.names, "its topic forgotten")


async def test_bytes_that_are_no_frames_end_the_lines_of_their_direction_and_not_the_relay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = kept_log(monkeypatch)
    async with staged(proxyLogLevel=1) as stage, raw_broker(greet) as broker:
        pair = await joined(stage, broker)
        data = PONG_FRAME + b"\xff" * 100 + PONG_FRAME
        await pair.client.send(data)
        assert await pair.broker.receive(len(data)) == data
        await pair.broker.send(ping())
        assert await pair.client.receive(len(ping())) == ping()
        await stage.until(lambda: ("to_client", "PING") in shown(log), "a line of the other direction")
        assert shown(log) == [("to_broker", "PONG"), ("to_client", "PING")]


async def test_a_tap_that_fails_is_reported_once_and_the_relay_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(proxyLogLevel=1) as stage, raw_broker(greet) as broker:
        pair = await joined(stage, broker)

        def fail(*_: object) -> None:
            raise ValueError

        monkeypatch.setattr(RelayTap, "show", fail)
        data = ping() * 20_000
        for _ in range(2):
            await pair.client.send(data)
            assert await pair.broker.receive(len(data)) == data
        stage.expected_internal_errors = {"relay_log": 1}


async def test_a_relay_keeps_the_level_with_which_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    log = kept_log(monkeypatch)
    async with staged(proxyLogLevel=1) as stage, raw_broker(greet) as broker:
        pair = await joined(stage, broker)
        stage.proxy.live.change("proxyLogLevel", "0")
        silent = await joined(stage, broker)
        stage.proxy.live.change("proxyLogLevel", "1")
        for each in (silent, pair):
            await each.client.send(PONG_FRAME)
            assert await each.broker.receive(len(PONG_FRAME)) == PONG_FRAME
        await stage.until(lambda: ("to_broker", "PONG") in shown(log), "a line")
        assert shown(log).count(("to_broker", "PONG")) == 1


@pytest.mark.threat("tiny-behind-large-frames")
async def test_tiny_frames_behind_large_ones_are_shown_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lines_of_a_turn: list[int] = [0]
    write = RelayLog.write

    def counted(log: RelayLog, tap: RelayTap, direction: Direction, *of: Any) -> None:
        # The line about the answer to CONNECT comes before these or, on a busy machine, among them.
        lines_of_a_turn[-1] += direction is Direction.TO_BROKER
        write(log, tap, direction, *of)

    tiny = 5_000
    data = (framed(PONG_FRAME[8:], bytes(1 << 20)) + PONG_FRAME * tiny) * 3
    async with staged(proxyLogLevel=1) as stage, raw_broker(greet) as broker:
        pair = await joined(stage, broker)
        monkeypatch.setattr(RelayLog, "write", counted)
        monkeypatch.setattr(stage.proxy.core.loop_budget, "now", ticking(ITERATION_SECONDS))
        turning = True

        def turn() -> None:
            lines_of_a_turn.append(0)
            if turning:
                stage.proxy.loop.call_soon(turn)

        turn()
        async with asyncio.TaskGroup() as group:
            group.create_task(pair.client.send(data))
            assert await pair.broker.receive(len(data)) == data
        await stage.until(lambda: sum(lines_of_a_turn) == 3 * (1 + tiny), "a line for each")
        turning = False
    assert max(lines_of_a_turn) <= 2 * COMMANDS_A_TURN


def ticking(seconds: float) -> Callable[[], float]:
    """Return a clock on which everything takes a whole iteration's time."""
    looks = iter(range(1 << 60))
    return lambda: next(looks) * seconds
