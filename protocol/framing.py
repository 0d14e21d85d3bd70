"""Cut a byte stream into frames, and let the reader decide about a large frame before its body is there.

Sans-IO. Small frames are returned whole. A frame above `announce_above` bytes, or of an announced type, is *announced*
as soon as its head is known; until the reader calls `store()`, `divert()` or `skip()` the decoder returns PAUSED and
keeps the few bytes that follow. A diverted body goes straight into the reader's sink, through `writable()`/`advance()`,
without a copy; a skipped body is counted and never stored (PIP-442: a permit must cover an answer before it is in
memory).
"""

import re
from enum import Enum
from typing import Final, NamedTuple

from protocol.command_type import CommandType
from protocol.errors import FrameTooLarge, LocalProtocolError
from protocol.frames import (
    HEAD_BYTES,
    HEADER_BYTES,
    LARGEST_FRAME,
    SIZE_BYTES,
    Frame,
    FrameHead,
    bare_frame,
    read_head,
)
from protocol.slabs import SlabBody

_PING: Final = bare_frame(CommandType.PING)
_PONG: Final = bare_frame(CommandType.PONG)
_FIRST_SIZE_BYTE: Final = 3
_PING_SIZE: Final = len(_PING) - SIZE_BYTES
# No PING stands across two frames of such a run: its first bytes are nowhere but at the beginning of a frame.
_match_keep_alives: Final = re.compile(b"(?:%b|%b)+" % (re.escape(_PING), re.escape(_PONG))).match


class Signal(Enum):
    """The reason why `next_event()` returns no event."""

    NEED_DATA = "need data"
    PAUSED = "paused"


NEED_DATA: Final = Signal.NEED_DATA
PAUSED: Final = Signal.PAUSED


class FrameAnnounced(NamedTuple):
    """A frame whose body the reader must store, divert or skip."""

    head: FrameHead


class BodyEnd(NamedTuple):
    """The end of a diverted (or skipped) frame: its last byte has arrived."""

    head: FrameHead
    skipped: bool


Event = Frame | FrameAnnounced | BodyEnd | Signal


class _Mode(Enum):
    BETWEEN = "between frames, or inside the head of one"
    UNDECIDED = "announced, the reader has not decided"
    STORING = "announced, kept here until complete"
    DIVERTING = "body goes into the reader's sink"
    SKIPPING = "body is discarded"


class FrameDecoder:
    """A decoder of frames from bytes in any split.

    A frame above `max_frame_bytes`, the cap of the role with the 4 size bytes, raises FrameTooLarge. Frames above
    `announce_above` bytes, and frames whose type is in `announce_types`, are announced.
    """

    __slots__ = (
        "_announce_above",
        "_announce_types",
        "_buffer",
        "_head",
        "_mode",
        "_remaining",
        "_sink",
        "max_frame_bytes",
    )

    def __init__(
        self,
        max_frame_bytes: int = LARGEST_FRAME + SIZE_BYTES,
        announce_above: int = LARGEST_FRAME + SIZE_BYTES,
        announce_types: frozenset[int] = frozenset(),
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._announce_above = announce_above
        self._announce_types = announce_types
        self._buffer = bytearray()
        self._mode = _Mode.BETWEEN
        self._head: FrameHead | None = None
        self._sink: SlabBody | None = None
        self._remaining = 0

    @property
    def paused(self) -> bool:
        """Return whether an announced frame waits for the reader's decision."""
        return self._mode is _Mode.UNDECIDED

    @property
    def diverting(self) -> bool:
        """Return whether the next bytes belong into the sink's buffer, which `writable()` returns."""
        return self._mode is _Mode.DIVERTING and self._remaining > 0

    @property
    def storing(self) -> bool:
        """Return whether a large frame is being stored here."""
        return self._mode is _Mode.STORING

    @property
    def missing_bytes(self) -> int:
        """Return the number of bytes that a frame being stored still needs."""
        return self._head.frame_bytes - len(self._buffer) if self._head is not None else 0

    @property
    def stored_bytes(self) -> int:
        """Return the number of bytes held here for frames that are incomplete or not yet returned."""
        return len(self._buffer)

    @property
    def frame_is_next(self) -> bool:
        """Return whether a frame is here that is complete, or whose head is to be announced."""
        stored = len(self._buffer)
        if self._mode is _Mode.STORING and self._head is not None:
            return stored >= self._head.frame_bytes
        if self._mode is not _Mode.BETWEEN or stored < HEADER_BYTES:
            return False
        frame_bytes = int.from_bytes(self._buffer[:SIZE_BYTES], "big") + SIZE_BYTES
        return stored >= (HEAD_BYTES if frame_bytes > self._announce_above else frame_bytes)

    def stored_command(self) -> tuple[bytearray, int, int]:
        """Return the bytes of the frame being stored, as far as they are there, and where its command is in them.

        The caller only reads these bytes, and only until the next call of a method of the decoder.
        """
        assert self._mode is _Mode.STORING
        assert self._head is not None
        return self._buffer, HEADER_BYTES, HEADER_BYTES + self._head.command_bytes

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes from the peer; afterwards call `next_event()` until it returns a Signal."""
        if self._remaining:
            taken = self._take_body(memoryview(data))
            self._buffer += data[taken:]
        else:
            self._buffer += data

    def writable(self) -> memoryview:
        """Return the sink's buffer for the next body bytes (only while `diverting`)."""
        assert self._sink is not None
        return self._sink.writable()[: self._remaining]

    def advance(self, count: int) -> None:
        """Count body bytes that were received into `writable()`."""
        assert self._sink is not None
        # Before the sink, which may raise: the stream stays usable, and the rest of the body can be skipped.
        self._remaining -= count
        self._sink.advance(count)

    def store(self) -> None:
        """Store the announced frame here until it is complete, then return it as a Frame."""
        self._decide(_Mode.STORING)

    def divert(self, sink: SlabBody) -> None:
        """Send the bytes after the announced frame's request id into `sink`.

        Raises LocalProtocolError for a frame whose request id does not come first: the start of its rest is unknown.
        """
        if self._head is not None and self._head.request_id is None:
            raise LocalProtocolError("a frame without a leading request id cannot be diverted")
        head = self._decide(_Mode.DIVERTING)
        self._sink = sink
        self._remaining = head.rest_bytes
        del self._buffer[: head.rest_offset]
        self._take_buffered_body()

    def skip(self) -> None:
        """Discard the announced frame without storing it, or a frame being stored or diverted with what is there."""
        if self._mode in (_Mode.DIVERTING, _Mode.SKIPPING):
            self._mode, self._sink = _Mode.SKIPPING, None
            return
        if self._mode is _Mode.STORING and self._head is not None:
            self._mode, head = _Mode.SKIPPING, self._head
        else:
            head = self._decide(_Mode.SKIPPING)
        self._remaining = head.frame_bytes
        self._take_buffered_body()

    def first_bytes(self, count: int) -> bytes:
        """Return up to `count` of the first bytes that are held here."""
        return bytes(self._buffer[:count])

    def take_rest(self) -> bytes:
        """Remove and return the undecoded bytes: another reader continues this stream."""
        rest = bytes(self._buffer)
        self._buffer = bytearray()
        return rest

    def take_keep_alives(self) -> tuple[int, int]:
        """Remove the PINGs and PONGs that come next, up to the first other frame; return how many there were of each.

        Only those are found that are written as every Pulsar encoder does: a few microseconds for hundreds of them.
        """
        buffer = self._buffer
        if self._mode is not _Mode.BETWEEN or len(buffer) < len(_PING) or buffer[_FIRST_SIZE_BYTE] != _PING_SIZE:
            return 0, 0
        found = _match_keep_alives(buffer)
        if found is None:
            return 0, 0
        end = found.end()
        pings = buffer.count(_PING, 0, end)
        # A bytearray with an exported buffer cannot be resized, and the match holds one.
        del found
        if end == len(buffer):
            self._buffer = bytearray()
        else:
            del buffer[:end]
        return pings, end // len(_PING) - pings

    def next_event(self) -> Event:
        """Return the next event; raises FrameTooLarge or MalformedFrame, after which the stream is unusable."""
        if self._mode is _Mode.BETWEEN:
            return self._next_frame()
        if self._mode is _Mode.UNDECIDED:
            return PAUSED
        head = self._head
        assert head is not None
        if self._mode is _Mode.STORING:
            return NEED_DATA if len(self._buffer) < head.frame_bytes else self._take_frame(head)
        if self._remaining:
            return NEED_DATA
        skipped = self._mode is _Mode.SKIPPING
        self._mode, self._head, self._sink = _Mode.BETWEEN, None, None
        return BodyEnd(head, skipped)

    def _next_frame(self) -> Event:
        buffer = self._buffer
        buffered = len(buffer)
        if buffered < SIZE_BYTES:
            return NEED_DATA
        frame_bytes = int.from_bytes(buffer[:SIZE_BYTES], "big") + SIZE_BYTES
        if frame_bytes > self.max_frame_bytes:
            raise FrameTooLarge(f"got a frame of {frame_bytes} bytes, at most {self.max_frame_bytes} are allowed here")
        if buffered < min(frame_bytes, HEAD_BYTES):
            return NEED_DATA
        head = read_head(bytes(buffer[: min(frame_bytes, HEAD_BYTES)]))
        if frame_bytes > self._announce_above or head.command_type in self._announce_types:
            self._mode, self._head = _Mode.UNDECIDED, head
            return FrameAnnounced(head)
        return NEED_DATA if buffered < frame_bytes else self._take_frame(head)

    def _decide(self, mode: _Mode) -> FrameHead:
        if self._mode is not _Mode.UNDECIDED or self._head is None:
            raise LocalProtocolError("no announced frame waits for a decision")
        self._mode = mode
        return self._head

    def _take_frame(self, head: FrameHead) -> Frame:
        buffer = self._buffer
        command_end = HEADER_BYTES + head.command_bytes
        frame = Frame(head, bytes(buffer[HEADER_BYTES:command_end]), bytes(buffer[command_end : head.frame_bytes]))
        if len(buffer) == head.frame_bytes:
            self._buffer = bytearray()
        else:
            del buffer[: head.frame_bytes]
        self._mode, self._head = _Mode.BETWEEN, None
        return frame

    def _take_buffered_body(self) -> None:
        buffered = self._buffer
        self._buffer = bytearray()
        wanted = min(len(buffered), self._remaining)
        try:
            self._take_body(memoryview(buffered))
        finally:
            self._buffer += memoryview(buffered)[wanted:]

    def _take_body(self, data: memoryview) -> int:
        wanted = min(len(data), self._remaining)
        if self._mode is _Mode.SKIPPING:
            self._remaining -= wanted
            return wanted
        taken, left = 0, self._remaining - wanted
        try:
            while taken < wanted:
                buffer = self.writable()
                count = min(len(buffer), wanted - taken)
                buffer[:count] = data[taken : taken + count]
                self.advance(count)
                taken += count
        except MemoryError:
            # The sink has no room: the caller skips the body, of which these bytes are gone.
            self._remaining = left
            raise
        return taken
