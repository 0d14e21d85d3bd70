"""Busy relays take turns: none is read for longer than its share, and tiny frames are read little at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from limiter.semaphore import AsyncSemaphore
from protocol.command_scanner import CommandScanner, ScannedFrame
from protocol.commands import PONG_FRAME
from proxy.app.metrics.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.core.log import open_log
from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import LARGE_READ_BYTES, SMALL_READ_BYTES, SharedReadBuffer
from proxy.relay.engine import Relay
from proxy.relay.frame_permits import FramePermits
from proxy.relay.logged_relay import LoggedRelay, LoggedWatchedRelay
from proxy.relay.relay import COSTLY_READ_SECONDS, TURN_SECONDS, AsyncioRelay, RelayEndpoint
from proxy.relay.relay_log import RelayLog
from proxy.relay.watch_limits import WatchLimits
from proxy.relay.watch_relay import WatchedRelay
from tests.support.clients.list_clients import turns
from tests.support.sockets.endpoints import hangup_watcher
from tests.support.sockets.frames import framed
from tests.support.sockets.memory_transport import MemoryTransport

BULK = 256 * 1024
# libuv reads a socket so often in one iteration of the loop, as long as each read fills its buffer.
READS_PER_ITERATION = 32
KINDS = ("raw", "watched", "logged", "logged watched")
# WATCH_TOPIC_UPDATE without a body.
TINY_WATCH_FRAME = bytes((0, 0, 0, 6, 0, 0, 0, 2, 8, 66))
ASK_SECONDS = 0.0001


def do_nothing(relay: Relay, cause: DisconnectCause) -> None:
    """Stand in for the end of a relay."""


class Clock:
    """A clock that goes on by what work costs: each byte that is written, and parsed."""

    def __init__(self) -> None:
        self.now = 100.0
        self.byte_seconds = 1e-10

    def __call__(self) -> float:
        return self.now


class CostlyTransport(MemoryTransport):
    """A transport whose writes take time by the clock, and that tells whether its socket is read."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        super().__init__(loop)
        self.clock = clock
        self.taken = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.clock.now += len(data) * self.clock.byte_seconds
        self.taken += len(data)

    def read_on(self) -> bool:
        told = [event for event in self.events if event in ("pause reading", "resume reading")]
        return not told or told[-1] == "resume reading"


class Flooded:
    """A relay whose broker always has more to say, read as libuv reads it."""

    def __init__(self, relay: AsyncioRelay, client: CostlyTransport, broker: CostlyTransport) -> None:
        self.relay = relay
        self.client = client
        self.broker = broker

    def poll(self, available: int = 1 << 40) -> list[int]:
        """Let the loop find the broker's socket ready; give the sizes of its reads."""
        sizes: list[int] = []
        while self.broker.read_on() and len(sizes) < READS_PER_ITERATION and available:
            place = self.relay.broker.get_buffer(-1)
            count = min(len(place), available)
            self.relay.broker.buffer_updated(count)
            sizes.append(count)
            available -= count
            if count < len(place):
                break
        return sizes

    def say(self, stream: bytes) -> list[int]:
        """Let the broker say `stream`, and the loop read all of it; give the sizes of the reads."""
        sizes: list[int] = []
        position = 0
        while position < len(stream):
            place = self.relay.broker.get_buffer(-1)
            count = min(len(place), len(stream) - position)
            place[:count] = stream[position : position + count]
            self.relay.broker.buffer_updated(count)
            sizes.append(count)
            position += count
        return sizes


class Bench:
    """Relays over one loop budget whose clock goes on by the cost of work."""

    def __init__(self, hangup: HangupWatcher) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = Clock()
        self.budget = LoopBudget(self.loop, self.clock)
        self.hangup = hangup
        self.shared = SharedReadBuffer(BULK)
        self.counters = Counters(DisconnectCause)
        direct = AsyncSemaphore("direct", 1 << 30, max_queue=1, timeout_seconds=1, clock=self.loop)
        self.limits = WatchLimits(
            direct, self.counters.relay, window_bytes=BULK, enabled=True, max_pause_seconds=1, longest_hold_seconds=28
        )
        self.log = RelayLog(open_log("error"), self.loop.time, 1)
        self.relays: list[Flooded] = []
        self.parse_byte_seconds = 0.0
        # What all buffers of this bench are full of.
        whole = PONG_FRAME * (BULK // len(PONG_FRAME) + 1)
        for buffer in (self.shared.bulk, self.shared.large):
            buffer[:] = whole[: len(buffer)]

    def relay(self, kind: str, network: str = "192.0.2.1") -> Flooded:
        common = (self.loop, self.shared, self.hangup, self.budget, self.counters.relay, 75.0, do_nothing)
        relay: AsyncioRelay
        if kind == "raw":
            relay = AsyncioRelay(*common)
        elif kind == "watched":
            # By default each connection is charged for itself.
            relay = WatchedRelay(*common, watch=self.limits, key=len(self.relays))
        else:
            watched = "watched" in kind
            logged = LoggedWatchedRelay(*common, watch=self.limits, key="me") if watched else LoggedRelay(*common)
            logged.relay_log = self.log
            relay = logged
        relay.network = network
        client, broker = CostlyTransport(self.loop, self.clock), CostlyTransport(self.loop, self.clock)
        relay.start(client, broker, b"", b"")
        self.relays.append(Flooded(relay, client, broker))
        return self.relays[-1]

    def asking_costs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let each question for a permit take `ASK_SECONDS`."""
        ask = FramePermits.ask

        def slow(permits: FramePermits) -> None:
            self.clock.now += ASK_SECONDS
            ask(permits)

        monkeypatch.setattr(FramePermits, "ask", slow)

    def parsing_costs(self, monkeypatch: pytest.MonkeyPatch, byte_seconds: float) -> None:
        """Let scans and taps find nothing, and take so long for each byte until `parse_byte_seconds` is set anew."""
        self.parse_byte_seconds = byte_seconds

        def parse(parser: object, data: memoryview, count: int) -> Any:
            self.clock.now += count * self.parse_byte_seconds

        def show(tap: object, data: memoryview, count: int) -> int:
            parse(tap, data, count)
            # What costs nothing is the payload of a large frame.
            return 0 if self.parse_byte_seconds else 1 << 40

        monkeypatch.setattr("protocol.scanner.FrameScanner.scan", parse)
        monkeypatch.setattr("proxy.relay.relay_log.RelayTap.to_client", show)


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    async with hangup_watcher() as hangup:
        on = Bench(hangup)
        yield on
        for flooded in on.relays:
            flooded.relay.abort(DisconnectCause.SHUTDOWN)
        await turns(100)
        assert (len(on.budget), len(hangup)) == (0, 0)
        assert on.counters.shared.internal_errors == {}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_busy_relay_rests_when_its_share_is_used_up(kind: str) -> None:
    async with bench() as on:
        on.clock.byte_seconds = TURN_SECONDS / BULK / 3
        flooded = on.relay(kind)
        began = on.clock.now
        sizes = flooded.poll()
        assert not flooded.broker.read_on()
        assert on.clock.now - began < 2 * TURN_SECONDS
        assert len(sizes) < READS_PER_ITERATION
        await turns(2)
        assert flooded.broker.read_on()
        assert flooded.client.taken == sum(sizes)


@pytest.mark.threat("tiny-relay-frames")
@pytest.mark.parametrize("kind", KINDS)
async def test_however_many_relays_are_busy_an_iteration_reads_a_few_of_them(kind: str) -> None:
    async with bench() as on:
        on.clock.byte_seconds = TURN_SECONDS / BULK
        for _ in range(100):
            on.relay(kind)
        for flooded in on.relays:
            flooded.poll()
        assert not any(flooded.broker.read_on() for flooded in on.relays[10:])
        moved = [flooded.client.taken for flooded in on.relays]
        longest = 0.0
        for _ in range(400):
            await turns(1)
            began = on.clock.now
            for flooded in on.relays:
                flooded.poll()
            longest = max(longest, on.clock.now - began)
        assert longest <= 2 * ITERATION_SECONDS
        # In turns: nobody is left behind.
        gained = [flooded.client.taken - before for flooded, before in zip(on.relays, moved, strict=True)]
        assert min(gained) > 0
        assert max(gained) <= 4 * min(gained)


@pytest.mark.threat("tiny-relay-frames")
@pytest.mark.parametrize("kind", ["raw", "watched"])
async def test_however_many_relays_bring_little_an_iteration_reads_a_few_of_them(kind: str) -> None:
    async with bench() as on:
        on.clock.byte_seconds = 1e-6
        for _ in range(300):
            on.relay(kind)
        took = []
        for _ in range(100):
            began = on.clock.now
            for flooded in on.relays:
                flooded.poll(20)
            took.append(on.clock.now - began)
            await turns(1)
        # Nobody waits in line before his first read.
        assert max(took[5:]) <= 1.5 * ITERATION_SECONDS
        # In turns: nobody is left behind.
        reads = [flooded.client.taken // 20 for flooded in on.relays]
        assert min(reads) > 1
        assert max(reads) <= 4 * min(reads)


@pytest.mark.threat("tiny-relay-frames")
@pytest.mark.parametrize("kind", ["raw", "watched"])
async def test_small_reads_wait_for_no_crowd_of_another_client(kind: str) -> None:
    async with bench() as on:
        on.clock.byte_seconds = 1e-5
        for _ in range(300):
            on.relay(kind).poll(20)
        neighbour = on.relay(kind, network="192.0.2.2")
        neighbour.poll(20)
        assert not neighbour.broker.read_on()
        await turns(2)
        assert neighbour.broker.read_on()
        assert not all(flooded.broker.read_on() for flooded in on.relays)


async def test_however_many_relays_bring_a_watch_frame_an_iteration_asks_for_a_few_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as on:
        on.asking_costs(monkeypatch)
        longest, last = 0.0, on.clock.now
        for _ in range(300):
            on.relay("watched").say(TINY_WATCH_FRAME)
        for _ in range(100):
            longest = max(longest, on.clock.now - last)
            last = on.clock.now
            await turns(1)
        assert longest <= ITERATION_SECONDS + 2 * ASK_SECONDS
        assert all(flooded.client.taken == len(TINY_WATCH_FRAME) for flooded in on.relays)
        assert all(flooded.broker.read_on() for flooded in on.relays)


@pytest.mark.threat("tiny-relay-frames")
async def test_a_watch_frame_waits_for_no_crowd_of_another_client(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as on:
        on.asking_costs(monkeypatch)
        large = on.shared.large
        for _ in range(300):
            on.relay("watched").say(TINY_WATCH_FRAME)
        neighbour = on.relay("watched", network="192.0.2.2")
        neighbour.say(TINY_WATCH_FRAME)
        # A frame that waits keeps its bytes, and no buffer.
        assert on.shared.large is large
        assert neighbour.relay.snapshot().paused[1]
        await turns(2)
        assert neighbour.client.taken == len(TINY_WATCH_FRAME)
        assert not all(flooded.client.taken for flooded in on.relays)


async def test_a_relay_that_ends_before_its_turn_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as on:
        on.asking_costs(monkeypatch)
        for _ in range(100):
            on.relay("watched").say(TINY_WATCH_FRAME)
        for flooded in on.relays:
            flooded.relay.abort(DisconnectCause.SHUTDOWN)
        asked_at = on.clock.now
        await turns(20)
        assert on.clock.now == asked_at
        assert (len(on.budget), on.limits.direct.held) == (0, 0)


@pytest.mark.threat("tiny-relay-frames")
@pytest.mark.parametrize("kind", ["watched", "logged", "logged watched"])
async def test_tiny_frames_are_read_little_at_a_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as on:
        # The frames of a large read take 3 ms, so those of a small read 0.2 ms.
        on.parsing_costs(monkeypatch, 3 * COSTLY_READ_SECONDS / LARGE_READ_BYTES)
        flooded = on.relay(kind)
        first = flooded.poll()
        assert first[0] == (LARGE_READ_BYTES if kind == "watched" else SMALL_READ_BYTES)
        await turns(2)
        began = on.clock.now
        assert set(flooded.poll()) == {SMALL_READ_BYTES}
        assert on.clock.now - began < 2 * TURN_SECONDS
        # A pause in between does not make it larger.
        await turns(2)
        flooded.poll(100)
        assert set(flooded.poll()) == {SMALL_READ_BYTES}


@pytest.mark.parametrize("kind", ["watched", "logged", "logged watched"])
async def test_a_relay_whose_frames_become_large_is_read_much_at_a_time_again(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench() as on:
        on.parsing_costs(monkeypatch, 3 * COSTLY_READ_SECONDS / LARGE_READ_BYTES)
        flooded = on.relay(kind)
        flooded.poll()
        await turns(2)
        assert set(flooded.poll()) == {SMALL_READ_BYTES}
        on.parse_byte_seconds = 0.0
        await turns(2)
        assert flooded.poll()[-1] == BULK


@pytest.mark.threat("tiny-behind-large-frames")
@pytest.mark.parametrize("kind", ["logged", "logged watched"])
async def test_tiny_frames_after_large_ones_are_parsed_a_small_read_at_a_time(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames_of_a_step: list[int] = []
    scan = CommandScanner.scan

    def counted(scanner: CommandScanner, data: memoryview | bytes, count: int) -> list[ScannedFrame]:
        found = scan(scanner, data, count)
        frames_of_a_step.append(len(found))
        return found

    monkeypatch.setattr(CommandScanner, "scan", counted)
    large = framed(PONG_FRAME[8:], bytes(1 << 20))
    tiny = PONG_FRAME * (BULK // len(PONG_FRAME))
    async with bench() as on:
        flooded = on.relay(kind)
        sizes = flooded.say((large + tiny) * 3)
        assert sum(frames_of_a_step) == 3 * (1 + BULK // len(PONG_FRAME))
        assert max(frames_of_a_step) <= SMALL_READ_BYTES // len(PONG_FRAME) + 2
        # Payloads are read in large pieces all the same.
        assert sizes.count(BULK) >= 3


@pytest.mark.parametrize("kind", ["logged", "logged watched"])
async def test_a_tap_that_has_ended_makes_no_read_smaller(kind: str) -> None:
    async with bench() as on:
        flooded = on.relay(kind)
        sizes = flooded.say(bytes(16) + PONG_FRAME * BULK)
        assert BULK in sizes


async def test_many_reads_that_do_not_fill_their_buffer_are_judged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as on:
        on.parsing_costs(monkeypatch, 3 * COSTLY_READ_SECONDS / LARGE_READ_BYTES)
        flooded = on.relay("watched")
        assert flooded.poll(LARGE_READ_BYTES - 1) == [LARGE_READ_BYTES - 1]
        await turns(2)
        assert flooded.poll(LARGE_READ_BYTES - 1)[0] == SMALL_READ_BYTES


@pytest.mark.parametrize("kind", ["raw", "watched"])
async def test_small_reads_bring_no_pause(kind: str) -> None:
    async with bench() as on:
        flooded = on.relay(kind)
        told = len(flooded.broker.events)
        for _ in range(100):
            assert flooded.poll(1024) == [1024]
        assert flooded.broker.events[told:] == []
        assert len(on.budget) == 0


@pytest.mark.parametrize("kind", ["raw", "watched"])
async def test_a_relay_that_waits_for_its_peer_while_it_rests_is_not_read_early(kind: str) -> None:
    async with bench() as on:
        on.clock.byte_seconds = TURN_SECONDS / BULK
        flooded = on.relay(kind)
        flooded.poll()
        endpoint = flooded.relay.broker
        assert isinstance(endpoint, RelayEndpoint)
        endpoint.pause_reading()
        await turns(2)
        assert not flooded.broker.read_on()
        endpoint.resume_reading()
        assert flooded.broker.read_on()
        flooded.poll()
        assert not flooded.broker.read_on()
        endpoint.pause_reading()
        endpoint.resume_reading()
        assert not flooded.broker.read_on()
        await turns(2)
        assert flooded.broker.read_on()
