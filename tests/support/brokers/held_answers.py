"""Measure, in a process of its own, what topic-list answers of a given name length cost while they are held.

Run as `python -m tests.support.brokers.held_answers NAME_BYTES ANSWERS`; prints JSON with the growth of VmRSS, the
growth of the peak (VmHWM), and the sum of the permits. The bytes fed are made chunk by chunk, so that only the answers
count.
"""

import gc
import json
import sys
from pathlib import Path

from protocol.frames import HEAD_BYTES, answer_prefix, read_head
from protocol.framing import FrameAnnounced, FrameDecoder
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SlabPool
from protocol.topic_list import TopicListAnswer, heap_size

ANSWER_BYTES = 1024 * 1024
READ_BYTES = 4096
LIST = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE


def memory(field: str) -> int:
    """Read one size of this process, bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"expected {field} in /proc/self/status")


def hold_one(pool: SlabPool, name_bytes: int) -> tuple[TopicListAnswer, int]:
    """Receive one answer as a broker connection does and give it with its permit."""
    field = pb.CommandGetTopicsOfNamespaceResponse(topics=["t" * name_bytes]).SerializePartialToString()
    count = ANSWER_BYTES // len(field)
    first = answer_prefix(LIST, 7, count * len(field))
    assert read_head(first + field[: HEAD_BYTES - len(first)]).request_id == 7
    decoder = FrameDecoder(announce_above=16 * 1024)
    decoder.receive_data(first + (HEAD_BYTES // len(field) + 1) * field)
    event = decoder.next_event()
    assert isinstance(event, FrameAnnounced)
    answer = TopicListAnswer(event.head, pool)
    decoder.divert(answer)
    position = HEAD_BYTES // len(field) * len(field) + len(field)
    pattern = field * (READ_BYTES // len(field) + 2)
    while decoder.diverting:
        offset = position % len(field)
        place = decoder.writable()[:READ_BYTES]
        place[:] = pattern[offset : offset + len(place)]
        position += len(place)
        decoder.advance(len(place))
    assert answer.size == count * len(field)
    return answer, heap_size(event.head.rest_bytes)


def main() -> None:
    name_bytes, answers = int(sys.argv[1]), int(sys.argv[2])
    pool = SlabPool(spare=0)
    for _ in range(3):
        for _ in hold_one(pool, name_bytes)[0].consume():
            pass
    gc.collect()
    rss, peak = memory("VmRSS"), memory("VmHWM")
    held = [hold_one(pool, name_bytes) for _ in range(answers)]
    print(
        json.dumps(
            {
                "rss_growth": memory("VmRSS") - rss,
                "peak_growth": memory("VmHWM") - peak,
                "permits": sum(permit for _, permit in held),
            }
        )
    )


if __name__ == "__main__":
    main()
