"""Measure what small frames of one client cost and print JSON: PONG, PING, refused commands, frames a second.

A client connection in memory gets reads of 4 KiB full of one kind of frame, and its answers go nowhere; the rests
between its turns are left out. Every figure is the best of some rounds in one process, the machine being shared. Run:
`python -m benchmarks.bench_keep_alives [--quick]`.
"""

import asyncio
import time

from benchmarks.micro import options, print_figures
from protocol import commands
from protocol.commands import PING_FRAME, PONG_FRAME
from protocol.pb import PulsarApi_pb2 as pb
from proxy.net.transport import SMALL_READ_BYTES
from tests.support.clients.list_clients import turns
from tests.support.proxies.client_desk import Visitor, desk

READS, QUICK_READS = 2_000, 50
_FLOW = pb.BaseCommand(type=pb.BaseCommand.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=1000))
_SEEK = pb.BaseCommand(type=pb.BaseCommand.SEEK, seek=pb.CommandSeek(consumer_id=1, request_id=7))
FRAMES = {
    "pong": PONG_FRAME,
    "ping": PING_FRAME,
    "ping_without_content": b"\0\0\0\x06\0\0\0\x02\x08\x12",
    "refused_flow": commands.frame(_FLOW),
    "refused_seek": commands.frame(_SEEK),
}


async def seconds_a_frame(visitor: Visitor, frame: bytes, reads: int) -> float:
    count = SMALL_READ_BYTES // len(frame)
    data, spent = frame * count, 0.0
    counted = visitor.session.received_bytes
    for _ in range(reads):
        start = time.perf_counter()
        visitor.arrives(data)
        spent += time.perf_counter() - start
        while visitor.session.holds:
            start = time.perf_counter()
            await turns(1)
            spent += time.perf_counter() - start
        visitor.socket.peer_bytes.clear()
        visitor.socket.events.clear()
    assert visitor.session.received_bytes - counted == reads * len(data)
    return spent / (reads * count)


async def measure_all(quick: bool) -> dict[str, dict[str, int]]:
    reads, rounds = (QUICK_READS, 1) if quick else (READS, 5)
    figures: dict[str, dict[str, int]] = {}
    async with desk(unanswered_per_second=0) as on:
        for name, frame in FRAMES.items():
            visitor = on.visitor()
            best = min([await seconds_a_frame(visitor, frame, reads) for _ in range(rounds)])
            figures[name] = {"ns_a_frame": round(best * 1e9), "frames_per_second": round(1 / best)}
    return figures


def main() -> None:
    print_figures(asyncio.run(measure_all(options(__doc__).parse_args().quick)))


if __name__ == "__main__":
    main()
