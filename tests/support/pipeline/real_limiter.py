"""A trace driven through the real limiter: the oracle of `pipeline.replay`.

Semaphores, groups, lanes and payers are those of the proxy, on asyncio's loop; only time is virtual, and what happens
in the same microsecond happens in the order of `Phase`: one event, then everything that follows from it, then the next.
"""

import asyncio
import heapq
import itertools
import math
import selectors
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np

from limiter.errors import PermitAcquireQueueFull, PermitAcquireTimeout
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from pipeline.core.model import LISTS_AT_ONCE, MILLION, NEVER, Limits, Outcome, Phase, Result, Trace
from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.target import BrokerAddress
from proxy.net.write_watch import WriteLock
from proxy.requests.client import Client
from proxy.requests.topic_lists.bodies import EncodedList
from proxy.requests.topic_lists.groups import GroupMember, ListGroup, ListGroups, await_a_reader
from proxy.telemetry.events.timeline import Step
from proxy.telemetry.refusals import Stage

TICKS = 1 << 40  # of the limiter's clock to a microsecond: no two waits of it begin in the same tick
LATER = 2.0**-24  # of a microsecond, by which the clock of the next request ends later: their order at one moment


class Schedule(selectors.DefaultSelector):
    """What happens, and when: time goes on when the loop has nothing left to do."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.on_over: Callable[[], object] = lambda: None
        self._order = itertools.count()
        self._events: list[tuple[int, Phase, float, int, Callable[[], object]]] = []

    def at(self, when: int, phase: Phase, order: float, call: Callable[[], object]) -> None:
        heapq.heappush(self._events, (when, phase, order, next(self._order), call))

    def after(self, duration: int, call: Callable[[], object]) -> None:
        self.at(self.now + duration, Phase.DONE, next(self._order), call)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout != 0:
            if not self._events:
                self.on_over()
                return []
            self.now, _, _, _, call = heapq.heappop(self._events)
            call()
        return []


class ScheduledLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, whose timers are events of the schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        super().__init__(schedule)

    def time(self) -> float:
        return float(self.schedule.now)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        whole = math.floor(when)
        self.schedule.at(whole, Phase.REQUEST_DEADLINE, when - whole, partial(_run, handle, callback, args))
        return handle


def _run(handle: asyncio.TimerHandle, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
    if not handle.cancelled():
        callback(*args)


class LimiterClock:
    """The limiter's clock: in each microsecond it goes on by a tick whenever it is read."""

    def __init__(self, schedule: Schedule, phase: Phase, ticks: "itertools.count[int]") -> None:
        self._schedule = schedule
        self._phase = phase
        self._ticks = ticks
        self._firing: int | None = None

    def time(self) -> int:
        return self._schedule.now * TICKS + next(self._ticks) if self._firing is None else self._firing

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, asyncio.get_running_loop())
        tick = int(when)
        fire = partial(self._fire, tick, handle, callback, args)
        self._schedule.at(tick // TICKS, self._phase, tick % TICKS, fire)
        return handle

    def _fire(self, tick: int, *timer: Any) -> None:
        self._firing = tick
        _run(*timer)
        self._firing = None


class _Lanes:
    def __init__(self, limits: Limits, clock: LimiterClock) -> None:
        half = max(1, limits.heap_bytes // 2) if limits.heap_bytes > 0 else 0
        self.estimates = _semaphore(limits, half, limits.heap_queue, limits.heap_timeout_us * TICKS, clock)
        self.questions = _semaphore(limits, limits.max_outstanding_per_broker, 0, math.inf, clock)


def _semaphore(limits: Limits, limit: int, queue: int, timeout: float, clock: LimiterClock) -> AsyncSemaphore:
    made = AsyncSemaphore("heap", limit, max_queue=queue, timeout_seconds=timeout, clock=clock)
    made.set_sharing(limits.fairness != "fifo", limits.key_cap_percent)
    return made


class _Output:
    def __init__(self) -> None:
        self.write_lock = WriteLock()
        self.under_way = 0
        self.behind: dict[int, None] = {}


class _Asker:
    """One request's client: the key stands for itself, so that a test may choose any."""

    principal = None
    max_frame_bytes = 1 << 40

    def __init__(self, index: int, output: _Output, key: int) -> None:
        self.index = index
        self.output = output
        self.name = str(key)
        self.started = 0
        self.task: asyncio.Task[None] | None = None
        self.ended = False


class _TooLarge(Exception):
    pass


class _Body:
    """A list, as its members see it."""

    size = 0

    def __init__(self, permit: Permit, members: int) -> None:
        self._permit = permit
        self.for_one = members == 1

    def leave(self, kept_ppm: int) -> None:
        """Hold only so much of a list for one from now on, as pieces that leave would on the average."""
        if self.for_one:
            self._permit.try_update(self._permit.size * kept_ppm // MILLION)

    def close(self) -> None:
        self._permit.release()


class _GroupClock:
    """The loop, as groups see it: in the units of the limiter's clock."""

    def __init__(self, loop: ScheduledLoop) -> None:
        self._loop = loop
        self.create_future = loop.create_future

    def time(self) -> int:
        return self._loop.schedule.now * TICKS


class RealLimiter:
    """One replay by the real limiter."""

    def __init__(self, trace: Trace, limits: Limits, load: int, warm_up: int, schedule: Schedule) -> None:
        self._warm_up = warm_up
        self._limits = limits
        self._arrival = (trace.arrival_us // load).tolist()
        self._need = {name: getattr(trace, name).tolist() for name in trace.__slots__}
        self._kept_ppm = trace.kept_ppm.tolist()
        self._schedule = schedule
        self._loop = asyncio.get_running_loop()
        ticks = itertools.count()
        self._clock = LimiterClock(schedule, Phase.MEMORY_DEADLINE, ticks)
        of_direct = LimiterClock(schedule, Phase.DIRECT_DEADLINE, ticks)
        heap_timeout, direct_timeout = limits.heap_timeout_us * TICKS, limits.direct_timeout_us * TICKS
        self.heap = _semaphore(limits, limits.heap_bytes, limits.heap_queue, heap_timeout, self._clock)
        self.direct = _semaphore(limits, limits.direct_bytes, limits.direct_queue, direct_timeout, of_direct)
        self.lanes: dict[int, _Lanes] = {}
        self.groups = ListGroups(
            cast(ScheduledLoop, _GroupClock(cast(ScheduledLoop, self._loop))), lambda client, _: int(client.name)
        )
        self._outputs: dict[int, _Output] = {}
        self._askers: dict[int, _Asker] = {}
        self._updating: set[ListGroup] = set()
        self._spans: dict[ListGroup, dict[str, list[int | None]]] = {}
        self.questions = 0
        n = len(trace)
        self.outcome = np.full(n, -1, np.int8)
        self.waits = {name: np.zeros(n, np.int64) for name in ("heap", "update", "direct")}
        self.end = np.zeros(n, np.int64)
        for index, when in enumerate(self._arrival):
            schedule.at(when, Phase.ARRIVAL, index, partial(self._arrive, index))

    # --- requests ---------------------------------------------------------------------------------

    def _arrive(self, index: int) -> None:
        number = self._need["client"][index]
        output = self._outputs.setdefault(number, _Output())
        asker = self._askers[index] = _Asker(index, output, self._need["share"][index])
        leaves = self._need["cancel_us"][index]
        if leaves != NEVER:
            self._schedule.at(self._schedule.now + leaves, Phase.LEAVING, index, partial(self._cancel, asker))
        if output.under_way < LISTS_AT_ONCE and not output.behind:
            self._start(asker)
        else:
            output.behind[index] = None

    def _cancel(self, asker: _Asker) -> None:
        if asker.ended:
            return
        if asker.task is not None:
            asker.task.cancel()
        else:
            del asker.output.behind[asker.index]
            self._record(asker, Outcome.CANCELLED, None)

    def _start(self, asker: _Asker) -> None:
        asker.output.under_way += 1
        asker.task = self._loop.create_task(self._serve(asker))

    async def _serve(self, asker: _Asker) -> None:
        asker.started = self._schedule.now
        deadline = self._arrival[asker.index] + self._limits.request_timeout_us
        group: ListGroup | None = None
        outcome = Outcome.CANCELLED
        if deadline <= self._schedule.now:
            outcome = Outcome.TIMEOUT_OTHER
        else:
            group, member = self._join(asker)
            try:
                async with asyncio.timeout_at(deadline + asker.index * LATER) as clock:
                    outcome = await self._take(asker, member, clock)
            except TimeoutError:
                outcome = self._stopped_at(group)
            except asyncio.CancelledError:
                pass
            finally:
                group.leave(member)
        self._record(asker, outcome, group)
        output = asker.output
        output.under_way -= 1
        if output.behind:
            following = next(iter(output.behind))
            del output.behind[following]
            self._start(self._askers[following])

    async def _take(self, asker: _Asker, member: GroupMember, clock: asyncio.Timeout) -> Outcome:
        answer = await member.outcome
        if isinstance(answer, Exception):
            return cast(Outcome, answer.args[0])
        async with asker.output.write_lock:
            member.unreserve()
            clock.reschedule(None)
            cast(_Body, answer).leave(self._kept_ppm[asker.index])
            await self._passed(self._need["write_us"][asker.index])
        return Outcome.OK

    async def _passed(self, duration: int) -> None:
        done = self._loop.create_future()
        self._schedule.after(duration, partial(_settle, done))
        await done

    def _record(self, asker: _Asker, outcome: Outcome, group: ListGroup | None) -> None:
        asker.ended = True
        now = self.end[asker.index] = self._schedule.now
        self.outcome[asker.index] = outcome
        for name, (since, until) in (self._spans[group] if group is not None else {}).items():
            assert since is not None
            self.waits[name][asker.index] = max(0, (now if until is None else until) - max(since, asker.started))

    # --- groups -----------------------------------------------------------------------------------

    def _join(self, asker: _Asker) -> tuple[ListGroup, GroupMember]:
        request = pb.CommandGetTopicsOfNamespace(
            request_id=asker.index, namespace=f"t/{self._need['question'][asker.index]}"
        )
        broker = BrokerAddress("broker", self._need["broker"][asker.index])
        client = cast(Client, asker)
        group, member, new = self.groups.join(client, broker, request, share=self._limits.coalescing)
        if new:
            self._spans[group] = {}
            group.work_started(self._loop.create_task(self._work(group, asker.index)).cancel)
        return group, member

    def _stopped_at(self, group: ListGroup) -> Outcome:
        if group in self._updating:
            return Outcome.TIMEOUT_HEAP_UPDATE
        return {Stage.HEAP: Outcome.TIMEOUT_HEAP, Stage.DIRECT: Outcome.TIMEOUT_DIRECT}.get(
            group.step.stage, Outcome.TIMEOUT_OTHER
        )

    async def _work(self, group: ListGroup, leader: int) -> None:
        try:
            await self._exchange(group, leader)
        except PermitAcquireTimeout:
            self._settle_all(group, self._stopped_at(group))
        except PermitAcquireQueueFull:
            in_heap = group.step.stage is Stage.HEAP
            self._settle_all(group, Outcome.QUEUE_FULL_HEAP if in_heap else Outcome.QUEUE_FULL_DIRECT)
        except _TooLarge:
            self._settle_all(group, Outcome.OVERSIZE)
        finally:
            self.groups.ended(group)
            group.work_over()

    def _settle_all(self, group: ListGroup, outcome: Outcome) -> None:
        for member in group.members:
            member.settle(Exception(outcome))

    async def _exchange(self, group: ListGroup, leader: int) -> None:
        if group.predecessor is not None:
            await group.predecessor.wait()
        number = self._need["broker"][leader]
        lanes = self.lanes.setdefault(number, _Lanes(self._limits, self._clock))
        estimate = self._need["estimate_bytes"][leader]
        group.stands_at(Step.HEAP)
        span = self._spans[group]["heap"] = [self._schedule.now, None]
        with (
            await group.acquire(lanes.estimates, estimate) as gate,
            await group.acquire(self.heap, estimate) as heap,
        ):
            span[1] = self._schedule.now
            await self._ask(group, leader, lanes.questions, gate, heap)
            await self._answer(group, leader, heap)

    async def _ask(self, group: ListGroup, leader: int, questions: AsyncSemaphore, gate: Permit, heap: Permit) -> None:
        group.stands_at(Step.SLOT)
        slot = await group.acquire(questions, 1)
        self.groups.asked(group)
        self.questions += leader >= self._warm_up
        group.stands_at(Step.QUESTION)
        begun: asyncio.Future[bool] = self._loop.create_future()
        size = self._need["heap_bytes"][leader]

        def begin() -> None:
            slot.release()
            gate.release()
            self.groups.answer_begun(group)
            limit = self._limits.answer_limit_bytes
            if begun.cancelled():
                return
            if self._need["direct_bytes"][leader] > limit > 0:
                begun.set_exception(_TooLarge())
                return
            self._spans[group]["update"] = [self._schedule.now, None]
            self._updating.add(group)
            begun.set_result(heap.try_update(size))

        self._schedule.after(self._need["upstream_us"][leader], begin)
        if not await begun:
            await heap.update(size)
        self._updating.discard(group)
        self._spans[group]["update"][1] = self._schedule.now

    async def _answer(self, group: ListGroup, leader: int, heap: Permit) -> None:
        group.stands_at(Step.READER)
        await self._passed(self._need["hold_us"][leader])
        await await_a_reader(list(group.members))
        group.stands_at(Step.DIRECT)
        span = self._spans[group]["direct"] = [self._schedule.now, None]
        size = self._need["direct_bytes"][leader]
        direct = await group.acquire(self.direct, size)
        span[1] = self._schedule.now
        group.answer = cast(EncodedList, _Body(direct, len(group.members)))
        heap.release()
        group.stands_at(Step.WRITE)
        for member in group.members:
            member.settle(group.answer)

    def result(self) -> Result:
        """Give the result; everything must have been given back."""
        for semaphore in (self.heap, self.direct, *(line for lanes in self.lanes.values() for line in _both(lanes))):
            assert (semaphore.held, semaphore.queue_size, semaphore.growers_waiting) == (0, 0, 0), semaphore
        assert not len(self.groups)
        return Result(
            outcome=self.outcome,
            heap_wait_us=self.waits["heap"],
            heap_update_wait_us=self.waits["update"],
            direct_wait_us=self.waits["direct"],
            end_us=self.end,
            peak_heap_bytes=self.heap.statistics().peak_held,
            peak_direct_bytes=self.direct.statistics().peak_held,
            questions=self.questions,
        )


def _both(lanes: _Lanes) -> tuple[AsyncSemaphore, AsyncSemaphore]:
    return lanes.estimates, lanes.questions


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def replay_by_the_real_limiter(trace: Trace, limits: Limits, load: int = 1, warm_up: int = 0) -> Result:
    """Replay a trace as the kernel does, with the limiter of the proxy; questions of the warm-up are not counted."""
    schedule = Schedule()

    async def main() -> Result:
        replay = RealLimiter(trace, limits, load, warm_up, schedule)
        over = asyncio.get_running_loop().create_future()
        schedule.on_over = partial(_settle, over)
        await over
        return replay.result()

    loop = ScheduledLoop(schedule)
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()
