"""Measure the frame decoder alone and print JSON: small frames, and large bodies stored, diverted or skipped.

Every figure is the best of some rounds in one process: the machine is shared, and only the best says what the
code costs. Run: `python -m benchmarks.bench_framing [--quick]`.
"""

import time
from collections.abc import Callable

from benchmarks.micro import options, print_figures
from protocol.frames import Frame, answer_prefix
from protocol.framing import BodyEnd, FrameAnnounced, FrameDecoder, Signal
from protocol.slabs import SlabBody, SlabPool

READ_BYTES = 4096
BODY_BYTES = 1024 * 1024
GET_TOPICS_OF_NAMESPACE_RESPONSE = 33
LARGE_FRAME = answer_prefix(GET_TOPICS_OF_NAMESPACE_RESPONSE, 7, BODY_BYTES) + bytes(BODY_BYTES)


def small_frame(frame_bytes: int) -> bytes:
    command = b"\x08\x12" + bytes(frame_bytes - 10)
    return (len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command


def small_frame_seconds(frame_bytes: int, frames: int) -> float:
    """Decode frames that arrive in reads of 4 KiB; gives seconds a frame."""
    data = memoryview(small_frame(frame_bytes) * frames)
    decoder, count = FrameDecoder(), 0
    start = time.perf_counter()
    for position in range(0, len(data), READ_BYTES):
        decoder.receive_data(data[position : position + READ_BYTES])
        while isinstance(decoder.next_event(), Frame):
            count += 1
    seconds = time.perf_counter() - start
    assert count == frames, f"expected {frames} frames, got {count}"
    return seconds / frames


def decide(decoder: FrameDecoder, event: FrameAnnounced, how: str, pool: SlabPool) -> SlabBody | None:
    if how == "store":
        decoder.store()
    elif how == "skip":
        decoder.skip()
    else:
        body = SlabBody(event.head.rest_bytes, pool)
        decoder.divert(body)
        return body
    return None


def large_frame_seconds(how: str, frames: int) -> float:
    """Receive frames of 1 MiB; `read into` fills the sink as a socket does. Gives seconds a frame."""
    decoder, pool, data = FrameDecoder(announce_above=16 * 1024), SlabPool(), memoryview(LARGE_FRAME)
    start = time.perf_counter()
    for _ in range(frames):
        position, body, ended = 0, None, False
        while not ended:
            if how == "read into" and decoder.diverting:
                place = decoder.writable()
                place[:] = data[position : position + len(place)]
                position += len(place)
                decoder.advance(len(place))
            else:
                decoder.receive_data(data[position : position + READ_BYTES])
                position += READ_BYTES
            while not isinstance(event := decoder.next_event(), Signal):
                if isinstance(event, FrameAnnounced):
                    body = decide(decoder, event, how, pool)
                ended = isinstance(event, Frame | BodyEnd)
        if body is not None:
            for _ in body.consume():
                pass
    return (time.perf_counter() - start) / frames


def best(measure: Callable[[], float], rounds: int) -> float:
    return min(measure() for _ in range(rounds))


def measure_all(quick: bool) -> dict[str, object]:
    rounds, frames, large = (2, 2_000, 5) if quick else (7, 50_000, 50)
    return {
        "small_frame_ns": {
            size: round(best(lambda size=size: small_frame_seconds(size, frames), rounds) * 1e9)  # type: ignore[misc]
            for size in (64, 512)
        },
        "large_frame_gb_per_second": {
            how: round(len(LARGE_FRAME) / best(lambda how=how: large_frame_seconds(how, large), rounds) / 1e9, 2)  # type: ignore[misc]
            for how in ("store", "divert", "read into", "skip")
        },
    }


def main() -> None:
    print_figures(measure_all(options(__doc__).parse_args().quick))


if __name__ == "__main__":
    main()
