from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from protocol.frames import Frame
from protocol.framing import NEED_DATA, BodyEnd, FrameAnnounced, FrameDecoder
from tests.support.sockets.frames import RecordingSink, list_frame, pieces_of, ping, send

frames = st.lists(
    st.one_of(
        st.just(ping()),
        st.binary(max_size=400).map(send),
        st.lists(st.text(max_size=30), max_size=12).map(lambda topics: list_frame(300, topics)),
    ),
    max_size=6,
)
cuts = st.lists(st.integers(1, 90), max_size=60)
decisions = st.lists(st.sampled_from(["store", "skip", "divert", "divert then skip"]), min_size=6, max_size=6)


class Reader:
    """Decide about announced frames in a fixed order, and write down all that happens."""

    def __init__(self, decisions: Sequence[str]) -> None:
        self.decoder = FrameDecoder(announce_above=60)
        self.seen: list[object] = []
        self._decisions = iter(decisions)
        self._sink = RecordingSink(0)
        self._gives_up = False

    def receive(self, data: bytes) -> None:
        self.decoder.receive_data(data)
        while not isinstance(event := self.decoder.next_event(), type(NEED_DATA)):
            if isinstance(event, FrameAnnounced):
                self.seen.append(event.head)
                self._decide(event)
            elif isinstance(event, BodyEnd):
                self.seen.append((event, b"" if event.skipped else bytes(self._sink.body)))
            elif isinstance(event, Frame):
                self.seen.append(event)

    def _decide(self, event: FrameAnnounced) -> None:
        decision = next(self._decisions)
        if decision == "store":
            self.decoder.store()
        elif decision == "skip":
            self.decoder.skip()
        else:
            self._sink = RecordingSink(event.head.rest_bytes)
            self.decoder.divert(self._sink)
            if decision == "divert then skip":
                self.decoder.skip()


@given(frames, cuts, decisions)
def test_any_split_gives_the_same_events_as_the_whole(
    stream: list[bytes], sizes: list[int], choices: list[str]
) -> None:
    data = b"".join(stream)
    whole, split = Reader(choices), Reader(choices)
    whole.receive(data)
    for piece in pieces_of(data, sizes):
        split.receive(piece)
    assert split.seen == whole.seen
    assert split.decoder.stored_bytes == whole.decoder.stored_bytes == 0


@given(frames, cuts)
def test_nothing_is_lost_and_nothing_is_invented(stream: list[bytes], sizes: list[int]) -> None:
    decoder, got = FrameDecoder(), b""
    for piece in pieces_of(b"".join(stream), sizes):
        decoder.receive_data(piece)
        while isinstance(event := decoder.next_event(), Frame):
            got += (event.head.frame_bytes - 4).to_bytes(4, "big") + len(event.command).to_bytes(4, "big")
            got += event.command + event.payload
    assert got == b"".join(stream)
