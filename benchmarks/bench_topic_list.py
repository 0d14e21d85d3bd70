"""Measure the topic-list codec alone and print JSON: checking and counting an answer, encoding it again, the longest
step of each, and what checking and counting cost a name, in Python and in the native extension, where that is here.

A plain protobuf decode and encode of the same answer stands beside it. Every figure is the processor time of the best
of some rounds in one process: the machine is shared, and only the best says what the code costs. Run:
`python -m benchmarks.bench_topic_list [--quick]`.
"""

import time
from collections.abc import Callable
from functools import partial

from benchmarks.micro import options, print_figures
from protocol.frames import HEAD_BYTES, HEADER_BYTES, read_head
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SlabPool
from protocol.topic_list import (
    CountingScanner,
    DelegatingScanner,
    NativeScannerClass,
    TopicListAnswer,
    TopicListScanner,
)
from proxy.core.native import native_class

TOPICS = 10_000


def answer_frame(name_bytes: int, letter: str = "t", first: str = "") -> bytes:
    """Encode the answer of a namespace with 10,000 topics of `name_bytes` UTF-8 bytes each; `first` begins each."""
    length = name_bytes - 6 - len(first.encode())
    names = [f"{first}{number:06}" + letter * (length // len(letter.encode())) for number in range(TOPICS)]
    answer = pb.CommandGetTopicsOfNamespaceResponse(request_id=7, topics=names)
    command = pb.BaseCommand(
        type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=answer
    ).SerializeToString()
    return (len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command


def receive(frame: bytes, pool: SlabPool) -> tuple[TopicListAnswer, float]:
    """Fill an answer slab by slab and give it with its longest step, seconds."""
    head = read_head(frame[:HEAD_BYTES])
    answer, data, position, longest = TopicListAnswer(head, pool), memoryview(frame), head.rest_offset, 0.0
    while len(place := answer.writable()):
        start = time.thread_time()
        place[:] = data[position : position + len(place)]
        answer.advance(len(place))
        longest = max(longest, time.thread_time() - start)
        position += len(place)
    return answer, longest


def ours(frame: bytes, pool: SlabPool) -> None:
    answer, _ = receive(frame, pool)
    answer.prefix(8)
    answer.slices()
    for _ in answer.consume():
        pass


def plain(frame: bytes) -> None:
    command = pb.BaseCommand.FromString(frame[HEADER_BYTES:])
    command.getTopicsOfNamespaceResponse.request_id = 8
    command.SerializeToString()


def scan(slabs: list[bytearray], kind: Callable[[int], TopicListScanner]) -> None:
    scanner = kind(sum(map(len, slabs)))
    for slab in slabs:
        scanner.feed(slab)
    assert not isinstance(scanner, CountingScanner) or scanner.topic_count == TOPICS


def seconds(work: Callable[[], None], repeats: int) -> float:
    start = time.thread_time()
    for _ in range(repeats):
        work()
    return (time.thread_time() - start) / repeats


def measure(frame: bytes, rounds: int, repeats: int) -> dict[str, float]:
    pool = SlabPool()
    own = min(seconds(lambda: ours(frame, pool), repeats) for _ in range(rounds))
    protobuf = min(seconds(lambda: plain(frame), repeats) for _ in range(rounds))
    answer, longest = receive(frame, pool)
    slabs = answer.hand_over()
    checked = min(seconds(lambda: scan(slabs, TopicListScanner), repeats) for _ in range(rounds))
    counted = min(seconds(lambda: scan(slabs, CountingScanner), repeats) for _ in range(rounds))
    for _ in range(rounds):
        answer, again = receive(frame, pool)
        longest = min(longest, again)
    native_scanner: NativeScannerClass | None = native_class("TopicListScanner")
    figures = {}
    if native_scanner is not None:
        kind = partial(DelegatingScanner, native=native_scanner)
        by_extension = min(seconds(lambda: scan(slabs, kind), repeats) for _ in range(rounds))
        figures["native_check_and_count_ns_a_name"] = round(by_extension / TOPICS * 1e9, 1)
    return figures | {
        "frame_bytes": len(frame),
        "receive_and_encode_us": round(own * 1e6, 1),
        "plain_protobuf_us": round(protobuf * 1e6, 1),
        "gb_per_second": round(len(frame) / own / 1e9, 2),
        "longest_step_us": round(longest * 1e6, 1),
        "check_ns_a_name": round(checked / TOPICS * 1e9, 1),
        "check_and_count_ns_a_name": round(counted / TOPICS * 1e9, 1),
    }


def main() -> None:
    rounds, repeats = (2, 3) if options(__doc__).parse_args().quick else (7, 30)
    frames = {f"{name_bytes} bytes": answer_frame(name_bytes) for name_bytes in (10, 20, 100, 127, 128, 512)} | {
        "100 bytes, one letter not ASCII": answer_frame(100, first="é"),
        "100 bytes, not ASCII": answer_frame(100, "é"),
        "100 bytes, full of topic tags": answer_frame(100, "\x12"),
    }
    print_figures({name: measure(frame, rounds, repeats) for name, frame in frames.items()})


if __name__ == "__main__":
    main()
