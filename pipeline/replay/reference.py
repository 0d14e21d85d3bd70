"""What other limits would have done, in plain Python: what `kernel` must reproduce bit for bit, and its stand-in.

It reads like the proxy's own path of a topic list: a group of equal requests takes heap memory for an estimate, in its
broker's line and in the common one, asks, grows to the answer's size, waits until a client can take the list, takes
direct memory, and is written to each member. Time is virtual; nothing of the limiter's package is used.
"""

from functools import partial

import numpy as np

from pipeline.replay.lines import Line, Permit, QueueFull, WaitedTooLong
from pipeline.replay.members import Client, Group, Member, Span
from pipeline.replay.model import LISTS_AT_ONCE, MILLION, NEVER, Limits, Outcome, Phase, Result, Trace
from pipeline.replay.turns import Turns
from pipeline.replay.virtual import Stopped, Task, TimedOut, VirtualTime, Wait

__all__ = ["replay"]

SPANS = ("heap", "update", "direct")


def replay(trace: Trace, limits: Limits, load: int = 1, warm_up: int = 0) -> Result:
    """Replay a trace with arrivals `load` times as fast; raises ValueError for what is no trace.

    The questions of the first `warm_up` requests are not counted.
    """
    trace.check()
    return _Replay(trace, limits, load, warm_up).run()


class _TooLarge(Exception):
    """Tells that an answer is above what may be read."""


class _Broker:
    """What bounds the questions to one broker: the estimates held for them, and their number."""

    def __init__(self, time: VirtualTime, limits: Limits) -> None:
        half = max(1, limits.heap_bytes // 2) if limits.heap_bytes > 0 else 0
        self.estimates = Line(time, half, max_queue=limits.heap_queue, timeout_us=limits.heap_timeout_us)
        self.questions = Line(time, limits.max_outstanding_per_broker)
        _share(self.estimates, limits)
        _share(self.questions, limits)


def _share(line: Line, limits: Limits) -> None:
    if limits.fairness != "fifo":
        line.order = Turns(line, limits.key_cap_percent)


class _Replay:
    """One replay, from the first arrival to the last end."""

    def __init__(self, trace: Trace, limits: Limits, load: int, warm_up: int) -> None:
        self._limits = limits
        self._warm_up = warm_up
        self._time = time = VirtualTime()
        self._arrival = (trace.arrival_us // load).tolist()
        self._need = {name: getattr(trace, name).tolist() for name in trace.__slots__}
        self._kept_ppm = trace.kept_ppm.tolist()
        self._heap = Line(time, limits.heap_bytes, max_queue=limits.heap_queue, timeout_us=limits.heap_timeout_us)
        self._direct = Line(
            time,
            limits.direct_bytes,
            max_queue=limits.direct_queue,
            timeout_us=limits.direct_timeout_us,
            phase=Phase.DIRECT_DEADLINE,
        )
        _share(self._heap, limits)
        _share(self._direct, limits)
        self._brokers: dict[int, _Broker] = {}
        self._clients: dict[int, Client] = {}
        self._joinable: dict[int, Group] = {}
        self._asked: dict[int, Group] = {}
        self._questions = 0
        n = len(trace)
        self._outcome = np.zeros(n, np.int8)
        self._waits = {name: np.zeros(n, np.int64) for name in SPANS}
        self._end = np.zeros(n, np.int64)

    def run(self) -> Result:
        """Let all arrive, in order, and everything happen that follows."""
        self._arrive_from(0)
        self._time.run()
        return Result(
            outcome=self._outcome,
            heap_wait_us=self._waits["heap"],
            heap_update_wait_us=self._waits["update"],
            direct_wait_us=self._waits["direct"],
            end_us=self._end,
            peak_heap_bytes=self._heap.peak,
            peak_direct_bytes=self._direct.peak,
            questions=self._questions,
        )

    # --- a request --------------------------------------------------------------------------------

    def _arrive_from(self, index: int) -> None:
        """Have request `index` arrive at its time, and then the next: one at a time in the list of events."""
        if index < len(self._arrival):
            self._time.at(self._arrival[index], Phase.ARRIVAL, partial(self._arrive, index), order=index)

    def _arrive(self, index: int) -> None:
        number = self._need["client"][index]
        client = self._clients.get(number)
        if client is None:
            client = self._clients[number] = Client(self._time)
        member = Member(self._time, index, client, self._need["share"][index], self._time.now)
        leaves_after = self._need["cancel_us"][index]
        if leaves_after != NEVER:
            self._time.at(self._time.now + leaves_after, Phase.LEAVING, partial(self._leave_early, member), order=index)
        if client.under_way < LISTS_AT_ONCE and not client.behind:
            self._start(member)
        else:
            client.behind[member] = None
        self._arrive_from(index + 1)

    def _start(self, member: Member) -> None:
        member.client.under_way += 1
        member.task = Task(self._time, self._serve(member))

    async def _serve(self, member: Member) -> None:
        """Wait for the group's answer and write it, all under the request's own clock until writing begins."""
        member.started = self._time.now
        deadline = member.arrival + self._limits.request_timeout_us
        if deadline <= self._time.now:
            self._finish(member, Outcome.TIMEOUT_OTHER)
            return
        self._time.at(deadline, Phase.REQUEST_DEADLINE, partial(self._time_out, member), order=member.index)
        group = self._join(member)
        outcome = Outcome.CANCELLED
        try:
            outcome = await self._take_answer(group, member)
        except TimedOut:
            outcome = group.stage
        except Stopped:
            pass
        self._leave(group, member)
        self._finish(member, outcome, group)

    async def _take_answer(self, group: Group, member: Member) -> Outcome:
        outcome: Outcome = await member.answer
        if outcome is not Outcome.OK:
            return outcome
        client = member.client
        await client.begin_to_write()
        try:
            member.redeem()
            member.clock_runs = False
            self._shrink(group, member)
            await self._time.sleep(self._need["write_us"][member.index])
        finally:
            client.end_to_write()
        return outcome

    def _shrink(self, group: Group, member: Member) -> None:
        """Give back what of a list for one is not held, on the average, while it is written."""
        if group.alone and group.direct is not None:
            self._direct.try_update(group.direct, group.direct.size * self._kept_ppm[member.index] // MILLION)

    def _time_out(self, member: Member) -> None:
        if not member.ended and member.clock_runs and member.task is not None:
            member.task.stop(TimedOut())

    def _leave_early(self, member: Member) -> None:
        if member.ended:
            return
        if member.task is not None:
            member.task.stop(Stopped())
        else:
            del member.client.behind[member]
            self._record(member, Outcome.CANCELLED, None)

    def _finish(self, member: Member, outcome: Outcome, group: Group | None = None) -> None:
        """Record how it ended, and let the next of its client start."""
        self._record(member, outcome, group)
        client = member.client
        client.under_way -= 1
        if client.behind:
            following = next(iter(client.behind))
            del client.behind[following]
            self._start(following)

    def _record(self, member: Member, outcome: Outcome, group: Group | None) -> None:
        member.ended = True
        now = self._end[member.index] = self._time.now
        self._outcome[member.index] = outcome
        for name, span in group.spans.items() if group is not None else ():
            self._waits[name][member.index] = span.part_of(member, int(now))

    # --- groups -----------------------------------------------------------------------------------

    def _join(self, member: Member) -> Group:
        question = self._need["question"][member.index]
        group = self._joinable.get(question) if self._limits.coalescing else None
        if group is None:
            group = Group(self._time, member.index, question)
            if self._limits.coalescing:
                self._joinable[question] = group
                group.predecessor = self._asked.get(question)
            group.task = Task(self._time, self._work(group))
        group.add(member)
        return group

    def _leave(self, group: Group, member: Member) -> None:
        group.remove(member)
        if group.members:
            return
        self._ended(group)
        if group.direct is None:
            group.end_work()
        else:
            self._direct.release(group.direct)

    def _write_question(self, group: Group) -> None:
        self._questions += group.leader >= self._warm_up
        if self._joinable.get(group.question) is group:
            del self._joinable[group.question]
            self._asked[group.question] = group

    def _answer_begun(self, group: Group) -> None:
        if self._asked.get(group.question) is group:
            del self._asked[group.question]
        group.begin()

    def _ended(self, group: Group) -> None:
        if self._joinable.get(group.question) is group:
            del self._joinable[group.question]
        self._answer_begun(group)

    async def _work(self, group: Group) -> None:
        try:
            await self._exchange(group)
        except WaitedTooLong:
            self._settle(group, group.stage)
        except QueueFull:
            heap = group.stage is Outcome.TIMEOUT_HEAP
            self._settle(group, Outcome.QUEUE_FULL_HEAP if heap else Outcome.QUEUE_FULL_DIRECT)
        except _TooLarge:
            self._settle(group, Outcome.OVERSIZE)
        finally:
            group.task = None
            self._ended(group)

    def _settle(self, group: Group, outcome: Outcome) -> None:
        for member in group.members:
            member.answer.wake(outcome)

    # --- the way of a group -----------------------------------------------------------------------

    async def _exchange(self, group: Group) -> None:
        """Take heap memory for the estimate, first in the broker's line and then in the common one, and go on."""
        await group.await_predecessor()
        broker = self._broker(self._need["broker"][group.leader])
        estimate = self._need["estimate_bytes"][group.leader]
        gate, memory = broker.estimates, self._heap
        group.stage = Outcome.TIMEOUT_HEAP
        group.spans["heap"] = Span(self._time.now)
        entered = await gate.acquire(estimate, group.claim(gate, estimate))
        try:
            heap = await memory.acquire(estimate, group.claim(memory, estimate))
            group.spans["heap"].until = self._time.now
            try:
                await self._answer(group, broker, entered, heap)
            finally:
                memory.release(heap)
        finally:
            gate.release(entered)

    async def _answer(self, group: Group, broker: _Broker, entered: Permit, heap: Permit) -> None:
        await self._ask(group, broker, entered, heap)
        group.stage = Outcome.TIMEOUT_OTHER
        await self._time.sleep(self._need["hold_us"][group.leader])
        await group.await_a_reader()
        group.stage = Outcome.TIMEOUT_DIRECT
        group.spans["direct"] = Span(self._time.now)
        size = self._need["direct_bytes"][group.leader]
        group.direct = await self._direct.acquire(size, group.claim(self._direct, size))
        group.spans["direct"].until = self._time.now
        group.alone = len(group.members) == 1
        self._heap.release(heap)
        group.stage = Outcome.TIMEOUT_OTHER
        self._settle(group, Outcome.OK)

    async def _ask(self, group: Group, broker: _Broker, entered: Permit, heap: Permit) -> None:
        """Put the question and have memory for its answer; others may be asked as soon as that begins."""
        group.stage = Outcome.TIMEOUT_OTHER
        slot = await broker.questions.acquire(1, group.claim(broker.questions, 1))
        self._write_question(group)
        admitted = Wait(self._time)
        begins = partial(self._begin_answer, group, broker, slot, entered, heap, admitted)
        self._time.at(self._time.now + self._need["upstream_us"][group.leader], Phase.DONE, begins)
        if not await admitted:
            await self._heap.update(heap, self._need["heap_bytes"][group.leader])
        group.spans["update"].until = self._time.now

    def _begin_answer(
        self, group: Group, broker: _Broker, slot: Permit, entered: Permit, heap: Permit, admitted: Wait
    ) -> None:
        broker.questions.release(slot)
        broker.estimates.release(entered)
        self._answer_begun(group)
        if admitted.over:
            return  # nobody waits for it any more
        limit = self._limits.answer_limit_bytes
        if self._need["direct_bytes"][group.leader] > limit > 0:
            admitted.wake(error=_TooLarge())
            return
        group.stage = Outcome.TIMEOUT_HEAP_UPDATE
        group.spans["update"] = Span(self._time.now)
        admitted.wake(self._heap.try_update(heap, self._need["heap_bytes"][group.leader]))

    def _broker(self, number: int) -> _Broker:
        broker = self._brokers.get(number)
        if broker is None:
            broker = self._brokers[number] = _Broker(self._time, self._limits)
        return broker
