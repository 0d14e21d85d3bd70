"""The relay engine on threads of its own: sockets and sessions of TLS, moved by the native extension (docs/adr/0037).

Python decides, the threads move and scan bytes; they never call Python. News of theirs are events, taken in bounded
steps within the loop's budget. The same threads write topic lists for the pump (docs/adr/0045). A look each second
notices a thread that stands still.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from proxy.core.counters import Counters, counter
from proxy.core.errors import DisconnectCause
from proxy.core.log import LinePace, Logger
from proxy.core.loop_budget import LoopBudget
from proxy.core.threads import in_thread, start_thread
from proxy.net.ended_sockets import EndedSockets
from proxy.net.pump import Pump
from proxy.relay.engine import RelayOrder
from proxy.relay.hand_over import HandOver
from proxy.relay.logged_commands import LoggedCommands
from proxy.relay.memory.sockets import NO_SOCKET_MEMORY, NOTHING_RECEIVED, ReceivedMemory, SocketLoad, SocketMemory
from proxy.relay.native_api import EventTuple, PairEnd, PairEvent
from proxy.relay.native_relay import NativeRelay
from proxy.relay.relay_log import RelayLog
from proxy.relay.topic_slots import TopicSlots
from proxy.relay.watch_limits import UNWALKABLE, FrameMatch, WatchLimits

if TYPE_CHECKING:
    from proxy.core.native import RelayEngine
    from proxy.relay.memory.pool import RelayPool

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


class NativeEngine:
    """Makes relays; `on_died` is called with the number of a thread that has ended.

    A pair for which the threads have no room is closed, which is counted and logged.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make_pairs: Callable[[], "RelayEngine"],
        loop_budget: LoopBudget,
        counters: Counters,
        watch: WatchLimits,
        ended: EndedSockets,
        bodies: Pump,
        log: Logger,
        on_died: Callable[[int], None],
        slots: TopicSlots | None = None,
        relay_log: RelayLog | None = None,
        pool: "RelayPool | None" = None,
    ) -> None:
        self.loop = loop
        self.counters = counters
        self.watch = watch
        self.slots = slots
        self.pairs: RelayEngine
        self._make_pairs = make_pairs
        self.loop_budget = loop_budget
        self._ended = ended
        self._bodies = bodies
        self._log = log
        self._relay_log = relay_log
        self._pool = pool
        self._on_died = on_died
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

    def start(self) -> None:
        """Start the threads; raises OSError or ValueError."""
        self.pairs = self._make_pairs()
        self._running = True
        self.loop.add_reader(self.pairs.event_fd, self.dispatch)
        self._bodies.threads_started(self.pairs)
        if self._pool is not None:
            self._pool.use(self.pairs.pool)

    def join(self, client: asyncio.Transport, broker: asyncio.Transport, order: RelayOrder) -> NativeRelay:
        """Return the relay of two connections."""
        return NativeRelay(self, HandOver(self.loop, client, broker), order)

    # --- for the relays (native_relay.PairOwner) ----------------------------------------------------

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
        log = self._relay_log
        tap = None if log is None else log.tap(relay.client_name, relay.broker_name)
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

    def set_tight(self, tight: bool) -> None:
        """Pass on to the threads whether the kernel memory of all sockets is short."""
        if self._running:
            self.pairs.set_tight(tight)

    def heaviest(self) -> Iterator[SocketLoad]:
        """Yield all relays of the threads, those whose sockets hold most first.

        All: who ends is no question of size alone (`memory.bound`).
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
            if self._pool is not None:
                self._pool.close()
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
            if self._pool is not None:
                self._pool.close()
            start_thread(self.pairs.stop, _STOPPER)
