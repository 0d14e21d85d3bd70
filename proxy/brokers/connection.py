"""Request connections to brokers: CONNECT, correlation by request id, admission before reading.

The head of an answer that may be large reaches its request before the body is read. A request that must wait for memory
pauses the whole connection (PIP-442's update, taken before the memory is spent); the requests after it keep their own
estimates. While a connection is paused its clocks stand still and PINGs go out, so that neither side takes it for dead.
Pauses that follow each other without a break count as one pause: after twice the acquire timeout nothing waits here any
more.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from protocol import commands
from protocol.command_type import CommandType, request_id_field
from protocol.errors import MalformedFrame, ProtocolError, ServerError
from protocol.frames import Frame, FrameHead
from protocol.framing import NEED_DATA, PAUSED, BodyEnd, FrameAnnounced, FrameDecoder
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SlabBody
from protocol.states import ConnectionState, Role, State, Verdict
from proxy.brokers.clocks import BrokerClocks
from proxy.brokers.endpoint import FRAMES_PER_TURN, MOST_CHALLENGES, BrokerEndpoint, goes_on_asking
from proxy.brokers.request import BrokerRequest, Decision
from proxy.core.counters import Counters, counter
from proxy.core.errors import (
    ConnectionClosed,
    DisconnectCause,
    OutOfMemory,
    QuestionUnanswered,
    RequestFailed,
    protocol_cause,
)
from proxy.core.loop_budget import TASK_SECONDS, LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import SMALL_READ_BYTES, SharedReadBuffer

# Whole small answers up to this size are stored without a permit: a fixed cost per connection (docs/memory.md).
SMALL_ANSWER_BYTES: Final = 16 * 1024
# A read of small answers, and a read of up to 256 KiB of a large answer.
READ_SECONDS: Final = 0.00005
BODY_READ_SECONDS: Final = 0.0002
# Questions of a connection that were given up and may still be answered; a broker that leaves more is silent.
MOST_GIVEN_UP: Final = 1000
LARGE_ANSWERS: Final = frozenset({CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE, CommandType.GET_SCHEMA_RESPONSE})

PAUSES: Final = counter("broker_connection_pauses", "Pauses in reading a broker connection for lack of memory.")
UNANSWERED_QUESTIONS: Final = counter(
    "unanswered_broker_questions", "Questions that a broker left unanswered on a connection that goes on."
)
UNKNOWN_ANSWERS: Final = counter("unknown_broker_answers", "Answers of brokers that no request waited for.")

T = TypeVar("T")


class Reports(NamedTuple):
    """Where a connection counts, and what its pool hears of it.

    `changed`: it became ready, idle, paused or resumed. `answered`: the first answer to a question begins.
    `challenged`: the broker wants credentials, and `respond` or `give_up` ends that. `fail` gets questions that will
    have no answer: each is told once, a few in each turn of the loop.
    """

    counters: Counters
    changed: Callable[["BrokerConnection"], None]
    answered: Callable[["BrokerConnection"], None]
    lost: Callable[["BrokerConnection", DisconnectCause], None]
    challenged: Callable[["BrokerConnection", pb.CommandAuthChallenge], None]
    fail: Callable[[Iterable[BrokerRequest], Exception], None]


class BrokerConnection(BrokerEndpoint):
    """Ask a broker questions and correlate the answers.

    `ready` completes when the broker has sent CONNECTED, or fails with ConnectionClosed or RequestFailed.
    """

    __slots__ = (
        "_asked",
        "_awaits_pong",
        "_chained",
        "_challenged",
        "_challenges",
        "_connect_frame",
        "_decoder",
        "_diverted",
        "_given_up",
        "_next_request_id",
        "_pause_began",
        "_paused_for",
        "_pinged_at",
        "_reports",
        "_state",
        "answered",
        "last_used",
        "ready",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedReadBuffer,
        hangup: HangupWatcher,
        loop_budget: LoopBudget,
        reports: Reports,
        connect_frame: bytes,
    ) -> None:
        super().__init__(loop, shared, hangup, loop_budget)
        self._challenged = False
        # Challenges before CONNECTED that got an answer.
        self._challenges = 0
        self._reports = reports
        self._connect_frame = connect_frame
        self._decoder = FrameDecoder(announce_above=SMALL_ANSWER_BYTES, announce_types=LARGE_ANSWERS)
        self._asked: dict[int, BrokerRequest] = {}
        self._given_up: set[int] = set()
        self._next_request_id = 0
        self._diverted: BrokerRequest | None = None
        self._paused_for: BrokerRequest | None = None
        self._pause_began = 0.0
        self._chained = False
        self._state = ConnectionState(Role.BROKER)
        self._awaits_pong = False
        self._pinged_at = self.last_used = loop.time()
        # A question has got an answer, or the head of one.
        self.answered = False
        self.ready: asyncio.Future[None] = loop.create_future()

    # --- asking -----------------------------------------------------------------------------------

    @property
    def outstanding(self) -> int:
        """Count the questions whose answer has not passed."""
        return len(self._asked)

    def question(self, request_id: int) -> BrokerRequest | None:
        """Return a question whose answer has not passed."""
        return self._asked.get(request_id)

    @property
    def usable(self) -> bool:
        """Return whether a new question may be asked: connected, not paused for memory, and no unsent bytes."""
        if self.cause is not None or self.transport is None or self._paused_for is not None:
            return False
        return self.writable is True and self.ready.done() and self.ready.exception() is None

    @property
    def at_rest(self) -> bool:
        """Return whether the connection is usable, and has no question whose answer has not passed."""
        return not self._asked and self.usable

    @property
    def paused(self) -> bool:
        """Return whether reading waits for a permit."""
        return self._paused_for is not None

    @property
    def unasked(self) -> bool:
        """Return whether the connection has never been asked anything."""
        return not self._next_request_id

    def new_request_id(self) -> int:
        """Return a request id that is unique on this connection."""
        self._next_request_id += 1
        return self._next_request_id

    def ask(self, question: BrokerRequest, request_id: int, frame: bytes) -> None:
        """Write a request; `question` is called with its answer, or at the connection's end.

        Raises ConnectionClosed if the connection has ended.
        """
        if not self.open:
            error = ConnectionClosed(self.cause or DisconnectCause.BROKER_CLOSED)
            question.failed(error)
            raise error
        now = self.loop.time()
        self.last_used = now
        self._asked[request_id], question.asked_at = question, now
        self.write_soon(frame)

    def accept(self, question: BrokerRequest, sink: SlabBody) -> None:
        """Read the answer the connection is paused for into `sink`, and go on."""
        if self._paused_for is question:
            self._diverted = question
            self._go_on(partial(self._store, partial(self._decoder.divert, sink)))

    def dismiss(self, question: BrokerRequest) -> None:
        """Store nothing (more) of the answer to `question`: the client has left, or there is no memory for it."""
        if self._paused_for is question:
            self._go_on(self._decoder.skip)
        elif self._diverted is question:
            self._diverted = None
            self._decoder.skip()

    def respond(self, frame: bytes) -> None:
        """Answer the broker's challenge."""
        self._challenged = False
        self.write(frame)

    def give_up(self, error: Exception, cause: DisconnectCause) -> None:
        """End a connection whose challenge nobody can answer; a task that waits for `ready` gets `error`."""
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()
        self.abort(cause)

    def pause_budget(self, longest_seconds: float) -> float:
        """Compute how long the pause under way may last, given how long the chain of pauses may last in all."""
        return max(0.0, self._pause_began + longest_seconds - self.loop.time())

    # --- socket -----------------------------------------------------------------------------------

    def adopt(self, transport: asyncio.Transport) -> None:
        """Send CONNECT as soon as the connection is there."""
        super().adopt(transport)
        self.write(self._connect_frame)
        self._connect_frame = b""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return space in the body's sink while a body is read, else the shared buffer."""
        if self._decoder.diverting and (room := self._store(self._decoder.writable)) is not None:
            return room
        return self._shared.small

    def resume_writing(self) -> None:
        """Take questions again: the broker has taken what was written."""
        super().resume_writing()
        self._reports.changed(self)

    def buffer_updated(self, nbytes: int) -> None:
        """Decode what has arrived; an exception here ends this connection and nothing else."""
        if self.cause is not None:
            return
        self._awaits_pong = False
        decoder, budget = self._decoder, self._loop_budget
        diverting = decoder.diverting
        try:
            if diverting:
                self._store(partial(decoder.advance, nbytes))
            else:
                decoder.receive_data(self._shared.small[:nbytes])
            if self._behind:
                # A transport may deliver once more after a pause.
                return
            if diverting or not budget.spent():
                self._process()
            else:
                self._fall_behind(answers=True)
        except ProtocolError as error:
            self.abort(protocol_cause(error))
        except Exception as error:
            self.crashed(error)
        if decoder.diverting:
            if budget.spent():
                self.rest(budget, BODY_READ_SECONDS)
        elif not diverting and nbytes >= SMALL_READ_BYTES:
            # The broker has more to say, and each iteration of the loop hears one read of it.
            self.rest(budget, READ_SECONDS, answers=True)

    def crashed(self, error: BaseException) -> None:
        """End this connection because of an exception of its own, and report it."""
        self._reports.counters.internal_error(error, "broker connection")
        super().crashed(error)

    def lost(self, cause: DisconnectCause) -> None:
        """Fail every question that waits; thousands of tasks that go on at once would keep the loop for seconds."""
        error = self.closed(cause, "the connection to the broker ended")
        asked, self._asked = self._asked, {}
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()
        self._paused_for = self._diverted = None
        self._reports.fail(list(asked.values()), error)
        self._reports.lost(self, cause)

    def tick(self, now: float, clocks: BrokerClocks) -> None:
        """Check the clocks, at least once a second: end a silent connection, send a PING when it is due."""
        if not self.open or not self.ready.done():
            return
        if not self.paused and self._silent(now, clocks.answer_timeout_seconds):
            self.abort(DisconnectCause.BROKER_SILENT)
        elif not self._asked and now - self.last_used > clocks.idle_seconds:
            self.close(DisconnectCause.IDLE)
        elif clocks.keep_alive_seconds and now - self._pinged_at >= clocks.keep_alive_seconds:
            # Store the last PING time, not the next: the interval can change by reload.
            self._pinged_at = now
            self._ping()

    def _silent(self, now: float, longest_seconds: float) -> bool:
        """Return whether the broker has stopped answering altogether; fail the questions that are overdue.

        A broker that answers nothing leaves a PING unanswered, too: the PING goes out at half of `longest_seconds`. So
        a question that a broker cannot answer ends no other.
        """
        half, overdue, silent = longest_seconds / 2, list[BrokerRequest](), False
        ping_unanswered = self._awaits_pong and now - self._pinged_at >= half
        for request_id, question in list(islice(self._asked.items(), MOST_GIVEN_UP)):
            age = now - question.asked_at
            if age > half and not self._awaits_pong:
                self._awaits_pong, self._pinged_at = True, now
                self.write(commands.PING_FRAME)
            if age <= longest_seconds:
                break
            if ping_unanswered or self._diverted is question or len(self._given_up) >= MOST_GIVEN_UP:
                silent = True
                break
            # The answer is passed over if it comes yet.
            del self._asked[request_id]
            self._given_up.add(request_id)
            self._reports.counters[UNANSWERED_QUESTIONS].value += 1
            overdue.append(question)
        if overdue:
            # A single call for all: the pool fails the first few of each call without a wait.
            error = QuestionUnanswered("the broker left a question unanswered for 30 s or more")
            self._reports.fail(overdue, error)
        return silent or (bool(self._given_up) and ping_unanswered)

    def _ping(self) -> None:
        if self.paused:
            # The PONG cannot be read now, but the PING tells the broker that this side lives; so do bytes that wait.
            if not self.write_pending:
                self.write(commands.PING_FRAME)
        elif self._awaits_pong:
            self.abort(DisconnectCause.KEEP_ALIVE_TIMEOUT)
        else:
            self._awaits_pong = True
            self.write(commands.PING_FRAME)

    # --- frames -----------------------------------------------------------------------------------

    def _process(self) -> None:
        decoder, budget, frames = self._decoder, self._loop_budget, 0
        while self.cause is None:
            pings, _ = decoder.take_keep_alives()
            if pings:
                self.answer_ping()
            event = decoder.next_event()
            if event is NEED_DATA or event is PAUSED:
                return
            if isinstance(event, Frame):
                self._on_frame(event)
            elif isinstance(event, FrameAnnounced):
                self._on_response_head(event.head)
            elif isinstance(event, BodyEnd):
                self._on_body_end(event)
            frames += 1
            if decoder.stored_bytes and not decoder.paused and (frames >= FRAMES_PER_TURN or budget.spent()):
                self._fall_behind(answers=True)
                return

    def _on_frame(self, frame: Frame) -> None:
        kind = frame.head.command_type
        if kind is None:
            raise MalformedFrame("got a command whose type does not stand first")
        verdict = self._state.judge(kind)
        if verdict is Verdict.CLOSE:
            self.abort(DisconnectCause(self._state.close_cause(kind)))
        elif kind == CommandType.PING:
            self.answer_ping()
        elif verdict is Verdict.SERVE and kind != CommandType.PONG:
            command = commands.decode_command(frame.command)
            if kind == CommandType.AUTH_CHALLENGE:
                self._on_challenge(command.authChallenge)
            elif self._state.state is State.CONNECTING:
                self._on_handshake(command)
            else:
                self._on_answer(command)

    def _on_handshake(self, command: pb.BaseCommand) -> None:
        if command.type == CommandType.CONNECTED:
            self._state.enter(State.READY)
            self.ready.set_result(None)
            self._reports.changed(self)
            return
        if command.type == CommandType.ERROR:
            self.ready.set_exception(RequestFailed(command.error.error, command.error.message))
        else:
            self.ready.set_exception(
                RequestFailed(
                    ServerError.ServiceNotReady,
                    f"the broker answered CONNECT with command type {command.type}",
                )
            )
        self.ready.exception()
        self.abort(DisconnectCause.BROKER_REFUSED)

    def _on_challenge(self, challenge: pb.CommandAuthChallenge) -> None:
        # A broker asks once and waits; a broker that goes on asking gets no more work.
        if self._challenged:
            return
        if self._state.state is State.CONNECTING:
            if self._challenges == MOST_CHALLENGES:
                self.give_up(goes_on_asking(), DisconnectCause.BROKER_REFUSED)
                return
            self._challenges += 1
        self._challenged = True
        # The answer is made in the next iteration of the loop.
        self._loop_budget.charge(TASK_SECONDS)
        self._reports.challenged(self, challenge)

    def _on_answer(self, command: pb.BaseCommand) -> None:
        field = request_id_field(command.type)
        if field is None:
            self._reports.counters[UNKNOWN_ANSWERS].value += 1
            return
        request_id = getattr(command, field).request_id
        question = self._asked.pop(request_id, None)
        if question is None:
            self._passed_over(request_id)
            return
        # The request goes on in the next iteration of the loop.
        self._loop_budget.charge(TASK_SECONDS)
        self._note_answer()
        question.answered(command)
        self._answer_passed()

    def _on_response_head(self, head: FrameHead) -> None:
        asked = self._asked.get(head.request_id) if head.request_id is not None else None
        if asked is None:
            self._passed_over(head.request_id)
            self._decoder.skip()
            return
        self._note_answer()
        decision = asked.on_response_head(head)
        if decision is Decision.SKIP:
            self._decoder.skip()
        elif decision is Decision.WAIT:
            self._stop_for(asked)
        else:
            self._chained = False
            self._diverted = asked
            self._store(partial(self._decoder.divert, decision))

    def _store(self, step: Callable[[], T]) -> T | None:
        """Return what a step that stores an answer returns; without memory its question fails, and others read on."""
        try:
            return step()
        except MemoryError:
            question = self._diverted
            assert question is not None
            self.dismiss(question)
            question.failed(OutOfMemory())
            return None

    def _on_body_end(self, end: BodyEnd) -> None:
        self._diverted = None
        if end.head.request_id is not None:
            self._given_up.discard(end.head.request_id)
        asked = self._asked.pop(end.head.request_id, None) if end.head.request_id is not None else None
        if asked is not None:
            if not end.skipped:
                asked.body_complete()
            self._answer_passed()

    def _passed_over(self, request_id: int | None) -> None:
        if request_id in self._given_up:
            self._given_up.remove(request_id)
        else:
            self._reports.counters[UNKNOWN_ANSWERS].value += 1

    def _note_answer(self) -> None:
        if not self.answered:
            self.answered = True
            self._reports.answered(self)

    def _answer_passed(self) -> None:
        self.last_used = self.loop.time()
        self._reports.changed(self)

    def _stop_for(self, question: BrokerRequest) -> None:
        now = self.loop.time()
        if not self._chained:
            self._pause_began = now
        self._chained = True
        self._paused_for = question
        self.pause_reading()
        self._reports.counters[PAUSES].value += 1

    def _go_on(self, decide: Callable[[], None]) -> None:
        self._paused_for = None
        self._awaits_pong = False
        now = self.loop.time()
        for asked in self._asked.values():
            asked.asked_at = now
        try:
            self.resume_reading()
            decide()
            self._process()
        except ProtocolError as error:
            self.abort(protocol_cause(error))
        except Exception as error:
            # The caller is the task of one question; what is here belongs to others as well.
            self.crashed(error)
        self._reports.changed(self)
