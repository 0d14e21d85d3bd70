"""Own a walked relay in virtual time, between two transports without a kernel; every play ends on books of zero."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.app.metrics.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.net.transport import SharedReadBuffer
from proxy.relay.watch_limits import WatchLimits
from proxy.relay.watch_relay import WatchedRelay
from tests.support.loops.loops import run_virtual
from tests.support.sockets.endpoints import hangup_watcher
from tests.support.sockets.frames import send, watch_success, watch_update
from tests.support.sockets.memory_transport import MemoryTransport

KIB = 1024
LIMIT, WINDOW = 1000 * KIB, 128 * KIB
PAUSE_SECONDS, HOLD_SECONDS = 10.0, 28.0
MESSAGE = send(b"payload")
SMALL = watch_update(1, ["persistent://a/b/c"])
LARGE = watch_success(1, [f"persistent://a/b/{number:0100}" for number in range(8 * KIB)])


class Setting:
    """A walked relay between two memory transports, over a direct limiter of its own."""

    def __init__(self, relay: WatchedRelay, limits: WatchLimits, client: MemoryTransport) -> None:
        self.relay = relay
        self.limits = limits
        self.direct = limits.direct
        self.client = client
        self.watch = limits.counters.watch
        self.ended: list[DisconnectCause] = []

    def exhaust(self) -> Permit:
        permit = self.direct.try_acquire(LIMIT)
        assert permit is not None
        return permit

    def deliver(self, data: bytes) -> None:
        """Let the broker's bytes arrive as one read."""
        place = self.relay.broker.get_buffer(-1)
        assert len(data) <= len(place)
        place[: len(data)] = data
        self.relay.broker.buffer_updated(len(data))

    def deliver_all(self, data: bytes, read_bytes: int = 64 * KIB) -> None:
        for start in range(0, len(data), read_bytes):
            assert not self.paused()
            self.deliver(data[start : start + read_bytes])

    def say(self, stream: bytes) -> list[int]:
        """Let the broker's bytes arrive as they are read; give the sizes of the reads."""
        sizes: list[int] = []
        while stream:
            piece = stream[: len(self.relay.broker.get_buffer(-1))]
            self.deliver(piece)
            sizes.append(len(piece))
            stream = stream[len(piece) :]
        return sizes

    def paused(self) -> bool:
        return not self.relay.broker.reading

    @property
    def received(self) -> bytes:
        return bytes(self.client.peer_bytes)

    @property
    def overshoots(self) -> dict[str, int]:
        return {why: count for why, count in self.watch.overshoots.items() if count}


@asynccontextmanager
async def walked(
    room: int = 1 << 40,
    max_queue: int = 100,
    unsent: bytes = b"",
    **settings: Any,
) -> AsyncIterator[Setting]:
    """Start a relay; `unsent` was written to the client before, by another protocol."""
    loop = asyncio.get_running_loop()
    direct = AsyncSemaphore("direct", LIMIT, max_queue=max_queue, timeout_seconds=60, clock=loop)
    limits = WatchLimits(
        direct,
        Counters(DisconnectCause).relay,
        **{
            "window_bytes": WINDOW,
            "enabled": True,
            "max_pause_seconds": PAUSE_SECONDS,
            "longest_hold_seconds": HOLD_SECONDS,
        }
        | settings,
    )
    ended: list[DisconnectCause] = []
    async with hangup_watcher() as watcher:
        relay = WatchedRelay(
            loop,
            SharedReadBuffer(WINDOW),
            watcher,
            LoopBudget(loop, loop.time),
            limits.counters,
            75.0,
            lambda _, cause: ended.append(cause),
            watch=limits,
            key="me",
        )
        client, broker = MemoryTransport(loop, room), MemoryTransport(loop)
        if unsent:
            client.connect(asyncio.Protocol())
            client.write(unsent)
        relay.start(client, broker, b"", b"")
        setting = Setting(relay, limits, client)
        setting.ended = ended
        yield setting
        relay.abort(DisconnectCause.SHUTDOWN)
        await asyncio.sleep(1)
        assert (direct.held, limits.held_bytes, direct.queue_size, len(watcher)) == (0, 0, 0, 0)
        assert not limits.counters.shared.internal_errors


Play = Callable[[Setting], Any]


def played(**settings: Any) -> Callable[[Play], Callable[[], None]]:
    """Run a test's coroutine in virtual time."""

    def wrap(play: Play) -> Callable[[], None]:
        async def main() -> None:
            async with walked(**settings) as setting:
                await play(setting)

        def test() -> None:
            run_virtual(main())

        return test

    return wrap
