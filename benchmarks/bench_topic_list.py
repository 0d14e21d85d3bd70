"""Measure the topic-list codec alone and print JSON: checking and counting an answer, encoding it again, and the
longest step of each.

A plain protobuf decode and encode of the same answer stands beside it. Every figure is the best of some rounds in
one process: the machine is shared, and only the best says what the code costs. Run:
`python -m benchmarks.bench_topic_list [--quick]`.
"""

import time
from collections.abc import Callable

from benchmarks.micro import options, print_figures
from protocol.frames import HEAD_BYTES, HEADER_BYTES, read_head
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SlabPool
from protocol.topic_list import TopicListAnswer

TOPICS = 10_000


def answer_frame(name_bytes: int, letter: str = "t") -> bytes:
    """Encode the answer of a namespace with 10,000 topics of `name_bytes` UTF-8 bytes each."""
    length = name_bytes - 6
    names = [f"{number:06}" + letter * (length // len(letter.encode())) for number in range(TOPICS)]
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
        start = time.perf_counter()
        place[:] = data[position : position + len(place)]
        answer.advance(len(place))
        longest = max(longest, time.perf_counter() - start)
        position += len(place)
    assert answer.scanner.topic_count == TOPICS
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


def seconds(work: Callable[[], None], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - start) / repeats


def measure(frame: bytes, rounds: int, repeats: int) -> dict[str, float]:
    pool = SlabPool()
    own = min(seconds(lambda: ours(frame, pool), repeats) for _ in range(rounds))
    protobuf = min(seconds(lambda: plain(frame), repeats) for _ in range(rounds))
    steps = []
    for _ in range(rounds):
        answer, longest = receive(frame, pool)
        for _ in answer.consume():
            pass
        steps.append(longest)
    return {
        "frame_bytes": len(frame),
        "receive_and_encode_us": round(own * 1e6, 1),
        "plain_protobuf_us": round(protobuf * 1e6, 1),
        "gb_per_second": round(len(frame) / own / 1e9, 2),
        "longest_step_us": round(min(steps) * 1e6, 1),
    }


def main() -> None:
    rounds, repeats = (2, 3) if options(__doc__).parse_args().quick else (7, 30)
    figures = {
        "10 bytes": measure(answer_frame(10), rounds, repeats),
        "100 bytes": measure(answer_frame(100), rounds, repeats),
        "500 bytes": measure(answer_frame(500), rounds, repeats),
        "100 bytes, not ASCII": measure(answer_frame(100, "é"), rounds, repeats),
        "100 bytes, full of topic tags": measure(answer_frame(100, "\x12"), rounds, repeats),
    }
    print_figures(figures)


if __name__ == "__main__":
    main()
