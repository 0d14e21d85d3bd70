"""Limit how long one iteration of the event loop works when thousands of peers want something at the same time.

An iteration of the loop reads every socket that has data before anything else runs. Code that finds the time budget
of this iteration spent defers the rest of its work to later iterations. A connection that has had its turn joins its
line at the end: so busy connections take turns, and however many there are, together they get one budget an iteration.

There are three lines, and each in its turn is served: clients' frames, by network and then by connection; what brokers
have answered; and all other work (relays, reads, handshakes). So nobody's first request waits for all requests of a
crowd, and no crowd of requests keeps answers or relays waiting.

Work that starts tasks is counted instead, a few calls in each iteration: topic lists that begin, by network, and those
that are told of their answer, by the question that they share.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from proxy.core.lanes import Lanes

# An iteration works this long for data that has arrived; work beyond that is deferred.
ITERATION_SECONDS: Final = 0.002
# Deferred work starts tasks, and their first steps all run in the next iteration: some 60 us each.
DEFERRED_PER_ITERATION: Final = 6
# A request's task works about this long until its question is written to a broker; so does a task that was answered.
TASK_SECONDS: Final = 0.0001
# Other work is served at most so often while one client is: a few requests do not slow down many busy relays, and a
# request waits for some turns of relays.
OTHERS_A_ROUND: Final = 16


class _Wave:
    """Functions deferred between two calls of `deferred_done`: how many are left, and whether all are over.

    A wave is over when the waves before it are, too.
    """

    __slots__ = ("left", "over")

    def __init__(self) -> None:
        self.left = 0
        self.over = asyncio.Event()


class LoopBudget:
    """The time budget of a loop iteration, and the work that was deferred because the budget was spent."""

    __slots__ = (
        "_answers",
        "_began",
        "_charged",
        "_cheap",
        "_clients",
        "_deferred",
        "_ending",
        "_line",
        "_loop",
        "_scheduled",
        "_settling",
        "_waves",
        "now",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self._loop = loop
        # The clock, also for callers that charge for measured work.
        self.now = now
        self._began: float | None = None
        self._charged = 0.0
        self._ending = False
        self._deferred: Lanes[tuple[_Wave, Callable[[], None]]] = Lanes()
        self._settling: Lanes[Callable[[], None]] = Lanes()
        # Functions that are deferred join the last one.
        self._waves: deque[_Wave] = deque((_Wave(),))
        self._cheap: deque[Callable[[], None]] = deque()
        self._answers: deque[Callable[[], None]] = deque()
        self._clients: Lanes[Callable[[], None]] = Lanes()
        # The line that was served last.
        self._line = 0
        self._scheduled = False

    def __len__(self) -> int:
        tasks = len(self._deferred) + len(self._settling)
        return tasks + len(self._cheap) + len(self._answers) + len(self._clients)

    @property
    def sharers(self) -> int:
        """Return the number of clients, relays and others that share the time with a client's turn."""
        return len(self._clients) + len(self._cheap)

    def spent(self) -> bool:
        """Return whether this loop iteration has used up its time budget; call before starting work."""
        if self._began is None:
            self._begin()
            return False
        return self.now() - self._began + self._charged > ITERATION_SECONDS

    def charge(self, seconds: float) -> None:
        """Count work of `seconds` that this iteration has brought about and that is done after it."""
        if self._began is None:
            self._begin()
        self._charged += seconds

    def defer(self, function: Callable[[], None], network: Hashable = None) -> None:
        """Call `function` in a later iteration, a few in each, in turns by network; it must not raise."""
        wave = self._waves[-1]
        wave.left += 1
        self._deferred.push(network, (wave, function))
        self._schedule()

    def defer_settling(self, group: Hashable, function: Callable[[], None]) -> None:
        """Call `function`, which tells one of a group of its answer, as `defer` does, but in a line of its own.

        Requests for more do not keep answers waiting, and large groups do not keep small ones waiting.
        """
        self._settling.push(group, function)
        self._schedule()

    async def deferred_done(self) -> None:
        """Wait until every function has been called that `defer` has taken until now."""
        if self._deferred:
            wave = self._waves[-1]
            self._waves.append(_Wave())
            await wave.over.wait()

    def defer_cheap(self, function: Callable[[], None]) -> None:
        """Call `function` in a later iteration, with as many others as the budget has time for.

        A function that starts tasks, or lets a socket be read, charges for it.
        """
        self._cheap.append(function)
        self._schedule()

    def defer_answers(self, function: Callable[[], None]) -> None:
        """Call `function`, which passes on what a broker has answered, as `defer_cheap` does, but in a line of its own.

        Answers end work: behind those who ask for more they would wait longer, the more ask.
        """
        self._answers.append(function)
        self._schedule()

    def defer_client(self, network: Hashable, function: Callable[[], None]) -> None:
        """Call `function`, which serves a client's frames, as `defer_cheap` does, but in turns by network."""
        self._clients.push(network, function)
        self._schedule()

    async def client_turn(self, network: Hashable, seconds: float) -> None:
        """Wait for the turn of a client, if the time of this iteration is spent; the turn takes about `seconds`."""
        if self.spent():
            turn = self._loop.create_future()
            self.defer_client(network, partial(self._give_turn, turn, seconds))
            await turn

    def _give_turn(self, turn: asyncio.Future[None], seconds: float) -> None:
        # The waiter may have left.
        if not turn.done():
            self.charge(seconds)
            turn.set_result(None)

    def _begin(self) -> None:
        self._began = self.now()
        self._charged = 0.0
        if not self._ending:
            self._ending = True
            self._loop.call_soon(self._iteration_ended)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run_deferred)

    def _iteration_ended(self) -> None:
        self._ending = False
        self._began = None

    def _run_deferred(self) -> None:
        self._scheduled = False
        deferred, settling, cheap = self._deferred, self._settling, self._cheap
        try:
            for number in range(min(len(deferred) + len(settling), DEFERRED_PER_ITERATION)):
                if settling and (number % 2 or not deferred):
                    settling.popleft()()
                else:
                    self._call_deferred()
            if self._clients or self._answers:
                self._begin()
                self._take_turns()
            elif cheap:
                # The sockets that are read right after, in this iteration, share this budget.
                self._begin()
                # Work that is deferred again meanwhile has had its turn.
                for _ in range(len(cheap)):
                    cheap.popleft()()
                    if self.spent():
                        break
        finally:
            if deferred or settling or cheap or self._clients or self._answers:
                self._schedule()

    def _call_deferred(self) -> None:
        wave, function = self._deferred.popleft()
        try:
            function()
        finally:
            wave.left -= 1
            while len(self._waves) > 1 and not self._waves[0].left:
                self._waves.popleft().over.set()

    def _take_turns(self) -> None:
        """Serve the lines in turns until the time is spent; the next line is the first of the next iteration."""
        lines = (self._clients, self._answers, self._cheap)
        left = [len(line) for line in lines]
        a_round = (1, 1, min(1 + left[2] // (1 + left[0]), OTHERS_A_ROUND))
        while any(left):
            self._line = number = (self._line + 1) % len(lines)
            line = lines[number]
            for _ in range(min(left[number], a_round[number])):
                left[number] -= 1
                line.popleft()()
                if self.spent():
                    return
