"""Measure what an event of the event log costs and print JSON: microseconds of the processor for each topic list.

On the event loop: noting the stages of a request, making its event, encoding it into the buffer. In the thread of a
sink: lines, gzip members and the file. Every figure is the processor time of the best of some rounds in one process:
the machine is shared, and only the best says what the code costs. Run:
`python -m benchmarks.bench_event_log [--quick]`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import orjson

from benchmarks.micro import options, print_figures
from eventlog.buffer import EventBuffer, Stamp, Tee
from eventlog.drain import Drain
from eventlog.files import FileSettings, FileStore
from limiter.dual import AsyncDualMemoryLimiter
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.fairness_key import FairnessKeys
from proxy.requests.topic_lists.broker_queues import TopicListLimits
from proxy.telemetry.events.identities import EventIdentities, key_of
from proxy.telemetry.events.log import gzip_member
from proxy.telemetry.events.recorder import Recorder
from proxy.telemetry.events.timeline import TimelineStage

MIB: Final = 1024 * 1024


@dataclass(slots=True)
class Asker:
    """A client whose requests are recorded."""

    principal: Any
    name: str
    client_version: str | None = "Pulsar-Java-v4.2.4"
    cause: Any = None


def recorder(sink: Any) -> Recorder:
    """Return a recorder of a proxy with the default limits."""
    clock: Any = SimpleNamespace(time=time.monotonic)
    limiter = AsyncDualMemoryLimiter.create(
        heap_limit_bytes=100 * MIB, heap_max_queue=10_000, heap_timeout_seconds=25.0, direct_limit_bytes=100 * MIB,
        direct_max_queue=10_000, direct_timeout_seconds=25.0, clock=clock,
    )  # fmt: skip
    limits = TopicListLimits(28.0, 0, 64, coalescing=True, share_by_key=False, key_cap_percent=100)
    questions: Any = SimpleNamespace(limits=limits, heap_queue_size=0)

    def crashed(error: BaseException) -> None:
        raise error

    return Recorder(
        sink, EventIdentities(key_of("salt")), limiter, questions, FairnessKeys("fifo"), crashed,
        later=lambda seconds, call: None,
    )  # fmt: skip


def life(made: Recorder, client: Asker, request: pb.CommandGetTopicsOfNamespace, question: bytes) -> None:
    """Record a request from its arrival to its answer, as the service does."""
    record: Any = made.request(client)
    record.asks(request)
    line: Any = record.new_timeline("broker-1.example:6650", question, request)
    record.joined(line)
    line.enter(TimelineStage.HEAP)
    line.estimated(64 * 1024)
    line.heap_held(64 * 1024)
    line.enter(TimelineStage.BROKER)
    line.asked("broker-1.example:6650")
    line.enter(TimelineStage.UPSTREAM)
    line.response_begun(64 * 1024, 64 * 1024, admitted=True)
    line.decoded(1000, 60_000, filtered=False, changed=True)
    line.enter(TimelineStage.READER)
    line.asks_direct(61_000, 7)
    line.enter(TimelineStage.DIRECT)
    line.direct_held(61_000)
    line.heap_over()
    line.work_over()
    record.sent(7, 60_990)
    record.answered()
    line.direct_over()


class _Nowhere:
    """A sink that keeps the last event."""

    last: dict[str, object]

    def put(self, event: Any) -> None:
        """Keep the event."""
        self.last = event


def cost(count: int, work: Callable[[], None], rounds: int) -> float:
    """Return the microseconds of the processor that each of `count` events takes, of the best round."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best / count * 1e6


def main() -> None:
    """Measure and print."""
    quick = options(__doc__).parse_args().quick
    count, rounds = (500, 2) if quick else (20_000, 7)
    clients = [Asker(f"role-{number % 50}", f"10.0.{number // 250}.{number % 250}:40000") for number in range(2000)]
    requests = [
        pb.CommandGetTopicsOfNamespace(request_id=7, namespace=f"tenant-{number % 40}/orders-{number % 600}")
        for number in range(2000)
    ]
    questions = [request.SerializeToString() for request in requests]
    nowhere = _Nowhere()
    bare = recorder(nowhere)

    def recorded(made: Recorder) -> None:
        for number in range(count):
            asks = number % 2000
            life(made, clients[asks], requests[asks], questions[asks])
        made.make_events()

    with tempfile.TemporaryDirectory(prefix="bench-event-log-") as place:
        buffer = EventBuffer(1 << 40)

        def failed(error: Exception) -> None:
            raise error

        full = recorder(Tee([buffer], orjson.dumps, failed))
        settings = FileSettings(Path(place), "proxy-1", "0123456789abcdef", 64 * MIB, 3600.0, 0)
        notes: list[str] = []
        store = FileStore(settings, notes.append, gzip_member)
        drain = Drain(
            buffer, Stamp("proxy-1", "0123456789abcdef", orjson.dumps, "east"), store,
            1.0,
            notes.append, lambda: None,
        )  # fmt: skip
        noted = cost(count, lambda: recorded(bare), rounds)
        on_loop = cost(count, lambda: recorded(full), rounds)
        drain.step(0.0)
        for _ in range(3):
            recorded(full)
        written = cost(3 * count, lambda: _all(drain), 1)
        for _ in range(rounds - 1):
            for _ in range(3):
                recorded(full)
            written = min(written, cost(3 * count, lambda: _all(drain), 1))
        drain.finish(0.0)
        size = sum(path.stat().st_size for path in Path(place).glob("*.gz")) / drain.counts.written
    print_figures(
        {
            "events": count,
            "loop_us_per_event": round(on_loop, 2),
            "of_which_encoding_us": round(on_loop - noted, 2),
            "sink_us_per_event": round(written, 2),
            "whole_us_per_event": round(on_loop + written, 2),
            "compressed_bytes_per_event": round(size, 1),
        }
    )


def _all(drain: Drain) -> None:
    drain.step(1e9)


if __name__ == "__main__":
    main()
