"""Measure the frame walker alone and print JSON: nanoseconds a read, for frames and reads of the usual sizes.

`added` is what a relay pays for being walked: a read through the walked end of a relay less one through the raw end,
with a socket that takes everything at no cost. Every figure is the best of some rounds in one process, the machine
being shared. Run: `python -m benchmarks.bench_walker [--quick]`.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

from benchmarks.micro import options, print_figures
from limiter.semaphore import AsyncSemaphore
from protocol.scanner import FrameScanner
from proxy.app.metrics.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import SharedReadBuffer
from proxy.relay.relay import AsyncioRelay
from proxy.relay.watch_limits import WatchLimits
from proxy.relay.watch_relay import WatchedRelay

KIB = 1024
MESSAGE = b"\x08\x09"
# Shapes of what arrives: (bytes of a frame, bytes of a read).
SHAPES = ((KIB, KIB), (64 * KIB + 30, 64 * KIB), (KIB, 64 * KIB), (40, 64 * KIB), (5 * KIB * KIB, 64 * KIB))
STREAM_BYTES, QUICK_BYTES = 32 * KIB * KIB, 2 * KIB * KIB


class Sink(asyncio.Transport):
    """Take everything, at once."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"socket": self, "peername": ("127.0.0.1", 6650)}.get(name, default)

    def fileno(self) -> int:
        return -1

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write(self, data: object) -> None:
        pass


def frame(frame_bytes: int) -> bytes:
    command = MESSAGE + bytes(12)
    return (frame_bytes - 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + bytes(frame_bytes - 22)


def reads(frame_bytes: int, read_bytes: int, stream_bytes: int) -> list[memoryview]:
    data = memoryview(frame(frame_bytes) * max(1, stream_bytes // frame_bytes))
    return [data[start : start + read_bytes] for start in range(0, len(data), read_bytes)]


def walk_ns(pieces: list[memoryview]) -> float:
    scan = FrameScanner().scan
    start = time.perf_counter()
    for piece in pieces:
        scan(piece, len(piece))
    return (time.perf_counter() - start) / len(pieces) * 1e9


def relay_ns(pieces: list[memoryview], make: Callable[[SharedReadBuffer], AsyncioRelay]) -> float:
    shared = SharedReadBuffer()
    relay = make(shared)
    relay.start(Sink(), Sink(), b"", b"")
    updated, lend = relay.broker.buffer_updated, memoryview(bytearray(64 * KIB))
    shared.large = shared.bulk = lend
    spent = 0.0
    for piece in pieces:
        lend[: len(piece)] = piece
        start = time.perf_counter()
        updated(len(piece))
        spent += time.perf_counter() - start
    return spent / len(pieces) * 1e9


def relays() -> tuple[Callable[[SharedReadBuffer], AsyncioRelay], Callable[[SharedReadBuffer], AsyncioRelay]]:
    loop, counters = asyncio.get_running_loop(), Counters(DisconnectCause)
    limits = WatchLimits(
        AsyncSemaphore("direct", 1 << 30, max_queue=1, timeout_seconds=1, clock=loop),
        counters.relay,
        window_bytes=256 * KIB,
        enabled=True,
        max_pause_seconds=1,
        longest_hold_seconds=28,
    )
    nobody, turns = cast(HangupWatcher, None), LoopBudget(loop, time.perf_counter)

    def raw(shared: SharedReadBuffer) -> AsyncioRelay:
        return AsyncioRelay(loop, shared, nobody, turns, counters.relay, 75, lambda *_: None)

    def walked(shared: SharedReadBuffer) -> AsyncioRelay:
        key = "bench"
        return WatchedRelay(loop, shared, nobody, turns, counters.relay, 75, lambda *_: None, watch=limits, key=key)

    return raw, walked


async def measure_all(quick: bool) -> dict[str, dict[str, int]]:
    rounds, figures = (2 if quick else 9), {}
    raw, walked = relays()
    for frame_bytes, read_bytes in SHAPES:
        pieces = reads(frame_bytes, read_bytes, QUICK_BYTES if quick else STREAM_BYTES)
        alone = min(walk_ns(pieces) for _ in range(rounds))
        unwalked = min(relay_ns(pieces, raw) for _ in range(rounds))
        added = min(relay_ns(pieces, walked) for _ in range(rounds)) - unwalked
        figures[f"frames of {frame_bytes} in reads of {read_bytes}"] = {
            "walker_ns": round(alone),
            "relay_ns": round(unwalked),
            "added_ns": round(added),
        }
    return figures


def main() -> None:
    figures = asyncio.run(measure_all(options(__doc__).parse_args().quick))
    print_figures(figures)


if __name__ == "__main__":
    main()
