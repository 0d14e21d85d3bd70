"""The handle of a relay that the native engine moves; the sockets are the engine's after the hand-over.

A relay is first handed over, then joined, then ended. The handle remembers what is asked of it before it is joined,
and does it then. If the engine has no room after all, both connections are closed.
"""

import asyncio
from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from proxy.core.counters import Counters, counter_by
from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.net.transport import peer_name
from proxy.relay.engine import (
    NOT_PAUSED,
    Direction,
    PauseReason,
    RelayOrder,
    RelaySnapshot,
    stops_the_clock,
)
from proxy.relay.frame_permits import FramePermits
from proxy.relay.hand_over import BROKER, CLIENT, HandOver, LeavingEnd
from proxy.relay.logged_commands import LoggedCommands
from proxy.relay.memory.sockets import NO_SOCKET_MEMORY, SocketMemory
from proxy.relay.native_api import (
    CAUSES,
    CONSUMES,
    PASSED_AT_END,
    PRODUCES,
    TRUNCATIONS,
    PairEnd,
    PairRecord,
    Truncation,
    linger_millis,
)
from proxy.relay.rates.slot_books import OTHER
from proxy.relay.topic_slots import TopicSlots
from proxy.relay.traffic import RelayRates, RelayTraffic
from proxy.relay.watch_limits import OVERSHOOTS, FrameMatch, WatchLimits, WatchOvershoot

if TYPE_CHECKING:
    from proxy.core.native import RelayEngine

_NO_PAIR: Final = 0
_ENDED_BY_BROKER: Final = frozenset({PairEnd.BROKER_FIN, PairEnd.BROKER_ERROR})
TRUNCATED_STREAMS: Final = counter_by(
    "place",
    "relay_truncations",
    "Relayed TLS streams that ended without close_notify, by where they ended.",
    Truncation,
)


class PairOwner(Protocol):
    """The engine of the relay (`native_engine.NativeEngine`)."""

    loop: asyncio.AbstractEventLoop
    loop_budget: LoopBudget
    pairs: "RelayEngine"
    watch: WatchLimits
    slots: TopicSlots | None
    counters: Counters

    def register(self, relay: "NativeRelay", to_client: bytes, to_broker: bytes) -> int | None:
        """Return the number of the relay's new pair; None if the engine has no room: the pair is closed."""

    def refused(self, error: Exception) -> None:
        """Count and log a relay for which the threads have no room."""

    def open_frame(self, relay: "NativeRelay") -> None:
        """Look each second whether the rest of a frame has passed."""


class NativeRelay:
    """A client and its broker in the native engine; the holder of its watch frames (frame_permits.FrameHolder)."""

    __slots__ = (
        "_cause",
        "_drips",
        "_end",
        "_engine",
        "_first",
        "_frame_ends_at",
        "_generation",
        "_half_open",
        "_order",
        "_paused",
        "_permits",
        "_traffic",
        "_unsettled",
        "broker_name",
        "client_name",
        "commands",
        "counted",
        "detail",
        "hand_over",
        "pair",
        "principal",
        "scanned",
    )

    def __init__(self, engine: PairOwner, hand_over: HandOver, order: RelayOrder) -> None:
        self._engine = engine
        self._order = order
        self.hand_over: HandOver | None = hand_over
        self.pair = _NO_PAIR
        # Whether watch frames are asked about; decided when the relay begins.
        self.scanned = engine.watch.enabled
        # So is whether the messages of the client are counted.
        self.counted = engine.slots is not None and engine.slots.enabled
        self._drips: set[tuple[Direction, bool]] = set()
        self._traffic = RelayTraffic(engine.counters, engine.loop.time(), order.read_timeout_seconds)
        self._first = (b"", b"")
        # The cause of a `close` or `abort` of ours; `_end` is set when the relay is over.
        self._cause: DisconnectCause | None = None
        self._end: DisconnectCause | None = None
        self._half_open = False
        self._paused = [NOT_PAUSED, NOT_PAUSED]
        self._permits: FramePermits | None = None
        # What takes its commands for the log; decided when the pair joins.
        self.commands: LoggedCommands | None = None
        # Frames or bytes of them are on their way to the client: the engine owes DRAINED.
        self._unsettled = False
        self._generation = 0
        self._frame_ends_at = 0
        self.client_name = order.client
        self.broker_name = "?"
        self.detail = ""
        self.principal: Hashable = order.principal

    # --- the hand-over ----------------------------------------------------------------------------

    def start(self, client: asyncio.Transport, broker: asyncio.Transport, to_client: bytes, to_broker: bytes) -> None:
        """Begin to hand both transports over; the bytes that came with the handshakes are sent first."""
        self.broker_name = peer_name(broker)
        self._first = (to_client, to_broker)
        if self._end is not None or self.hand_over is None:
            return
        try:
            self.hand_over.begin(self.handed_over)
        except OSError as error:
            self._engine.refused(error)
            self.abort(DisconnectCause.CONNECTION_RESET)

    def handed_over(self) -> None:
        """Join the pair to the engine, and do what was asked for meanwhile."""
        hand_over = self.hand_over
        assert hand_over is not None
        to_client, to_broker = self._first
        self._first = (b"", b"")
        # A pause may deliver once more: those bytes come behind the handshakes' and before the engine's.
        to_client += _behind(hand_over.ends[BROKER])
        to_broker += _behind(hand_over.ends[CLIENT])
        # Nobody else learns of an error that the transport has taken from the socket.
        self._cause = self._cause or hand_over.cause
        pair = self._engine.register(self, to_client, to_broker)
        if pair is None:
            return
        self.pair = pair
        self.hand_over = None
        for direction, whole_read in self._drips:
            self._engine.pairs.drip(pair, direction, whole_read)
        self._drips.clear()
        if self._cause is not None:
            self._engine.pairs.close(pair, linger_millis()[0])

    @property
    def order(self) -> RelayOrder:
        """Return what the relay was made for."""
        return self._order

    @property
    def closing(self) -> DisconnectCause | None:
        """Return the cause of a `close` or `abort` that was asked for; None if none was."""
        return self._cause

    @property
    def paused(self) -> tuple[PauseReason, PauseReason]:
        """Return our reasons not to read client and broker."""
        return self._paused[Direction.TO_BROKER], self._paused[Direction.TO_CLIENT]

    @property
    def over(self) -> bool:
        """Return whether the relay has ended."""
        return self._end is not None

    # --- the handle (engine.Relay) ------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Return True: a drain waits, because a relayed client may always be in the middle of a frame."""
        return True

    @property
    def rates(self) -> RelayRates:
        """Return the rates between the last two ticks."""
        return self._traffic.rates

    def snapshot(self) -> RelaySnapshot:
        """Return the relay as it is now."""
        record = self._look()
        permits, traffic = self._permits, self._traffic
        paused = self.paused
        unsent, idle_seconds, spliced, untaken = (0, 0), None, 0, 0
        if record is not None:
            idle_seconds, spliced = record.idle_millis / 1000, record.spliced_bytes
            untaken = record.untaken_bytes
            paused = (PauseReason(record.paused_to_broker), PauseReason(record.paused_to_client))
            unsent = (record.held_for_broker, record.held_for_client)
        return RelaySnapshot(
            moved=(traffic.to_broker_bytes, traffic.to_client_bytes),
            unsent=unsent,
            paused=paused,
            permit_bytes=0 if permits is None else permits.held_bytes,
            half_open=self._half_open,
            idle_seconds=idle_seconds,
            spliced_bytes=spliced,
            untaken_bytes=untaken,
        )

    def socket_bytes(self) -> SocketMemory:
        """Return nothing while the threads have the sockets: they add their sockets up themselves."""
        return NO_SOCKET_MEMORY

    def pause(self, direction: Direction, reason: PauseReason) -> None:
        """Stop to read the sender of `direction`, for one more reason."""
        self._paused[direction] |= reason
        if self.pair:
            self._engine.pairs.pause(self.pair, direction, reason)

    def resume(self, direction: Direction, reason: PauseReason) -> None:
        """Read the sender of `direction` again, unless another reason is left or its receiver has bytes to take."""
        was_paused = any(map(stops_the_clock, self._paused))
        self._paused[direction] &= ~reason
        if self.pair:
            self._engine.pairs.resume(self.pair, direction, reason)
        if was_paused and not any(map(stops_the_clock, self._paused)):
            self._traffic.pause_ended(self._engine.loop.time())

    def drip(self, direction: Direction, *, whole_read: bool = False) -> None:
        """Pass one whole frame, or one read, although a threshold or a rate pauses `direction`."""
        if self.pair:
            self._engine.pairs.drip(self.pair, direction, whole_read)
        else:
            self._drips.add((direction, whole_read))

    @property
    def produces(self) -> bool:
        """Return whether the client has sent a PRODUCER, or what may be one; False while nothing is counted."""
        return bool(self._seen & PRODUCES)

    @property
    def consumes(self) -> bool:
        """Return whether the client has sent a SUBSCRIBE; False while nothing is counted."""
        return bool(self._seen & CONSUMES)

    @property
    def unread_bytes(self) -> int:
        """Return the bytes of the client that waited in the kernel at the last call; the thread looks again."""
        return self._engine.pairs.unread_of(self.pair) if self.pair else 0

    @property
    def _seen(self) -> int:
        return self._engine.pairs.seen_of(self.pair) if self.pair and self.counted else 0

    def set_read_timeout(self, seconds: float) -> None:
        """Change the read time-out; the idle time so far counts."""
        self._traffic.read_timeout_seconds = seconds

    def tick(self, now: float) -> None:
        """Update rates and counters; abort the relay if no byte has moved for the read time-out."""
        record = self._look()
        reads = paused = untaken = 0
        if record is not None:
            reads, paused = record.client_reads, record.paused_to_client | record.paused_to_broker
            untaken = record.untaken_bytes
        waits = any(map(stops_the_clock, (paused, *self._paused)))
        if self._traffic.tick(now, reads, lambda: untaken, paused=waits, half_open=self._half_open):
            self.abort(DisconnectCause.READ_TIMEOUT)

    def retire(self, now_or_never: bool) -> None:
        """Close a relay that is old enough, if no byte has moved since the last call or `now_or_never` is set."""
        self._look()
        if self._traffic.idle_since_retire() or now_or_never:
            self.close(DisconnectCause.CONNECTION_AGE)

    def close(self, cause: DisconnectCause) -> None:
        """Close both connections after their pending bytes have left."""
        if self._cause is None:
            self._cause = cause
            if self.pair:
                self._engine.pairs.close(self.pair, linger_millis()[0])

    def abort(self, cause: DisconnectCause) -> None:
        """Close both connections at once; the cause is that of an earlier `close`, if there was one."""
        self._cause = self._cause or cause
        if self.pair:
            self._engine.pairs.abort(self.pair)
        elif self._end is None:
            if self.hand_over is not None:
                self.hand_over.abort()
            self.finish(self._cause)

    def finish(self, cause: DisconnectCause) -> None:
        """Report that the relay is over; once."""
        if self._end is None:
            self._end = cause
            self.hand_over = None
            if self.commands is not None:
                self.commands.end()
            self._order.on_end(self, cause)

    # --- events of the engine ---------------------------------------------------------------------

    def on_frames(self, generation: int, match: FrameMatch) -> None:
        """Ask for the permit of watch frames that the engine holds, in the turn of the client's network."""
        self._generation = generation
        self._engine.watch.count(match)
        permits = self._frame_permits
        permits.arrived(match)
        permits.ask_in_turn(self._engine.loop_budget, self._order.network)

    def on_producer(self, generation: int) -> None:
        """Answer which slot a PRODUCER has, now or in the turn of the network: the client is not read until then."""
        turns = self._engine.loop_budget
        # Others that wait for their turns come first: a crowd asks again as soon as an answer lets it.
        if turns.spent() or turns.sharers:
            turns.defer_client(self._order.network, partial(self._answer_in_turn, generation))
        else:
            self._assign_slot(generation)

    def _answer_in_turn(self, generation: int) -> None:
        # The relay, and with it the engine, may have ended.
        if self.pair and not self.over:
            try:
                self._assign_slot(generation)
            except Exception as error:
                self.crashed(error)

    def _assign_slot(self, generation: int) -> None:
        pairs, slots = self._engine.pairs, self._engine.slots
        topic = pairs.take_topic(self.pair, generation)
        if topic is None or slots is None:
            return
        slot = slots.slot_of(topic, self._order.network)
        pairs.assign(self.pair, generation, slot)
        if slot != OTHER:
            # The answer has a hold of its own by now.
            slots.books.let_go(slot)

    def on_commands(self) -> None:
        """Take commands for the log."""
        if self.commands is not None:
            self.commands.arrived()

    def on_drained(self) -> None:
        """Release the permit: everything that was held for the client has left."""
        self._unsettled = False
        if self._permits is not None:
            self._permits.settle()

    def on_inside(self, size: int) -> None:
        """Take a permit for bytes inside a frame that the client leaves lying, if there is one."""
        self._unsettled = True
        self._frame_permits.charge(size)

    def on_passed(self, match: FrameMatch) -> None:
        """Count frames that passed because the engine has asked too often for this connection."""
        limits = self._engine.watch
        limits.count(match)
        if limits.enabled:
            limits.counters[OVERSHOOTS][WatchOvershoot.TOO_MANY] += match.successes + match.updates

    def on_ended(self, end: PairEnd, to_broker: int, to_client: int, unanswered: int) -> None:
        """Count the last bytes, release the permit, and tell that the relay is over."""
        cause = self._cause or CAUSES[end]
        self._take_bytes(to_broker, to_client)
        self.pair = _NO_PAIR
        for bit, truncation in TRUNCATIONS.items():
            if unanswered & bit:
                self._engine.counters[TRUNCATED_STREAMS][truncation] += 1
        if self._permits is not None:
            self._cause = None if end in _ENDED_BY_BROKER else cause
            self._permits.ended(passed=bool(unanswered & PASSED_AT_END))
            self._permits = None
        self.finish(cause)

    # --- the holder of watch frames (frame_permits.FrameHolder) ------------------------------------

    @property
    def client_waits(self) -> bool:
        """Return whether bytes for the client have not left user space yet."""
        return self._unsettled

    @property
    def frame_open(self) -> bool:
        """Return whether a part of the frames that passed last is still to come."""
        if self.pair and self._frame_ends_at > self._traffic.to_client_bytes:
            self._look()
        return self._frame_ends_at > self._traffic.to_client_bytes

    @property
    def client_cause(self) -> DisconnectCause | None:
        """Return why the client's connection has ended; None while it has not."""
        return None if self.pair else self._cause

    def pass_frames(self, match: FrameMatch) -> None:
        """Pass the frames that wait: the engine holds them."""
        self._unsettled = True
        if match.open_bytes:
            # The direction stands still: all bytes that were read are counted.
            self._look()
            self._frame_ends_at = self._traffic.to_client_bytes + match.open_bytes
            self._engine.open_frame(self)
        self._engine.pairs.pass_frames(self.pair, self._generation)

    def rest_passed(self) -> bool:
        """Return whether no part of a frame is still to come, and settle the frame if so."""
        if self.pair and self.frame_open:
            return False
        if self._permits is not None:
            self._permits.settle()
        return True

    def crashed(self, error: BaseException) -> None:
        """End the relay because of an exception of its own code."""
        self._engine.counters.internal_error(error, "relay")
        self.abort(DisconnectCause.INTERNAL_ERROR)

    @property
    def _frame_permits(self) -> FramePermits:
        if self._permits is None:
            engine, order = self._engine, self._order
            self._permits = FramePermits(engine.loop, engine.watch, order.key, order.origin, self)
        return self._permits

    # --- counters ---------------------------------------------------------------------------------

    def _look(self) -> PairRecord | None:
        """Return the pair's record, and count the bytes that have moved; None without a pair."""
        found = self._engine.pairs.snapshot_of(self.pair) if self.pair else None
        if found is None:
            return None
        record = PairRecord._make(found)
        self._take_bytes(record.to_broker_bytes, record.to_client_bytes)
        self._half_open = bool(record.half_closed)
        return record

    def _take_bytes(self, to_broker: int, to_client: int) -> None:
        traffic = self._traffic
        traffic.add(to_broker - traffic.to_broker_bytes, to_client - traffic.to_client_bytes)


def _behind(end: LeavingEnd) -> bytes:
    """Return what arrived while a connection left the loop; a session of TLS keeps it for its next owner."""
    if end.session is None:
        return bytes(end.received)
    end.session.keep(bytes(end.received))
    return b""
