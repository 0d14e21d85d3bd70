"""The contract of the relay engines: what moves the bytes of a relay, and what the rest of the proxy knows of one.

An engine is mechanism: it moves bytes, half-closes and ends. Policy (who may, how much, how fast, why it ended) is
outside. Sessions, ages, `top`, the admin API and the statistics use these Protocols and no class of an engine. The
native engine obeys all of them (docs/adr/0037): `native_engine.py`, with the bytes and the end of a relay in
`native/src/relay/pair.rs`. Without the extension there is `small_relay.py`: plain sockets, no throttle, no limit.

Rules of the contract:
- The handle exists before the first byte moves, and remembers a `close` or an `abort` that comes before.
- A direction is read while no reason pauses it and its receiver has taken all bytes. No reason undoes another's. Up to
  one read may still pass after `pause` returned.
- Messages of clients are counted by topic if `TopicSlots.enabled` was set when the relay joined. A PRODUCER has its
  slot before the next frame is looked at. Counting never changes, drops or refuses a byte; a limit only stops reading.
- A FIN is passed on when all bytes that came before it have left, and the other direction stays open (TLS knows no such
  thing: the relay is closed). Bytes go on to leave for as long as their receiver takes any, whatever is over.
- The clocks of a receiver that takes nothing: in a relay that is open, half-closed too, the kernel's and the read
  time-out; in one that ends (both FINs, a side that failed, `close`) those of `proxy/net/ended_sockets.py`. A receiver
  that is cut off from bytes that were held gets an RST: a FIN would say that this is all.
- `on_end` is called once, with the cause, when nobody will count another byte of the relay.
"""

import asyncio
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import NamedTuple, Protocol

from proxy.core.errors import DisconnectCause
from proxy.relay.memory.sockets import SocketMemory
from proxy.relay.traffic import RelayTraffic
from proxy.telemetry.events.recorder import RequestOrigin


class Direction(IntEnum):
    """A direction of a relay, named by its receiver; also the index of a pair of values in `RelaySnapshot`."""

    TO_BROKER = 0
    TO_CLIENT = 1


class PauseReason(IntFlag):
    """Reasons of ours not to read a direction; a receiver that does not read is none of them.

    WATCH and POOL are the engine's own: a frame for a watcher waits for its permit, a direction whose receiver takes
    nothing waits for memory of the relay pool. So is RATE for clients that are counted: a topic of theirs has no tokens
    left (docs/adr/0042). The others are for overload control.
    """

    WATCH = 1
    POOL = 2
    THRESHOLD = 4
    RATE = 8


NOT_PAUSED = PauseReason(0)
# A drip passes one frame in spite of these.
DRIPPED_THROUGH = PauseReason.THRESHOLD | PauseReason.RATE


def stops_the_clock(reasons: int) -> bool:
    """Return whether the read time-out waits: it runs on for a direction that waits for memory and for nothing else."""
    return bool(reasons & ~PauseReason.POOL)


class RelaySnapshot(NamedTuple):
    """A relay at one moment; each pair of values is indexed by `Direction`.

    `moved`: bytes that were read, those that came with the handshakes left out. `unsent`: bytes in user space, kernel
    pipes included, that wait for their receiver. `permit_bytes`: the permit for frames to a watcher. `idle_seconds`:
    since a byte came or left, None if the engine does not note that. `spliced_bytes`: bytes that the kernel passed from
    one socket to the other. `untaken_bytes`: what both peers have still to take, in the kernel too, maybe a second old.
    """

    moved: tuple[int, int]
    unsent: tuple[int, int]
    paused: tuple[PauseReason, PauseReason]
    permit_bytes: int
    half_open: bool
    idle_seconds: float | None = None
    spliced_bytes: int = 0
    untaken_bytes: int = 0

    def reads(self, direction: Direction) -> bool:
        """Return whether the sender of `direction` is read."""
        return not self.paused[direction] and not self.unsent[direction]

    @property
    def state(self) -> str:
        """Return the state in words, for operators."""
        if self.paused[Direction.TO_CLIENT] & PauseReason.WATCH:
            return "waits for memory"
        if self.half_open:
            return "half closed"
        if reasons := self.paused[Direction.TO_BROKER] | self.paused[Direction.TO_CLIENT]:
            return "paused: " + ", ".join(str(reason.name).lower() for reason in PauseReason if reasons & reason)
        if self.unsent[Direction.TO_BROKER]:
            return "broker does not read"
        return "client does not read" if self.unsent[Direction.TO_CLIENT] else "open"


class Relay(Hashable, Protocol):
    """The handle of a relayed client and its broker."""

    client_name: str
    broker_name: str
    principal: Hashable
    # Why it has ended, for the log, if the cause does not say all.
    detail: str
    traffic: RelayTraffic

    @property
    def produces(self) -> bool:
        """Return whether the client has sent a PRODUCER, or what may be one; False while nothing is counted."""

    @property
    def consumes(self) -> bool:
        """Return whether the client has sent a SUBSCRIBE; False while nothing is counted."""

    @property
    def unread_bytes(self) -> int:
        """Return the bytes of the client that wait in the kernel to be read, maybe those at the last call."""

    def start(self, client: asyncio.Transport, broker: asyncio.Transport, to_client: bytes, to_broker: bytes) -> None:
        """Adopt both transports, which nobody reads, and relay the bytes that came with the handshakes first."""

    def snapshot(self) -> RelaySnapshot:
        """Return the relay as it is now."""

    def socket_bytes(self) -> SocketMemory:
        """Return the kernel memory of the relay's sockets, as far as the event loop has them; called once a second."""

    def pause(self, direction: Direction, reason: PauseReason) -> None:
        """Stop to read the sender of `direction`, for one more reason."""

    def resume(self, direction: Direction, reason: PauseReason) -> None:
        """Read the sender of `direction` again, unless another reason is left or its receiver has bytes to take."""

    def drip(self, direction: Direction, *, whole_read: bool = False) -> None:
        """Pass one whole frame although THRESHOLD or RATE pauses `direction`; then the pause holds on.

        With `whole_read`, or if frames are not told, one read of `relayBufferBytes` at most passes instead. Nothing
        more while a drip is under way.
        """

    def tick(self, now: float) -> None:
        """Update rates and counters; abort the relay if no byte has moved for the read time-out.

        A byte that a peer takes moves, too. Without a time-out a relay of which one side has sent its FIN has the
        longest time of an ended socket. The time-out does not run while a reason pauses a direction. POOL is no such
        reason: only a direction whose receiver takes nothing has it.
        """

    def retire(self, now_or_never: bool) -> None:
        """Close a relay that is old enough, if no byte has moved since the last call or `now_or_never` is set."""

    def close(self, cause: DisconnectCause) -> None:
        """Close both connections after their pending bytes have left."""

    def abort(self, cause: DisconnectCause) -> None:
        """Close both connections at once."""


def relay_delay(relay: Relay) -> float:
    """Return the estimated delay of the client's next message in seconds: what waits in the kernel / the passed rate.

    Infinite while bytes wait and none passed between the last two ticks.
    """
    unread = relay.unread_bytes
    if not unread:
        return 0.0
    rate = relay.traffic.rates.size_bytes
    return unread / rate if rate > 0 else math.inf


@dataclass(frozen=True, slots=True)
class RelayOrder:
    """The relay that an engine is asked for.

    `key` is charged for permits of watch frames, `network` has a turn at the event loop. `origin` is the client that
    events name, None without names.
    """

    on_end: Callable[[Relay, DisconnectCause], None]
    read_timeout_seconds: float
    key: Hashable = None
    client: str = "?"
    origin: RequestOrigin | None = None
    network: Hashable = None

    @property
    def principal(self) -> Hashable:
        """Return who the client is; None if nobody knows."""
        return None if self.origin is None else self.origin.principal
