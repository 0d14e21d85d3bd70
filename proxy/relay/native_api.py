"""The numbers in which the native extension's relay engine speaks (`native/src/relay/python.rs`).

`ENGINE_ABI` in `proxy/core/native.py` and in `native/src/lib.rs` changes with them; the calls are in
`native/pulsar_proxy_native.pyi`.
"""

from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from proxy.core.errors import DisconnectCause
from proxy.net import ended_sockets


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
