import pytest

from protocol.errors import FrameTooLarge, LocalProtocolError, MalformedFrame
from protocol.frames import HEAD_BYTES, Frame
from protocol.framing import NEED_DATA, PAUSED, BodyEnd, FrameAnnounced, FrameDecoder
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.sockets.frames import RecordingSink, drain, framed, list_frame, ping, send

LIST = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
TOPICS = [f"persistent://public/default/topic-{n}" for n in range(3000)]


def announcing(above: int = 1000) -> FrameDecoder:
    return FrameDecoder(announce_above=above)


def announced(decoder: FrameDecoder, first_bytes: bytes) -> FrameAnnounced:
    decoder.receive_data(first_bytes)
    event = decoder.next_event()
    assert isinstance(event, FrameAnnounced)
    return event


class TestSmallFrames:
    def test_whether_a_frame_is_next_is_known_without_taking_it(self) -> None:
        decoder, taken = announcing(above=100), 0
        for byte in ping() + list_frame(1, ["a"]) + list_frame(2, TOPICS[:10]) + ping():
            decoder.receive_data(bytes((byte,)))
            expected = decoder.frame_is_next
            event = decoder.next_event()
            assert isinstance(event, (Frame, FrameAnnounced)) is expected
            taken += expected
            if isinstance(event, FrameAnnounced):
                assert not decoder.frame_is_next
                decoder.store()
        assert taken == 5

    def test_bytes_behind_a_frame_stay_for_the_next_owner(self) -> None:
        decoder = FrameDecoder()
        decoder.receive_data(ping() + b"\0\0\0")
        drain(decoder)
        assert decoder.take_rest() == b"\0\0\0"
        assert decoder.stored_bytes == 0

    def test_a_buffer_that_is_reused_does_not_change_what_was_received(self) -> None:
        decoder, buffer = FrameDecoder(), bytearray(send(b"payload"))
        decoder.receive_data(memoryview(buffer)[:-1])
        last = bytes(buffer[-1:])
        buffer[:] = bytes(len(buffer))
        decoder.receive_data(last)
        frame = decoder.next_event()
        assert isinstance(frame, Frame)
        assert frame.payload == b"payload"


class TestAnnouncement:
    def test_type_size_and_request_id_are_known_from_the_head_alone(self) -> None:
        frame = list_frame(77, TOPICS)
        event = announced(announcing(), frame[:HEAD_BYTES])
        assert (event.head.command_type, event.head.request_id, event.head.frame_bytes) == (LIST, 77, len(frame))

    def test_an_announced_type_is_announced_however_small(self) -> None:
        decoder = FrameDecoder(announce_types=frozenset({LIST}))
        event = announced(decoder, list_frame(1, ["a"]))
        assert event.head.rest_bytes == 3

    def test_decoder_is_paused_until_the_reader_decides(self) -> None:
        decoder, frame = announcing(), list_frame(77, TOPICS)
        announced(decoder, frame[:HEAD_BYTES])
        for data in (b"", frame[HEAD_BYTES:100]):
            decoder.receive_data(data)
            assert decoder.paused
            assert decoder.next_event() is PAUSED
        decoder.store()
        assert decoder.next_event() is NEED_DATA

    @pytest.mark.parametrize("decide", ["store", "skip"])
    def test_a_decision_nobody_asked_for_is_our_own_mistake(self, decide: str) -> None:
        with pytest.raises(LocalProtocolError, match="no announced frame"):
            getattr(FrameDecoder(), decide)()

    def test_a_second_decision_is_our_own_mistake(self) -> None:
        decoder = announcing()
        announced(decoder, list_frame(77, TOPICS)[:HEAD_BYTES])
        decoder.store()
        with pytest.raises(LocalProtocolError):
            decoder.divert(RecordingSink(1))


class TestSkip:
    def test_ten_megabytes_pass_without_being_stored(self) -> None:
        decoder, chunk = announcing(), bytes(64 * 1024)
        frame_bytes = 160 * len(chunk)
        first = frame_bytes.to_bytes(4, "big") + (frame_bytes - 4).to_bytes(4, "big") + b"\x08\x21" + bytes(30)
        announced(decoder, first)
        decoder.skip()
        left = frame_bytes + 4 - len(first)
        while left:
            count = min(left, len(chunk))
            decoder.receive_data(memoryview(chunk)[:count])
            assert decoder.stored_bytes == 0
            left -= count
        (end,) = drain(decoder)
        assert isinstance(end, BodyEnd)
        assert end.skipped

    def test_a_diverted_body_may_be_skipped_half_way(self) -> None:
        decoder, frame = announcing(), list_frame(77, TOPICS)
        head = announced(decoder, frame[:HEAD_BYTES]).head
        sink = RecordingSink(head.rest_bytes)
        decoder.divert(sink)
        decoder.receive_data(frame[HEAD_BYTES:5000])
        had = len(sink.body)
        decoder.skip()
        assert not decoder.diverting
        decoder.receive_data(frame[5000:] + ping())
        end, following = drain(decoder)
        assert isinstance(end, BodyEnd)
        assert end.skipped
        assert isinstance(following, Frame)
        assert len(sink.body) == had


class TestDivert:
    def test_the_place_never_reaches_into_the_next_frame(self) -> None:
        decoder, frame = announcing(), list_frame(77, TOPICS)
        announced(decoder, frame[:-10])
        decoder.divert(RecordingSink(1 << 30, step=1 << 20))
        assert len(decoder.writable()) == 10

    def test_an_answer_without_a_body_ends_at_once(self) -> None:
        decoder = FrameDecoder(announce_types=frozenset({LIST}))
        announced(decoder, list_frame(77, []))
        decoder.divert(RecordingSink(0))
        (end,) = drain(decoder)
        assert isinstance(end, BodyEnd)

    def test_a_frame_whose_request_id_stands_elsewhere_cannot_be_diverted(self) -> None:
        decoder = announcing()
        announced(decoder, framed(b"\x08\x21\x8a\x02\xd0\x0f" + b"\x12\xcd\x0f" + b"x" * 1997)[:HEAD_BYTES])
        with pytest.raises(LocalProtocolError, match="without a leading request id"):
            decoder.divert(RecordingSink(1))
        assert decoder.paused

    def test_what_the_sink_refuses_reaches_the_reader(self) -> None:
        class Refusing(RecordingSink):
            def advance(self, count: int) -> None:
                raise MalformedFrame("no topic list")

        decoder, frame = announcing(), list_frame(77, TOPICS)
        announced(decoder, frame[:HEAD_BYTES])
        with pytest.raises(MalformedFrame, match="no topic list"):
            decoder.divert(Refusing(1000))


class TestCaps:
    def test_a_frame_above_the_cap_is_refused_by_its_first_four_bytes(self) -> None:
        decoder = FrameDecoder(max_frame_bytes=1000)
        decoder.receive_data((997).to_bytes(4, "big"))
        with pytest.raises(FrameTooLarge, match="got a frame of 1001 bytes, at most 1000"):
            decoder.next_event()

    def test_the_cap_may_be_raised_between_two_frames(self) -> None:
        decoder = FrameDecoder(max_frame_bytes=100)
        decoder.receive_data(ping() + send(b"x" * 500))
        assert isinstance(decoder.next_event(), Frame)
        decoder.max_frame_bytes = 1000
        assert isinstance(decoder.next_event(), Frame)

    def test_a_length_of_two_gib_is_refused_without_a_cap_too(self) -> None:
        decoder = FrameDecoder()
        decoder.receive_data(b"\x80\0\0\0\0\0\0\x02\x08\x01")
        with pytest.raises(FrameTooLarge):
            decoder.next_event()
