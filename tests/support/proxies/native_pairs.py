"""Own a native engine without threads: a test says what the threads find, and sees what they are asked for."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from limiter.semaphore import AsyncSemaphore
from proxy.core.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.core.log import open_log
from proxy.net.pump import Pump
from proxy.relay.engine import RelayOrder
from proxy.relay.native_api import EventTuple, PairEnd, PairEvent
from proxy.relay.native_engine import NativeEngine, NativeRelay
from proxy.relay.relay_log import RelayLog
from proxy.relay.topic_slots import TopicSlots
from proxy.relay.watch_limits import WatchLimits, WatchSettings
from proxy.telemetry.events.recorder import RequestOrigin
from tests.support.configured import configured
from tests.support.cores import core_of
from tests.support.loops.loops import run_virtual
from tests.support.sockets.endpoints import hangup_watcher
from tests.support.sockets.memory_transport import MemoryTransport

if TYPE_CHECKING:
    from proxy.core.native import CommandTap, RelayEngine, TlsSession

KIB = 1024
LIMIT, WINDOW = 1000 * KIB, 128 * KIB
PAUSE_SECONDS, HOLD_SECONDS = 10.0, 28.0


@dataclass
class Given:
    """What an engine was given for one pair."""

    fds: tuple[int, int]
    to_client: bytes
    to_broker: bytes
    scan: bool
    paused: tuple[int, int]


class FakePairs:
    """The class of the extension, as far as its calls go; `asked` has them in order."""

    def __init__(self) -> None:
        self.event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.given: dict[int, Given] = {}
        self.asked: list[tuple[object, ...]] = []
        self.waiting: list[EventTuple] = []
        self.fault: Exception | None = None
        self.beating = [0]
        self.counted: dict[int, tuple[int, int]] = {}
        self.topics: dict[tuple[int, int], bytes] = {}
        self.stopped = 0
        self.was_stopped = threading.Event()

    def join(
        self,
        client_fd: int,
        broker_fd: int,
        to_client: bytes,
        to_broker: bytes,
        scan: bool,
        count: bool,
        paused: tuple[int, int],
        client_tls: "TlsSession | None",
        broker_tls: "TlsSession | None",
        tap: "CommandTap | None",
    ) -> int:
        if self.fault is not None:
            raise self.fault
        pair = len(self.given) + 1
        self.given[pair] = Given((client_fd, broker_fd), to_client, to_broker, scan, paused)
        return pair

    def make_tap(self) -> "CommandTap":
        raise NotImplementedError

    def pause(self, pair: int, direction: int, reason: int) -> None:
        self.asked.append(("pause", pair, direction, reason))

    def resume(self, pair: int, direction: int, reason: int) -> None:
        self.asked.append(("resume", pair, direction, reason))

    def pass_frames(self, pair: int, generation: int) -> None:
        self.asked.append(("pass", pair, generation))

    def take_topic(self, pair: int, generation: int) -> bytes | None:
        return self.topics.pop((pair, generation), None)

    def assign(self, pair: int, generation: int, slot: int) -> None:
        self.asked.append(("assign", pair, generation, slot))

    def drip(self, pair: int, direction: int, whole_read: bool) -> None:
        self.asked.append(("drip", pair, direction))

    def seen_of(self, pair: int) -> int:
        return 0

    def unread_of(self, pair: int) -> int:
        return 0

    def close(self, pair: int, stall_ms: int) -> None:
        self.asked.append(("close", pair))

    def abort(self, pair: int) -> None:
        self.asked.append(("abort", pair))

    def write(self, fd: int, prefix: bytes, pages_fd: int, size: int) -> int:
        raise NotImplementedError

    def end_write(self, body: int) -> None:
        raise NotImplementedError

    def written(self, body: int) -> int | None:
        raise NotImplementedError

    def close_pages(self, pages_fd: int) -> bool:
        raise NotImplementedError

    def tell(self, kind: PairEvent, pair: int, *values: int) -> None:
        """Have an event wait; the loop hears of it in its next turn."""
        padded = (*values, *(0,) * 5)
        self.waiting.append((kind, pair, padded[0], padded[1], padded[2], padded[3], padded[4], ""))
        os.eventfd_write(self.event_fd, 1)
        if kind is PairEvent.ENDED:
            self.close_fds(pair)

    def events(self, most: int) -> list[EventTuple]:
        taken, self.waiting = self.waiting[:most], self.waiting[most:]
        if not self.waiting:
            with suppress(BlockingIOError):
                os.eventfd_read(self.event_fd)
        return taken

    def snapshot(self, after: int = 0, most: int = 0) -> bytes:
        raise NotImplementedError

    def snapshot_of(self, pair: int) -> tuple[int, ...] | None:
        to_broker, to_client = self.counted.get(pair, (0, 0))
        return (pair, to_broker, to_client, *(0,) * 11)

    def beats(self) -> list[int]:
        return self.beating

    def rounds(self) -> list[int]:
        return [0 for _ in self.beating]

    def set_tight(self, tight: bool) -> None:
        """Have no windows."""

    def heaviest(self, most: int) -> list[tuple[int, int, int]]:
        """Return nothing: there are no sockets."""
        return []

    def received_memory(self) -> tuple[int, int]:
        return 0, 0

    def socket_memory(self) -> tuple[int, int]:
        return 0, 0

    def pool(self) -> None:
        return None

    def stop(self) -> None:
        self.stopped += 1
        for pair in self.given:
            if self.given[pair].fds:
                self.tell(PairEvent.ENDED, pair, PairEnd.OURS, 0, *self.counted.get(pair, (0, 0)))
        self.was_stopped.set()

    def close_fds(self, pair: int) -> None:
        for fd in self.given[pair].fds:
            os.close(fd)
        self.given[pair].fds = ()  # type: ignore[assignment]


class FakeBodies(Pump):
    """The owner of bodies, as far as an engine calls it; `heard` has the calls in order."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def threads_started(self, threads: "RelayEngine") -> None:
        self.heard.append(("started", threads))

    def threads_stopped(self) -> None:
        self.heard.append(("stopped",))

    def body_moved(self, body: int, position: int) -> None:
        self.heard.append(("moved", body, position))

    def body_ended(self, body: int, position: int, error: int) -> None:
        self.heard.append(("ended", body, position, error))

    def catch_up(self) -> None:
        self.heard.append(("catch up",))


@dataclass
class Bench:
    """A native engine over fake pairs, and what became of its relays."""

    engine: NativeEngine
    pairs: FakePairs
    limits: WatchLimits
    counters: Counters
    log: BytesIO
    bodies: FakeBodies
    ended: list[tuple[object, DisconnectCause]] = field(default_factory=list)
    transports: list[tuple[MemoryTransport, MemoryTransport]] = field(default_factory=list)

    @property
    def direct(self) -> AsyncSemaphore:
        return self.limits.direct

    @property
    def causes(self) -> list[DisconnectCause]:
        return [cause for _, cause in self.ended]

    def order(self, origin: RequestOrigin | None = None, network: str = "192.0.2.1") -> RelayOrder:
        """Ask for a relay whose end is noted."""
        return RelayOrder(
            lambda relay, cause: self.ended.append((relay, cause)), 75.0, "me", f"{network}:1", origin, network
        )

    def relay(
        self, origin: RequestOrigin | None = None, room: int = 1 << 40, network: str = "192.0.2.1"
    ) -> NativeRelay:
        """Make the relay of two transports that nobody reads; the client's peer takes `room` bytes."""
        loop = self.engine.loop
        client, broker = MemoryTransport(loop, room), MemoryTransport(loop)
        self.transports.append((client, broker))
        return self.engine.join(client, broker, self.order(origin, network))

    async def joined(self, to_client: bytes = b"", to_broker: bytes = b"", network: str = "192.0.2.1") -> NativeRelay:
        """Make a relay and hand it over."""
        relay = self.relay(network=network)
        relay.start(*self.transports[-1], to_client, to_broker)
        for _ in range(4):
            await asyncio.sleep(0)
        assert relay.pair
        return relay

    def hear(self) -> None:
        """Have the events that wait handled, as in the loop's next turn."""
        self.engine.dispatch()

    async def told(self, kind: PairEvent, relay: NativeRelay, *values: int) -> None:
        """Have an event of a relay handled."""
        self.pairs.tell(kind, relay.pair, *values)
        self.hear()
        # A wait for memory is a task.
        await asyncio.sleep(0)


@asynccontextmanager
async def bench(**settings: float) -> AsyncIterator[Bench]:
    """Run a native engine over fake pairs; at the end all its books are zero."""
    loop = asyncio.get_running_loop()
    counters = Counters()
    direct = AsyncSemaphore("direct", LIMIT, max_queue=100, timeout_seconds=60, clock=loop)
    limits = WatchLimits(
        direct,
        counters,
        WatchSettings(True, HOLD_SECONDS),
        window_bytes=WINDOW,
        max_pause_seconds=settings.get("max_pause_seconds", PAUSE_SECONDS),
    )
    pairs, bodies, file = FakePairs(), FakeBodies(), BytesIO()
    log = open_log("debug", "json", file)
    async with hangup_watcher() as watcher:
        core = core_of(counters=counters, log=log, clock=loop.time, config=configured(relayMemoryPoolMB=-1))
        sockets: Any = SimpleNamespace(hangup=watcher, pump=bodies)
        slots, relay_log = TopicSlots(loop.time, cast(Any, None)), RelayLog(log, loop.time, 0)
        engine = NativeEngine(core, sockets, lambda: cast(Any, pairs), limits, slots, relay_log)
        engine.start(lambda _: None)
        at = Bench(engine, pairs, limits, counters, file, bodies)
        try:
            yield at
        finally:
            await engine.stop()
            await asyncio.sleep(1)
            os.close(pairs.event_fd)
            for both in at.transports:
                for transport in both:
                    transport.abort()
            await asyncio.sleep(1)
    assert (direct.held, limits.held_bytes, direct.queue_size, len(engine)) == (0, 0, 0, 0)


def played(play: Callable[[Bench], Awaitable[None]]) -> Callable[[], None]:
    """Run a test's coroutine in virtual time, and see that no descriptor is left."""

    async def main() -> None:
        async with bench() as at:
            await play(at)

    def test() -> None:
        before = os.listdir("/proc/self/fd")
        run_virtual(main())
        assert len(os.listdir("/proc/self/fd")) == len(before)

    return test
