"""How much of what has come on an HTTP connection is parsed at a time: little, if the bytes are many lines.

A chunk has two lines, and takes some 0.2 us to be parsed and 0.5 us to be read, so a piece takes 0.3 ms at most.
"""

from typing import TYPE_CHECKING, Final

# Parsed at a time, or fewer bytes if there are more than so many lines.
PIECE_BYTES: Final = 16_384
FEW_LINES: Final = 512
SMALL_PIECE_BYTES: Final = 2048
# The step of a task that reads a piece of a body takes about this long, or twice as long as parsing it.
READ_SECONDS: Final = 0.00005


def has_many_lines(data: bytes) -> bool:
    """Return whether the next piece of some bytes has to be small."""
    return len(data) > FEW_LINES and data.count(b"\n", 0, PIECE_BYTES) > FEW_LINES


def piece_bytes(held: bytes) -> int:
    """Return how many of the bytes that are held are parsed at a time."""
    return SMALL_PIECE_BYTES if has_many_lines(held) else PIECE_BYTES


class PiecewiseParser:
    """Parses what an HTTP connection has read a piece at a time, in turns: mixed into a protocol of aiohttp."""

    if not TYPE_CHECKING:
        # The protocols have slots for the attributes, which mypy looks for here.
        __slots__ = ()

    _held: bytes
    _waits: bool
    _rests: bool

    def _hold_nothing(self) -> None:
        """Begin: nothing has been read."""
        # Bytes that were read and are not parsed yet.
        self._held = b""
        # Whether these go on by themselves: in a turn that was asked for, or because they are being parsed.
        self._waits = False
        # Whether the socket is not read because of them.
        self._rests = False

    @property
    def _stuck(self) -> bool:
        """Return whether nothing can be parsed before aiohttp has room again."""
        raise NotImplementedError

    def _parse_piece(self, piece: bytes) -> None:
        """Pass a piece to aiohttp, and charge its time."""
        raise NotImplementedError

    def _spent(self) -> bool:
        """Return whether the time of this iteration of the loop is spent."""
        raise NotImplementedError

    def _ask_for_turn(self) -> None:
        """Call `_take_turn` later, in this connection's turn."""
        raise NotImplementedError

    def _pause_socket(self) -> None:
        """Read the socket no more."""
        raise NotImplementedError

    def _resume_socket(self) -> None:
        """Read the socket again."""
        raise NotImplementedError

    def _go_on(self, *, one_piece: bool = False) -> None:
        """Parse what is held until the time of this iteration is spent, or one piece of it."""
        self._waits = True
        try:
            while self._held and not self._stuck:
                size = piece_bytes(self._held)
                piece, self._held = self._held[:size], self._held[size:]
                self._parse_piece(piece)
                if one_piece or self._spent():
                    break
        finally:
            self._waits = False
        if not self._held:
            if not self._stuck:
                self._read_on()
        elif self._stuck:
            # aiohttp says when there is room.
            self._pause()
        else:
            self._rest()

    def _pause(self) -> None:
        self._rests = True
        self._pause_socket()

    def _rest(self) -> None:
        """Read no more until what is held has had its turn."""
        self._pause()
        if not self._waits:
            self._waits = True
            self._ask_for_turn()

    def _read_on(self) -> None:
        if self._rests:
            self._rests = False
            self._resume_socket()

    def _has_room_again(self) -> bool:
        """Return whether the socket may be read, now that aiohttp has room: what is held was sent before that."""
        self._rests = bool(self._held)
        if self._held and not self._waits:
            self._rest()
        return not self._held
