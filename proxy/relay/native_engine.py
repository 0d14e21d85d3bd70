"""The relay engine on threads of its own: sockets and sessions of TLS, moved by the native extension (docs/adr/0037).

Python decides, the threads move and scan bytes; they never call Python. News of theirs are events, taken in bounded
steps within the loop's budget. The same threads write topic lists for the pump (docs/adr/0045). A look each second
notices a thread that stands still.

A relay is first handed over, then joined, then ended. Its handle remembers what is asked of it before it is joined, and
does it then. If the engine has no room after all, both connections are closed.
"""

import asyncio
import os
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from limiter.soft_pool import PoolRecord
from proxy.brokers.sockets import Sockets
from proxy.config.core import Core
from proxy.core.counters import counter, counter_by
from proxy.core.errors import DisconnectCause
from proxy.core.log import LinePace
from proxy.core.threads import in_thread, start_thread
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
from proxy.relay.memory.sockets import NO_SOCKET_MEMORY, NOTHING_RECEIVED, ReceivedMemory, SocketMemory
from proxy.relay.native_api import (
    CAUSES,
    CONSUMES,
    PASSED_AT_END,
    PRODUCES,
    TRUNCATIONS,
    EventTuple,
    PairEnd,
    PairEvent,
    PairRecord,
    Truncation,
    linger_millis,
)
from proxy.relay.relay_log import RelayLog
from proxy.relay.socket_bound import SocketLoad
from proxy.relay.topic_slots import OTHER, TopicSlots
from proxy.relay.traffic import RelayTraffic
from proxy.relay.watch_limits import OVERSHOOTS, UNWALKABLE, FrameMatch, WatchLimits, WatchOvershoot

if TYPE_CHECKING:
    from proxy.core.native import RelayEngine

# Events that are taken at once: each takes 5 to 50 us. Permits are asked for in turns, beside the requests of clients.
EVENTS_A_STEP: Final = 16
# Events have so much of an iteration whose time is over: behind a crowd's questions others wait to be heard of.
EVENTS_SECONDS: Final = 0.001
# Looks at unfinished frames in an iteration of the loop: each takes 1 to 2 us.
LOOKS_A_TURN: Final = 100
# A thread goes round its loop once a second at least. Looks in a row, because the whole machine may have stood still.
STUCK_SECONDS: Final = 5.0
LOOKS_UNTIL_STUCK: Final = 2
_STOPPER: Final = "relay stop"
REFUSALS: Final = counter("relay_native_refusals", "Relays that ended because the native engine had no room for them.")
_NO_PAIR: Final = 0
_ENDED_BY_BROKER: Final = frozenset({PairEnd.BROKER_FIN, PairEnd.BROKER_ERROR})
TRUNCATED_STREAMS: Final = counter_by(
    "place",
    "relay_truncations",
    "Relayed TLS streams that ended without close_notify, by where they ended.",
    Truncation,
)


class NativeRelay:
    """A client and its broker in the native engine."""

    __slots__ = (
        "_cause",
        "_drips",
        "_end",
        "_engine",
        "_first",
        "_generation",
        "_half_open",
        "_order",
        "_paused",
        "_permits",
        "broker_name",
        "client_name",
        "commands",
        "counted",
        "detail",
        "hand_over",
        "pair",
        "principal",
        "scanned",
        "traffic",
    )

    def __init__(self, engine: "NativeEngine", hand_over: HandOver, order: RelayOrder) -> None:
        self._engine = engine
        self._order = order
        self.hand_over: HandOver | None = hand_over
        self.pair = _NO_PAIR
        # Whether watch frames are asked about; decided when the relay begins.
        self.scanned = engine.watch.enabled
        # So is whether the messages of the client are counted.
        self.counted = engine.slots.enabled
        self._drips: set[tuple[Direction, bool]] = set()
        self.traffic = RelayTraffic(engine.counters, engine.loop.time(), order.read_timeout_seconds)
        self._first = (b"", b"")
        # The cause of a `close` or `abort` of ours; `_end` is set when the relay is over.
        self._cause: DisconnectCause | None = None
        self._end: DisconnectCause | None = None
        self._half_open = False
        self._paused = [NOT_PAUSED, NOT_PAUSED]
        self._permits: FramePermits | None = None
        # What takes its commands for the log; decided when the pair joins.
        self.commands: LoggedCommands | None = None
        self._generation = 0
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

    def snapshot(self) -> RelaySnapshot:
        """Return the relay as it is now."""
        record = self._look()
        permits, traffic = self._permits, self.traffic
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
            self.traffic.pause_ended(self._engine.loop.time())

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

    def tick(self, now: float) -> None:
        """Update rates and counters; abort the relay if no byte has moved for the read time-out."""
        record = self._look()
        reads = paused = untaken = 0
        if record is not None:
            reads, paused = record.client_reads, record.paused_to_client | record.paused_to_broker
            untaken = record.untaken_bytes
        waits = any(map(stops_the_clock, (paused, *self._paused)))
        if self.traffic.tick(now, reads, lambda: untaken, paused=waits, half_open=self._half_open):
            self.abort(DisconnectCause.READ_TIMEOUT)

    def retire(self, now_or_never: bool) -> None:
        """Close a relay that is old enough, if no byte has moved since the last call or `now_or_never` is set."""
        self._look()
        if self.traffic.idle_since_retire() or now_or_never:
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
        permits.ask_in_turn(self._engine.loop_budget)

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
        if topic is None:
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
        if self._permits is not None:
            self._permits.drained()

    def on_inside(self, size: int) -> None:
        """Take a permit for bytes inside a frame that the client leaves lying, if there is one."""
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
            gone = None if end in _ENDED_BY_BROKER else cause
            self._permits.ended(gone, passed=bool(unanswered & PASSED_AT_END))
            self._permits = None
        self.finish(cause)

    # --- watch frames -----------------------------------------------------------------------------

    def _pass_frames(self, match: FrameMatch) -> None:
        if match.open_bytes:
            self._engine.open_frame(self)
        self._engine.pairs.pass_frames(self.pair, self._generation)

    def _moved_to_client(self) -> int:
        self._look()
        return self.traffic.to_client_bytes

    def rest_passed(self) -> bool:
        """Return whether no part of a frame is still to come, and settle the frame if so."""
        return self._permits is None or self._permits.rest_passed()

    def crashed(self, error: BaseException) -> None:
        """End the relay because of an exception of its own code."""
        self._engine.counters.internal_error(error, "relay")
        self.abort(DisconnectCause.INTERNAL_ERROR)

    @property
    def _frame_permits(self) -> FramePermits:
        if self._permits is None:
            engine, order = self._engine, self._order
            self._permits = FramePermits(
                engine.loop, engine.watch, order, self._pass_frames, self._moved_to_client, self.crashed
            )
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
        traffic = self.traffic
        traffic.add(to_broker - traffic.to_broker_bytes, to_client - traffic.to_client_bytes)


class NativeEngine:
    """Makes relays; a pair for which the threads have no room is closed, which is counted and logged."""

    def __init__(
        self,
        core: Core,
        sockets: Sockets,
        make_pairs: Callable[[], "RelayEngine"],
        watch: WatchLimits,
        slots: TopicSlots,
        relay_log: RelayLog,
    ) -> None:
        self.loop = core.loop
        self.counters = core.counters
        self.watch = watch
        self.slots = slots
        self.pairs: RelayEngine
        self._make_pairs = make_pairs
        self.loop_budget = core.loop_budget
        self._ended = sockets.hangup.ended
        self._bodies = sockets.pump
        self._log = core.log.of("relay")
        self._relay_log = relay_log
        # The numbers of the pool (KIP-72) at the last look.
        pool_bytes = core.config.relay_pool_bytes
        self._pool = PoolRecord(pool_bytes, 0, 0, 0.0, 0, 0.0) if pool_bytes else None
        self._on_died: Callable[[int], None]
        self._pace = LinePace()
        self._relays: dict[int, NativeRelay] = {}
        self._open_frames: dict[NativeRelay, None] = {}
        self._late_looks = 0
        self._running = False
        self._stuck: str | None = None

    def __len__(self) -> int:
        return len(self._relays)

    @property
    def running(self) -> bool:
        """Return whether the threads run."""
        return self._running

    @property
    def stuck(self) -> str | None:
        """Return what is wrong with a thread that stands still; None if all go round."""
        return self._stuck

    def start(self, on_died: Callable[[int], None]) -> None:
        """Start the threads; raises OSError or ValueError. `on_died` gets the number of one that has ended."""
        self._on_died = on_died
        self.pairs = self._make_pairs()
        self._running = True
        self.loop.add_reader(self.pairs.event_fd, self.dispatch)
        self._bodies.threads_started(self.pairs)

    def join(self, client: asyncio.Transport, broker: asyncio.Transport, order: RelayOrder) -> NativeRelay:
        """Return the relay of two connections."""
        return NativeRelay(self, HandOver(self.loop, client, broker), order)

    # --- for the relays -----------------------------------------------------------------------------

    def register(self, relay: NativeRelay, to_client: bytes, to_broker: bytes) -> int | None:
        """Return the number of the relay's new pair; None if the engine has no room: the pair is closed."""
        assert relay.hand_over is not None
        fds = relay.hand_over.take()
        client, broker = (end.session for end in relay.hand_over.ends)
        try:
            if not self._running:
                raise RuntimeError("the relay engine is stopped")
            commands = self._logged(relay)
            tap = None if commands is None else commands.source
            pair = self.pairs.join(
                *fds, to_client, to_broker, relay.scanned, relay.counted, relay.paused, client, broker, tap
            )
        except (OSError, RuntimeError) as error:
            self.refused(error)
            for fd in fds:
                os.close(fd)
            relay.finish(relay.closing or DisconnectCause.CONNECTION_RESET)
            return None
        self._relays[pair], relay.commands = relay, commands
        return pair

    def _logged(self, relay: NativeRelay) -> LoggedCommands | None:
        """Return what takes the commands of a relay that begins now; None if nothing is logged."""
        tap = self._relay_log.tap(relay.client_name, relay.broker_name)
        if tap is None:
            return None
        return LoggedCommands(self.pairs.make_tap(), tap, self.loop_budget, relay.order.network, self.counters)

    def open_frame(self, relay: NativeRelay) -> None:
        """Look each second whether the rest of a frame has passed."""
        self._open_frames[relay] = None

    def refused(self, error: Exception) -> None:
        """Count and log a relay for which the threads have no room."""
        self.counters[REFUSALS].value += 1
        if self._pace.due(self.loop.time()):
            self._log.warning(
                "relay ended: the native engine has no room",
                detail=os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error),
                refused=self.counters[REFUSALS].value,
            )

    # --- events -------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Handle the events that wait, as far as this iteration of the loop has time; `EVENTS_SECONDS` at least."""
        now, spent = self.loop_budget.now, self.loop_budget.spent
        began = now()
        while True:
            events = self.pairs.events(EVENTS_A_STEP)
            self._handle_all(events)
            if len(events) < EVENTS_A_STEP or (spent() and now() - began >= EVENTS_SECONDS):
                # The descriptor stays readable while events are left.
                return

    def _handle_all(self, events: list[EventTuple]) -> None:
        # Events that were fetched do not come again: none is lost for an exception of another.
        for kind, pair, *values, failure in events:
            try:
                self._handle(kind, pair, values, failure)
            except Exception as error:
                self.counters.internal_error(error, "relay engine")

    def _handle(self, kind: int, pair: int, values: list[int], failure: str) -> None:
        if kind == PairEvent.THREAD_DIED:
            self._on_died(values[0])
            return
        if kind == PairEvent.LEFT:
            self._ended.keep(values[0])
            return
        if kind in (PairEvent.BODY_MOVED, PairEvent.BODY_ENDED):
            self._tell_of_body(kind, pair, values)
            return
        relay = self._relays.pop(pair, None) if kind == PairEvent.ENDED else self._relays.get(pair)
        if relay is None:
            return
        try:
            self._tell(relay, kind, values, failure)
        except Exception as error:
            try:
                relay.crashed(error)
            finally:
                if kind == PairEvent.ENDED:
                    relay.finish(DisconnectCause.INTERNAL_ERROR)

    def _tell(self, relay: NativeRelay, kind: int, values: list[int], failure: str) -> None:
        first, second, third, fourth, fifth = values
        if kind == PairEvent.FRAMES:
            relay.on_frames(first, FrameMatch(second, third, fourth, fifth))
        elif kind == PairEvent.PRODUCER:
            relay.on_producer(first)
        elif kind == PairEvent.COMMANDS:
            relay.on_commands()
        elif kind == PairEvent.DRAINED:
            relay.on_drained()
        elif kind == PairEvent.INSIDE:
            relay.on_inside(second)
        elif kind == PairEvent.PASSED:
            relay.on_passed(FrameMatch(second, third, fourth))
        elif kind == PairEvent.UNWALKABLE:
            self.counters[UNWALKABLE].value += 1
        elif kind == PairEvent.ENDED:
            self._open_frames.pop(relay, None)
            if first == PairEnd.PANIC:
                self.counters.internal_error(RuntimeError("a panic in the native engine ended a relay"), "relay engine")
            relay.detail = failure
            relay.on_ended(PairEnd(first), third, fourth, fifth)

    def _tell_of_body(self, kind: int, body: int, values: list[int]) -> None:
        position, error, cause, *_ = values
        if kind == PairEvent.BODY_MOVED:
            self._bodies.body_moved(body, position)
            return
        if cause == PairEnd.PANIC:
            panic = RuntimeError("a panic in the native engine ended a topic list")
            self.counters.internal_error(panic, "relay engine")
        self._bodies.body_ended(body, position, error)

    # --- memory -------------------------------------------------------------------------------------

    def socket_memory(self) -> SocketMemory:
        """Return the kernel memory of the sockets that the threads have."""
        return SocketMemory._make(self.pairs.socket_memory()) if self._running else NO_SOCKET_MEMORY

    @property
    def pool(self) -> PoolRecord | None:
        """The memory that relays share, now or when the threads ended; None without a limit."""
        if self._running:
            self._look_at_pool()
        return self._pool

    def _look_at_pool(self) -> None:
        if self._pool is not None and (found := self.pairs.pool()) is not None:
            self._pool = PoolRecord._make(found)

    def set_tight(self, tight: bool) -> None:
        """Pass on to the threads whether the kernel memory of all sockets is short."""
        if self._running:
            self.pairs.set_tight(tight)

    def heaviest(self) -> Iterator[SocketLoad]:
        """Yield all relays of the threads, those whose sockets hold most first.

        All: who ends is no question of size alone (`socket_bound`).
        """
        for pair, size, moved in self.pairs.heaviest(len(self._relays)) if self._running else ():
            if (relay := self._relays.get(pair)) is not None:
                yield SocketLoad(relay, size, moved)

    def received_memory(self) -> ReceivedMemory:
        """Return what the sockets that the threads have received and nobody has read."""
        return ReceivedMemory._make(self.pairs.received_memory()) if self._running else NOTHING_RECEIVED

    # --- the clock ----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Look at the threads and bodies; called once a second."""
        if not self._running:
            return
        self._bodies.catch_up()
        late = [(millis, index) for index, millis in enumerate(self.pairs.beats()) if millis > STUCK_SECONDS * 1000]
        self._late_looks = self._late_looks + 1 if late else 0
        if self._late_looks < LOOKS_UNTIL_STUCK:
            self._stuck = None
        else:
            millis, index = max(late)
            if self._stuck is None:
                self._log.error("a relay thread stands still", thread=index, seconds=millis // 1000)
            self._stuck = f"relay thread {index} stands still for {millis // 1000} s"

    async def look_at_frames(self) -> None:
        """Look at frames whose rest is still to come, a few in an iteration of the loop; called once a second."""
        for number, relay in enumerate(list(self._open_frames), 1):
            if relay in self._open_frames:
                self._look_at_frame(relay)
            if not number % LOOKS_A_TURN:
                await asyncio.sleep(0)
                if not self._running:
                    return

    def _look_at_frame(self, relay: NativeRelay) -> None:
        try:
            if not relay.rest_passed():
                return
        except Exception as error:
            relay.crashed(error)
        self._open_frames.pop(relay, None)

    # --- the end ------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End all relays, cut the bodies that are under way, and wait until the threads have ended."""
        if self._running:
            self._running = False
            await in_thread(self.pairs.stop, _STOPPER, None)
            self.loop.remove_reader(self.pairs.event_fd)
            self._look_at_pool()
            while events := self.pairs.events(EVENTS_A_STEP):
                self._handle_all(events)
            # A thread that died may not have told of its pairs and bodies.
            self._bodies.threads_stopped()
            for relay in list(self._relays.values()):
                relay.finish(DisconnectCause.SHUTDOWN)
            # The threads' descriptors are closed with the last reference.
            del self.pairs

    def abandon(self) -> None:
        """Stop the threads without waiting for them: the process is about to end."""
        if self._running:
            self._running = False
            self.loop.remove_reader(self.pairs.event_fd)
            self._look_at_pool()
            start_thread(self.pairs.stop, _STOPPER)


def _behind(end: LeavingEnd) -> bytes:
    """Return what arrived while a connection left the loop; a session of TLS keeps it for its next owner."""
    if end.session is None:
        return bytes(end.received)
    end.session.keep(bytes(end.received))
    return b""
