from hypothesis import example, given
from hypothesis import strategies as st

from protocol.frames import HEAD_BYTES, read_head
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SlabPool
from protocol.topic_list import CountingScanner, DelegatingScanner, TopicListAnswer, TopicListScanner
from tests.support.native import found_by, native_class
from tests.support.sockets.frames import list_frame, pieces_of

# Lengths around those at which a length byte is added or a name becomes too long to be kept across chunks.
edges = st.sampled_from([0, 1, 17, 18, 127, 128, 4094, 4096, 4100, 16_383, 16_384, 66_000])
names = st.one_of(
    st.text(max_size=40),
    st.text(st.sampled_from("\x12\x01a"), max_size=40),
    st.builds(lambda letter, length: letter * length, st.sampled_from("a\x12é"), edges),
)
topic_lists = st.lists(names, max_size=30)
maybe = st.none() | st.booleans()
hashes = st.none() | st.text(max_size=130)
chunks = st.lists(st.integers(1, 9000), max_size=40)
request_ids = st.integers(0, 2**64 - 1)


def fed(data: bytes, sizes: list[int]) -> CountingScanner:
    """Count the names of a list; a scanner that does not count must find the same flags."""
    counted, light = CountingScanner(len(data)), TopicListScanner(len(data))
    for piece in pieces_of(data, sizes):
        counted.feed(bytearray(piece))
        light.feed(bytearray(piece))
    assert (light.filtered, light.changed, light.topics_hash) == (
        counted.filtered,
        counted.changed,
        counted.topics_hash,
    )
    if (native := native_class()) is not None:
        other = DelegatingScanner(len(data), native)
        for piece in pieces_of(data, sizes):
            other.feed(bytearray(piece))
        assert found_by(other) == found_by(counted)
    return counted


@given(topic_lists, maybe, maybe, hashes, chunks)
@example(["a" * 4096, "b"], None, None, None, [2, 1, 1])
def test_scanning_equals_a_plain_decode(
    topics: list[str], filtered: bool | None, changed: bool | None, digits: str | None, sizes: list[int]
) -> None:
    plain = pb.CommandGetTopicsOfNamespaceResponse(
        topics=topics, filtered=filtered, changed=changed, topics_hash=digits
    )
    scanner = fed(plain.SerializePartialToString(), sizes)
    assert scanner.topic_count == len(plain.topics)
    assert scanner.name_bytes == sum(len(name.encode()) for name in plain.topics)
    assert (scanner.filtered, scanner.changed) == (plain.filtered, plain.changed)
    if len(plain.topics_hash.encode()) < 4000:  # a longer one is no hash, and passed over
        assert scanner.topics_hash == plain.topics_hash


@given(topic_lists, maybe, hashes, request_ids, request_ids)
def test_encoding_again_equals_what_protobuf_encodes(
    topics: list[str], changed: bool | None, digits: str | None, asked: int, answered: int
) -> None:
    frame = list_frame(asked, topics, None, changed, digits)
    head = read_head(frame[:HEAD_BYTES])
    answer = TopicListAnswer(head, SlabPool())
    position = head.rest_offset
    while len(place := answer.writable()):
        place[:] = frame[position : position + len(place)]
        position += len(place)
        answer.advance(len(place))
    again = answer.prefix(answered) + b"".join(answer.slices())
    assert again == list_frame(answered, topics, None, changed, digits)
    assert len(again) == answer.encoded_size(answered)
