"""What every relay engine promises beyond the bytes: reasons to pause, ends, descriptors, and nothing that stays."""

import asyncio
import itertools
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from protocol.commands import PONG_FRAME
from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import ITERATION_SECONDS
from proxy.relay.engine import Direction, PauseReason
from tests.integration.test_direct_mode import Pair, Side, greet, joined, paired, pour_until_still, sides
from tests.integration.test_leaving import embedded, relayed
from tests.support.auth.tls import TlsClient
from tests.support.brokers.embedded.script import AfterHandshake
from tests.support.brokers.raw_broker import raw_broker
from tests.support.clients.async_client import AsyncClient, Closed, eventually
from tests.support.patience import patient_millis
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import SLOW_READER_RCVBUF, staged
from tests.support.proxies.relays import CLOSE_WAIT, TO_BROKER, TO_CLIENT, reads, tcp_state_towards, unsent
from tests.support.proxies.running_proxy import child_proxy
from tests.support.sockets.frames import scalable_diff, watch_update

UPDATE = watch_update(1, ["persistent://public/default/new"])
DIFF = scalable_diff(1, ["topic://public/default/new"])
pytestmark = pytest.mark.usefixtures("tls_mode")
KIB = 1024
RELAYS, PINGS = 40, 10
# Frames of 13 bytes.
FRAMES = PONG_FRAME * 20_000


async def turns(count: int = 20) -> None:
    """Let the loop and the threads go on for a moment in which nothing must happen."""
    for _ in range(count):
        await asyncio.sleep(0.001)


async def told(peer: AsyncClient, size: int) -> bytes:
    """Give what comes within a moment."""
    for _ in range(20):
        await asyncio.sleep(0.001)
        if came := peer.receive_now(size):
            return came
    return b""


async def read_on(peer: AsyncClient) -> None:
    while await asyncio.get_running_loop().sock_recv(peer.sock, 1 << 20):
        pass


# --- reasons to pause -----------------------------------------------------------------------------


@sides
async def test_a_direction_is_read_when_the_last_reason_is_gone_and_the_other_all_the_time(side: Side) -> None:
    async with paired() as pair:
        sender, reader, direction = pair.ends(side)
        other = Direction(1 - direction)
        relay = pair.relay
        relay.pause(direction, PauseReason.THRESHOLD)
        relay.pause(direction, PauseReason.RATE)
        # One read may pass after a pause, nothing behind that.
        await sender.send(b"x")
        passed = await told(reader, 1)
        await sender.send(b"y")
        relay.resume(direction, PauseReason.THRESHOLD)
        relay.resume(direction, PauseReason.POOL)
        assert not await told(reader, 1)
        assert relay.snapshot().paused[direction] == PauseReason.RATE
        assert relay.snapshot().paused[other] == PauseReason(0)
        await reader.send(b"still here")
        assert await sender.receive(10) == b"still here"
        relay.resume(direction, PauseReason.RATE)
        assert passed + await reader.receive(2 - len(passed)) == b"xy"
        await pair.stage.until(lambda: reads(relay, direction), "a direction that is read")


@sides
async def test_a_pause_does_not_end_with_the_bytes_that_were_held(side: Side) -> None:
    async with paired() as pair:
        _, reader, direction = pair.ends(side)
        sent = await pour_until_still(pair, side)
        pair.relay.pause(direction, PauseReason.THRESHOLD)
        await pair.stage.until(lambda: unsent(pair.relay, direction) > 0, "bytes that are held")
        taken = 0
        while unsent(pair.relay, direction):
            taken += len(reader.receive_now(64 * KIB))
            await asyncio.sleep(0)
        assert not reads(pair.relay, direction)
        pair.relay.resume(direction, PauseReason.THRESHOLD)
        assert await reader.receive(len(sent) - taken) == sent[taken:]


@sides
async def test_a_fin_in_a_pause_is_passed_on_behind_the_bytes_when_the_pause_is_over(side: Side) -> None:
    async with paired() as pair:
        sender, reader, direction = pair.ends(side)
        pair.relay.pause(direction, PauseReason.THRESHOLD)
        await turns()
        await sender.send(bytes(100 * KIB))
        sender.fin()
        await pair.stage.until(lambda: tcp_state_towards(sender) == CLOSE_WAIT, "the FIN at the proxy")
        await turns()
        assert len(pair.stage.proxy.sessions) == 1
        pair.relay.resume(direction, PauseReason.THRESHOLD)
        assert await reader.rest() == bytes(100 * KIB)
        reader.close()
        await pair.over(f"{side}_closed")


async def test_the_read_timeout_does_not_run_in_a_pause() -> None:
    async with (
        staged(keepAliveIntervalSeconds=0) as stage,
        raw_broker(greet) as broker,
    ):
        held, silent = [await joined(stage, broker) for _ in range(2)]
        first, second = stage.proxy.sessions.all_relays()
        first.pause(TO_BROKER, PauseReason.THRESHOLD)
        stage.change(brokerProxyReadTimeoutMs=patient_millis(300))
        assert await silent.client.rest() == b""
        # The threads close a socket before the loop is told of the end.
        await stage.until(lambda: stage.caused("read_timeout") == 1, "the end of the silent relay")
        assert second not in set(stage.proxy.sessions.all_relays())
        assert len(stage.proxy.sessions) == 1
        first.resume(TO_BROKER, PauseReason.THRESHOLD)
        assert await held.client.rest() == b""
        await stage.until(lambda: stage.caused("read_timeout") == 2, "the end of the relay that had paused")


# --- ends -----------------------------------------------------------------------------------------


async def test_an_abort_ends_both_sides_at_once_and_resets_a_client_that_has_much_to_read() -> None:
    async with paired() as pair:
        await pour_until_still(pair, "broker")
        pair.relay.abort(DisconnectCause.ADMIN)
        await pair.over("admin")
        with pytest.raises(ConnectionResetError):
            await read_on(pair.client)


async def test_those_whose_relay_a_drain_ends_are_told_that_this_is_all() -> None:
    async with paired() as pair:
        await pair.client.send(b"x")
        assert await pair.broker.receive(1) == b"x"
        await pair.stage.proxy.sessions.drain(0.0)
        for peer in (pair.client, pair.broker):
            with pytest.raises(Closed, match="close_notify" if isinstance(peer, TlsClient) else "closed"):
                await peer.receive(1)
        await pair.over("shutdown")


async def test_a_close_and_then_an_abort_end_the_relay_once_with_the_first_cause() -> None:
    async with paired() as pair:
        await pour_until_still(pair, "broker")
        relay = pair.relay
        relay.close(DisconnectCause.CONNECTION_AGE)
        relay.abort(DisconnectCause.SHUTDOWN)
        relay.abort(DisconnectCause.SHUTDOWN)
        await pair.over("connection_age")
        relay.tick(pair.stage.proxy.loop.time())
        relay.close(DisconnectCause.ADMIN)
        relay.snapshot()


async def test_a_client_whose_window_stays_shut_stalls_our_writes() -> None:
    async with staged(tcpUserTimeoutMillis=300) as stage:
        stage.broker.script.after_handshake = AfterHandshake.FLOOD
        await stage.relayed(SLOW_READER_RCVBUF)
        await stage.until(lambda: stage.caused("write_stalled") == 1, "a client that was given up")
        assert "tcpUserTimeoutMillis" in stage.details[-1]


async def test_a_place_of_an_address_is_taken_until_its_relay_is_over() -> None:
    async with staged(maxConcurrentInboundConnectionsPerIp=1) as stage:
        client = await stage.relayed()
        assert stage.proxy.sessions.refusal("127.0.0.1") is not None
        client.close()
        await stage.until(lambda: stage.proxy.sessions.refusal("127.0.0.1") is None, "a free place")


# --- descriptors and threads ----------------------------------------------------------------------


def descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}


def flags_of(child: int) -> dict[str, tuple[str, int]]:
    """Give what each descriptor of a process is, and its flags (proc(5), fdinfo), but for those it was started with."""
    found = {}
    for name in os.listdir(f"/proc/{child}/fdinfo"):
        # One that is closed meanwhile is nobody's.
        with suppress(FileNotFoundError):
            kind = os.readlink(f"/proc/{child}/fd/{name}")
            info = Path(f"/proc/{child}/fdinfo/{name}").read_text()
            (flags,) = re.findall(r"^flags:\s+([0-7]+)$", info, re.MULTILINE)
            found[name] = kind, int(flags, 8)
    return {name: found[name] for name in found if int(name) > 2}


# The threads' pipes are for relays without TLS.
@pytest.mark.tls_modes("plain")
async def test_no_program_that_the_proxy_starts_inherits_a_descriptor(tmp_path: Path) -> None:
    async with embedded() as broker, child_proxy(tmp_path, broker, brokerProxyAllowedTargetPorts="*") as proxy:
        broker.script.after_handshake, broker.script.flood_payload_bytes = AfterHandshake.FLOOD, 256 * KIB
        clients = [await relayed(proxy, broker) for _ in range(3)]
        child = proxy.child.pid

        def spliced() -> bool:
            kinds = {kind.partition(":")[0] for kind, _ in flags_of(child).values()}
            return {"socket", "pipe"} <= kinds

        # Of the loop's own there is none.
        await eventually(spliced, "relays, and a pipe of the threads")
        found = flags_of(child)
        assert len([kind for kind, _ in found.values() if kind.startswith("socket:")]) >= 2 * len(clients)
        assert {name: kind for name, (kind, flags) in found.items() if not flags & os.O_CLOEXEC} == {}


async def test_a_relay_at_rest_has_two_descriptors() -> None:
    async with staged() as stage, raw_broker(greet) as broker:
        first = await joined(stage, broker)
        # CONNECTED may come before the hand-over to the engine is over, which has more.
        await first.client.send(b"x")
        assert await first.broker.receive(1) == b"x"
        before = len(descriptors())
        pairs = [await joined(stage, broker) for _ in range(5)]
        for pair in pairs:
            await pair.client.send(b"x")
            assert await pair.broker.receive(1) == b"x"
        # Two of the test's own beside each.
        await stage.until(lambda: len(descriptors()) == before + 4 * len(pairs), "two descriptors a relay")


def relay_threads() -> list[str]:
    names = []
    for task in os.listdir("/proc/self/task"):
        # One that ends meanwhile has no name any more.
        with suppress(FileNotFoundError, ProcessLookupError):
            names.append(Path(f"/proc/self/task/{task}/comm").read_text().strip())
    return [name for name in names if name.startswith("relay-")]


async def test_a_stopped_proxy_leaves_no_thread_with_busy_relays_either() -> None:
    async with paired() as pair:
        await pour_until_still(pair, "broker")
        assert relay_threads()
    # The kernel shows a thread for a moment after it was joined.
    await eventually(lambda: not relay_threads(), "no thread left")


# --- turns ----------------------------------------------------------------------------------------


async def flood(pair: Pair, over: asyncio.Event) -> None:
    """Have the broker send tiny frames without end until it is `over`, and the client take all of them."""

    async def send() -> int:
        sent = 0
        while not over.is_set():
            await pair.broker.send(FRAMES)
            sent += len(FRAMES)
        pair.broker.fin()
        return sent

    async def take() -> int:
        taken = 0
        with suppress(Closed):
            while True:
                taken += len(await pair.client.some(64 * KIB))
        return taken

    sent, taken = await asyncio.gather(send(), take())
    assert taken == sent


@pytest.mark.threat("tiny-relay-frames")
# Takes seconds; a thread gives the same turns to a pair with one session and to one with two.
@pytest.mark.tls_modes("plain", "both")
@pytest.mark.parametrize("watched", ["true", "false"])
async def test_tiny_frames_through_many_relays_leave_a_neighbour_its_turns(watched: str) -> None:
    keys: dict[str, Any] = {"relayBufferBytes": 64 * KIB, "watchTopicListLimitEnabled": watched}
    async with staged(**keys) as stage, raw_broker(greet) as broker:
        # By this clock whatever the loop is asked to do for a relay takes a quarter of an iteration's time.
        looks = itertools.count()
        stage.proxy.core.loop_budget.now = lambda: next(looks) * ITERATION_SECONDS / 4
        neighbour = await stage.connected()
        pairs = [await joined(stage, broker) for _ in range(RELAYS)]
        relays, over = list(stage.proxy.sessions.all_relays()), asyncio.Event()

        def moved() -> list[int]:
            return [relay.snapshot().moved[TO_CLIENT] for relay in relays]

        async with asyncio.TaskGroup() as group:
            for pair in pairs:
                group.create_task(flood(pair, over))
            await stage.until(lambda: min(moved()) > len(FRAMES), "a flood through each relay")
            passed = sum(moved())
            # A flood that is served first would never let these through.
            for _ in range(PINGS):
                await neighbour.ping()
            await stage.until(lambda: sum(moved()) > passed, "the flood, which goes on")
            over.set()


# --- watch frames ---------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [UPDATE, DIFF], ids=["topics", "scalable topics"])
async def test_a_watch_frame_that_comes_byte_by_byte_waits_like_any_other(names: bytes) -> None:
    async with paired() as pair:
        pair.stage.proxy.watch_limits.max_pause_seconds = 600.0
        taken = pair.stage.direct.try_acquire(pair.stage.direct.limit)
        assert taken is not None
        # What the frame is stands in its tenth byte.
        for byte in names[:9]:
            await pair.broker.send(bytes([byte]))
            assert await pair.client.receive(1) == bytes([byte])
        await pair.broker.send(names[9:10])
        await pair.stage.until(lambda: not reads(pair.relay, TO_CLIENT), "a frame that waits")
        await pair.broker.send(names[10:])
        assert not await told(pair.client, 1)
        taken.release()
        assert await pair.client.receive(len(names) - 9) == names[9:]
        assert counted(pair.stage.proxy.counters, "watch_frames", "update") == 1


# The smallest frame of interest that a flood has: 13 bytes, as a PONG.
TINY = bytes.fromhex("00000009 00000005 0842 180020")


@pytest.mark.threat("native-watch-flood")
async def test_a_flood_of_the_smallest_watch_frames_passes_whole_and_counted_beside_a_neighbour() -> None:
    count, piece = 20_000, 1_000
    async with paired() as pair:
        neighbour = await pair.stage.connected()

        async def pour() -> None:
            for _ in range(count // piece):
                await pair.broker.send(TINY * piece)

        async with asyncio.TaskGroup() as group:
            group.create_task(pour())
            received = group.create_task(pair.client.receive(len(TINY) * count))
            for _ in range(PINGS):
                await neighbour.ping()
        assert received.result() == TINY * count
        counters = pair.stage.proxy.counters
        # Those that passed unasked are told of when their second is over.
        await pair.stage.until(lambda: counted(counters, "watch_frames", "update") == count, "all frames counted")
        assert (counted(counters, "watch_frames", "success"), counted(counters, "watch_bytes")) == (
            0,
            len(TINY) * count,
        )
        await pair.stage.until(lambda: not pair.stage.direct.held, "all permits back")


@pytest.mark.parametrize("cut", [False, True])
async def test_a_watch_frame_that_announces_two_gib_holds_a_permit_for_what_came_only(cut: bool) -> None:
    head = (2**31 - 1).to_bytes(4, "big") + (2**31 - 5).to_bytes(4, "big") + bytes.fromhex("0842")
    sent = head + os.urandom(500 * KIB)
    async with paired(maxTopicListInFlightDirectMemSizeMB=1) as pair:
        async with asyncio.TaskGroup() as group:
            group.create_task(pair.broker.send(sent))
            assert await pair.client.receive(len(sent)) == sent
        counters = pair.stage.proxy.counters
        assert (counted(counters, "watch_frames", "update"), counted(counters, "watch_unwalkable")) == (1, 0)
        await pair.stage.until(lambda: not pair.stage.direct.held, "the permit of what was taken")
        # The rest never comes: the pair ends as any other.
        if cut:
            pair.broker.reset()
            await pair.over("connection_reset")
        else:
            pair.broker.fin()
            assert await pair.client.rest() == b""
            pair.client.close()
            await pair.over("broker_closed")
        assert pair.stage.direct.held == pair.stage.direct.queue_size == 0


async def test_a_frame_above_two_gib_ends_the_scan_and_no_byte() -> None:
    sent = (2**31).to_bytes(4, "big") + (2**31 - 4).to_bytes(4, "big") + bytes.fromhex("0842") + UPDATE
    async with paired() as pair:
        await pair.broker.send(sent)
        assert await pair.client.receive(len(sent)) == sent
        counters = pair.stage.proxy.counters
        await pair.stage.until(lambda: counted(counters, "watch_unwalkable") == 1, "the end of the scan")
        assert counted(counters, "watch_frames", "update") == 0
