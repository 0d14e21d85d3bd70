"""The interface of the native extension's relay engine, as this side sees it (`native/src/relay/python.rs`).

The numbers are the extension's; `ENGINE_ABI` in `proxy/core/native.py` and in
`native/src/lib.rs` changes with them. The threads write
topic lists, too (`proxy/net/away.py`).
"""

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from proxy.core.errors import DisconnectCause
from proxy.net import ended_sockets
from proxy.net.away import BodyThreads

if TYPE_CHECKING:
    from proxy.net.tls.session import TlsSession


class Truncation(StrEnum):
    """Where a stream ended without close_notify: by a crash of the peer, or by somebody on the way."""

    INSIDE_FRAME = "inside_frame"
    BETWEEN_FRAMES = "between_frames"


class PairEvent(IntEnum):
    """The kinds of events; each comes with a pair (BODY_...: a body), five numbers and a text."""

    FRAMES = 1
    DRAINED = 2
    INSIDE = 3
    UNWALKABLE = 4
    PASSED = 5
    ENDED = 6
    THREAD_DIED = 7
    # The first number is a descriptor, which is ours from now on: the kernel has much to send to its peer.
    LEFT = 8
    BODY_MOVED = 9
    BODY_ENDED = 10
    # Commands of a relay that is logged wait.
    COMMANDS = 11
    PRODUCER = 16


class PairEnd(IntEnum):
    """Why a pair has ended."""

    CLIENT_FIN = 1
    BROKER_FIN = 2
    CLIENT_ERROR = 3
    BROKER_ERROR = 4
    WRITE_STALLED = 5
    OURS = 6
    PANIC = 7
    CUT = 8
    TLS_ERROR = 9


CAUSES: Final = {
    PairEnd.CLIENT_FIN: DisconnectCause.CLIENT_CLOSED,
    PairEnd.BROKER_FIN: DisconnectCause.BROKER_CLOSED,
    PairEnd.CLIENT_ERROR: DisconnectCause.CONNECTION_RESET,
    PairEnd.BROKER_ERROR: DisconnectCause.CONNECTION_RESET,
    PairEnd.WRITE_STALLED: DisconnectCause.WRITE_STALLED,
    PairEnd.OURS: DisconnectCause.SHUTDOWN,
    PairEnd.PANIC: DisconnectCause.INTERNAL_ERROR,
    PairEnd.CUT: DisconnectCause.TRUNCATED,
    PairEnd.TLS_ERROR: DisconnectCause.TLS_ERROR,
}
# Frames that waited for an answer when the pair ended went out, in the last value of ENDED.
PASSED_AT_END: Final = 1
# There, too: a peer with TLS has ended without saying so.
TRUNCATIONS: Final = {4: Truncation.BETWEEN_FRAMES, 8: Truncation.INSIDE_FRAME}
# The commands that a client has sent, as `seen_of` tells.
PRODUCES: Final = 1
CONSUMES: Final = 2


def linger_millis() -> tuple[int, int]:
    """Return how long a pair that ends may send what is held: without a byte that is taken, and in all.

    The rules are those of the sockets that outlive their connections.
    """
    return round(ended_sockets.STALL_SECONDS * 1000), round(ended_sockets.LONGEST_SECONDS * 1000)


# Kind, pair, five numbers, and of ENDED why the TLS of a side has failed.
EventTuple = tuple[int, int, int, int, int, int, int, str]


class PairRecord(NamedTuple):
    """The counters of one pair. Bytes and reads are those of reads; what came with the handshakes is left out.

    `untaken_bytes`: what is held, and what the kernel had still to send at a look that comes once a second.
    """

    pair: int
    to_broker_bytes: int
    to_client_bytes: int
    client_reads: int
    held_for_broker: int
    held_for_client: int
    paused_to_broker: int
    paused_to_client: int
    half_closed: int
    idle_millis: int
    asks: int
    thread: int
    spliced_bytes: int
    untaken_bytes: int


class CommandTap(Protocol):
    """The class of the extension that has the commands of one pair for the log; it outlives the pair."""

    def take(self, most: int) -> list[tuple[int, bytes]]:
        """Return the oldest heads of frames, each with its direction; the next event comes when all were taken."""

    def close(self) -> None:
        """End the tap: nothing is told any more, and nothing is held up for it."""


class NativePairs(BodyThreads, Protocol):
    """The class `RelayEngine` of the extension. No call waits for a system call of a thread, but `stop`."""

    @property
    def event_fd(self) -> int:
        """Return a descriptor that is readable while events wait."""

    def join(
        self,
        client_fd: int,
        broker_fd: int,
        to_client: bytes,
        to_broker: bytes,
        scan: bool,
        count: bool,
        paused: tuple[int, int],
        client_tls: "TlsSession | None",
        broker_tls: "TlsSession | None",
        tap: CommandTap | None,
    ) -> int:
        """Take two sockets and return the pair's number; raises OSError or RuntimeError, then the caller owns both.

        `paused`: the reasons for which client and broker are not read from the first byte on. Sessions of TLS are the
        engine's even then. `tap`: where commands wait, if they are logged.
        """

    def make_tap(self) -> CommandTap:
        """Return what a pair is joined with whose commands are logged."""

    def pause(self, pair: int, direction: int, reason: int) -> None:
        """Add reasons not to read a direction."""

    def resume(self, pair: int, direction: int, reason: int) -> None:
        """Remove reasons not to read a direction."""

    def pass_frames(self, pair: int, generation: int) -> None:
        """Pass the frames of this generation."""

    def take_topic(self, pair: int, generation: int) -> bytes | None:
        """Return the topic of a PRODUCER that waits, once; None if the question is over."""

    def assign(self, pair: int, generation: int, slot: int) -> None:
        """Answer to which slot the PRODUCER of this generation belongs; it then has a hold of its own on the slot."""

    def drip(self, pair: int, direction: int, whole_read: bool) -> None:
        """Pass one frame, or one read, although reasons pause a direction."""

    def seen_of(self, pair: int) -> int:
        """Return what the client has sent."""

    def unread_of(self, pair: int) -> int:
        """Return the bytes of the client that waited in the kernel at the last call."""

    def close(self, pair: int, stall_ms: int) -> None:
        """Send what is held, then close both sockets, at the latest when no byte is taken for `stall_ms`."""

    def abort(self, pair: int) -> None:
        """Close both sockets at once."""

    def events(self, most: int) -> list[EventTuple]:
        """Return the oldest events."""

    def snapshot_of(self, pair: int) -> tuple[int, ...] | None:
        """Return the record of a pair; None after its last event was taken."""

    def beats(self) -> list[int]:
        """Return the milliseconds since each thread last went round its loop."""

    def socket_memory(self) -> tuple[int, int]:
        """Return the kernel memory of all sockets towards brokers, and towards clients, as of the last second."""

    def set_tight(self, tight: bool) -> None:
        """Record whether the kernel memory of all sockets is short."""

    def heaviest(self, most: int) -> list[tuple[int, int, int]]:
        """Return those whose sockets hold most: pair, kernel memory, and bytes read in the last second.

        The first are those that stand still: they hold more than they moved.
        """

    def received_memory(self) -> tuple[int, int]:
        """Return the part of the sockets' memory that was received and is not read: from brokers, and from clients."""

    def pool(self) -> tuple[int, int, int, float, int, float] | None:
        """Return the numbers of the relay pool (`limiter.soft_pool.PoolRecord`); None without a limit."""

    def stop(self) -> None:
        """End all pairs and bodies and join the threads, with the interpreter lock released."""
