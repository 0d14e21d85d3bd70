"""Measure the counting of what clients send and print JSON: nanoseconds a SEND, in reads of the usual sizes.

`python_ns` and `native_ns` are a client's meter alone, its scan and the books; `limited` with a limit that never runs
dry. Processor time, and the best of some rounds in one process, the machine being shared.
Run: `python -m benchmarks.bench_producers [--quick]`.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.micro import options, print_figures
from proxy.core.native import native
from proxy.relay.rates.client_meter import ClientMeter
from proxy.relay.rates.slot_books import SlotBooks
from proxy.relay.topic_slots import TopicSlots

KIB = 1024
# Shapes of what arrives: (bytes of a frame, bytes of a read, messages to a SEND).
SHAPES = ((KIB, KIB, 1), (KIB, KIB, 10), (KIB, 64 * KIB, 1), (64 * KIB + 30, 64 * KIB, 1), (64, 64 * KIB, 1))
STREAM_BYTES, QUICK_BYTES = 16 * KIB * KIB, KIB * KIB
NEVER_DRY = 1e15
PRODUCER = b"\x08\x05\x2a\x07\x0a\x01t\x10\x01\x18\x01"
Scan = Callable[[bytes], object]


class _Nobody:
    network = None

    def look_at_rate(self) -> None:
        """Called when a rate changes: nobody waits here."""


def framed(command: bytes, frame_bytes: int) -> bytes:
    """Return a frame of a command, with zeros behind."""
    head = (frame_bytes - 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command
    return head + bytes(frame_bytes - len(head))


def send(sequence: int, messages: int, frame_bytes: int) -> bytes:
    """Return a SEND whose sequence has three bytes, as most have."""
    part = b"\x08\x01\x10" + bytes([sequence & 0x7F | 0x80, sequence >> 7 & 0x7F | 0x80, 1])
    part += bytes([0x18, messages]) if messages > 1 else b""
    return framed(b"\x08\x06\x32" + bytes([len(part)]) + part, frame_bytes)


class Meter(NamedTuple):
    """A meter of either language whose producer 1 has the slot 1, and the books of that slot."""

    scan: Scan
    books: SlotBooks


def python_meter() -> Meter:
    """Return the meter of the event loop."""
    slots = TopicSlots(time.monotonic, lambda call: call())
    meter = ClientMeter(slots, _Nobody())
    frame = framed(PRODUCER, 8 + len(PRODUCER))
    meter.scan(memoryview(frame), len(frame), 0.0)
    return Meter(lambda data: meter.scan(memoryview(data), len(data), 0.0), slots.books)


def native_meter() -> Meter | None:
    """Return the meter of the engine's threads, if the extension is here."""
    module = native().module
    if module is None:
        return None
    books = module.SlotBooks()
    meter = module.ClientMeter(books)
    frame = framed(PRODUCER, 8 + len(PRODUCER))
    meter.assign(1, frame[meter.scan(frame) :])
    return Meter(meter.scan, books)


def send_ns(meter: Meter, pieces: list[bytes], messages: int, sends: int) -> float:
    """Return the processor time of a SEND; raises RuntimeError if not all messages are in the books of the slot."""
    start = time.process_time()
    for piece in pieces:
        meter.scan(piece)
    spent = time.process_time() - start
    counted = meter.books.take(1)[1]
    if counted != messages:
        raise RuntimeError(f"got {counted} messages in the books, expected {messages}")
    return spent / sends * 1e9


def best(
    make: Callable[[], Meter | None], limited: bool, pieces: list[bytes], messages: int, sends: int, rounds: int
) -> int:
    """Return the best of some rounds; -1 without the extension."""
    found = []
    for _ in range(rounds):
        meter = make()
        if meter is None:
            return -1
        if limited:
            meter.books.set_rate(1, NEVER_DRY, NEVER_DRY, 0.0)
        found.append(send_ns(meter, pieces, messages, sends))
    return round(min(found))


def measure_all(quick: bool) -> dict[str, dict[str, int]]:
    """Return the figures of all shapes."""
    rounds, figures = (1 if quick else 9), {}
    for frame_bytes, read_bytes, messages in SHAPES:
        sends = (QUICK_BYTES if quick else STREAM_BYTES) // frame_bytes
        data = b"".join(send(number, messages, frame_bytes) for number in range(sends))
        pieces = [data[start : start + read_bytes] for start in range(0, len(data), read_bytes)]
        figures[f"frames of {frame_bytes} with {messages} messages in reads of {read_bytes}"] = {
            "python_ns": best(python_meter, False, pieces, sends * messages, sends, rounds),
            "python_limited_ns": best(python_meter, True, pieces, sends * messages, sends, rounds),
            "native_ns": best(native_meter, False, pieces, sends * messages, sends, rounds),
            "native_limited_ns": best(native_meter, True, pieces, sends * messages, sends, rounds),
        }
    return figures


def main() -> None:
    """Measure, and print the figures."""
    print_figures(measure_all(options(__doc__).parse_args().quick))


if __name__ == "__main__":
    main()
