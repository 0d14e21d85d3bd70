"""Run one cell of the matrix: the flow once without a fault, then with it, and see what is left.

Rule: a cell passes if the flow ended as `ends.py` says, with a named cause where a connection ended; if the proxy's
books were as before while the fault was still there; if the neighbour got all its answers meanwhile; and if the same
flow is answered again when the fault is over.
"""

import asyncio
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

import uvloop

from proxy.core.tasks import TaskScope
from tests.faults.ends import ending_of
from tests.faults.flows.flow import CLIENT_SIDE, Flow, Outcome, Refused
from tests.faults.neighbour import Neighbour
from tests.faults.scene import Scene, proxys_own, scene
from tests.faults.table import BY_NAME, ENDLESS, Cell, Moment
from tests.support.clients.async_client import Closed
from tests.support.faults.carried import Carried
from tests.support.faults.kinds import End, Fault, Kind, Point
from tests.support.faults.proxy import FaultProxy
from tests.support.patience import patient
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.proxy_under_test import tasks_of_the_proxy

# The last bytes of a direction take a second at the rate.
SLOW_BYTES: Final = 1000
CELL_SECONDS: Final = 40.0
ROUNDS: Final = 2
MOST_SAID: Final = 2000
MAY_SHRINK: Final = frozenset({"tasks", "descriptors"})


@dataclass
class Result:
    """How a cell ended: what the client got, why connections ended, and what else the cell saw."""

    cell: Cell
    outcome: str = ""
    detail: str = ""
    causes: dict[str, int] = field(default_factory=dict)
    failure: str = ""


# Not in `__main__`: a spawned process imports the module of what it shall call.
def in_a_loop(cell: Cell) -> Result:
    """Run a cell on a loop of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="faults-") as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(run(cell, Path(directory)))


async def run(cell: Cell, directory: Path) -> Result:
    """Run a cell, and judge its end; a failure is in the result."""
    result = Result(cell)
    flow = BY_NAME[cell.stage].flow(cell.side)
    try:
        async with asyncio.timeout(patient(CELL_SECONDS)):
            async with scene(flow, directory, short=cell.kind in ENDLESS) as at:
                await _Run(cell, flow, at, result).all()
        result.failure = ending_of(cell).unlike(result.outcome, result.causes)
    except Exception as error:
        result.failure = "".join(traceback.format_exception(error))[-MOST_SAID:]
    return result


def unlike(before: dict[str, int], now: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Give what is not as before: fewer tasks and descriptors are a connection to a broker that ended."""
    return {
        name: (value, now[name])
        for name, value in before.items()
        if now[name] > value or (now[name] < value and name not in MAY_SHRINK)
    }


class _Run:
    """The steps of a cell."""

    def __init__(self, cell: Cell, flow: Flow, at: Scene, result: Result) -> None:
        self._cell = cell
        self._flow = flow
        self._at = at
        self._result = result
        self._way: FaultProxy = at.way(cell.side, own=flow.own)
        self._neighbour = Neighbour(at, None if cell.side == CLIENT_SIDE else flow.purpose)
        self._victim: Carried | None = None

    async def all(self) -> None:
        try:
            await self._neighbour.start()
            size = await self._rehearse()
            before = await self._books()
            causes = self._causes()
            await self._flow.prepare(self._at)
            begun = self._arm(size)
            await self._ask(before, begun)
            if self._cell.side != CLIENT_SIDE:
                # This client is well, and goes when it has its answer.
                await self._leave()
            # What a fault proxy still holds is the peer's; the proxy's own books must be right without its help.
            if self._cell.kind in ENDLESS:
                await self._quiet(proxys_own(before))
            await self._over()
            await self._quiet(before)
            self._result.causes = self._causes() - causes
            await self._once()
            await self._quiet(before)
        finally:
            await self._flow.leave()
            await self._neighbour.close()

    # --- steps ------------------------------------------------------------------------------------

    async def _rehearse(self) -> dict[End, int]:
        """Do the flow without a fault, and count the bytes of the stage on the way of the cell."""
        await self._once()
        await self._flow.prepare(self._at)
        # The neighbour's bytes are not to be counted, and its connections to brokers not to be struck.
        async with self._neighbour.paused():
            passed = {one: dict(one.passed) for one in self._way.connections}
            await self._flow.ask(self._at)
            sizes = {
                one: {end: one.passed[end] - passed.get(one, {}).get(end, 0) for end in End}
                for one in self._way.connections
            }
            self._victim = max(sizes, key=lambda one: sum(sizes[one].values()))
        await self._over()
        return sizes[self._victim]

    async def _once(self) -> None:
        """Do the flow, be answered, and leave."""
        await self._flow.prepare(self._at)
        await self._flow.ask(self._at)
        await self._flow.more(self._at)
        await self._over()

    async def _leave(self) -> None:
        self._at.leave()
        await self._flow.leave()

    async def _over(self) -> None:
        await self._leave()
        for way in (self._at.client_way, self._at.broker_way, self._at.own_way):
            way.lift()
        self._at.client_way.cut()

    def _arm(self, size: dict[End, int]) -> Callable[[], bool]:
        """Have the fault begin in the middle of the request or the answer; return what tells whether it has."""
        sender = End.CLIENT if self._cell.moment is Moment.REQUEST else End.TARGET
        after = size[sender] // 2
        if self._cell.kind in (Kind.RATE, Kind.SLICE):
            after = max(after, size[sender] - SLOW_BYTES)
        at = End.CLIENT if self._cell.side == CLIENT_SIDE else End.TARGET
        # The other direction of a slow connection may have a hundred times as many bytes.
        only = sender if self._cell.kind in (Kind.RATE, Kind.SLICE) else None
        fault, point = Fault(self._cell.kind, at=at, only=only), Point(sender, max(1, after))
        way = self._way
        if self._cell.side in self._flow.fresh:
            accepted = way.accepted
            way.arm_next(fault, point)
            return lambda: any(one.begun.is_set() for one in way.connections) or way.accepted > accepted
        victim = self._victim if self._victim in way.connections else way.connections[-1]
        assert victim is not None
        victim.arm(fault, point)
        return victim.begun.is_set

    async def _ask(self, before: dict[str, int], begun: Callable[[], bool]) -> None:
        """Ask, until there is an answer, an end, or nothing of the flow in the proxy any more."""
        crashes: list[BaseException] = []
        asking, over = TaskScope(crashes.append), asyncio.Event()
        asking.start(self._hear(), over.set)
        try:
            while not over.is_set():
                await asyncio.sleep(0.02)
                if not over.is_set() and begun() and self._cell.kind in ENDLESS and await self._let_go(before):
                    break
            for crash in crashes:
                raise crash
            assert begun(), "the fault never began"
            seen = self._neighbour.rounds
            while self._neighbour.rounds < seen + ROUNDS:
                self._neighbour.check()
                await asyncio.sleep(0.01)
        finally:
            asking.cancel()
            await asking.emptied()

    async def _let_go(self, before: dict[str, int]) -> bool:
        """Tell whether the proxy has nothing of the flow any more, and its client cannot hear of that."""
        if self._cell.side != CLIENT_SIDE:
            # This client hears the end, whenever that comes.
            return False
        async with self._neighbour.paused():
            return not unlike(proxys_own(before), self._at.books())

    async def _hear(self) -> None:
        """Ask, and note how that ends; a wrong answer is an error of the cell."""
        result = self._result
        result.outcome = Outcome.UNHEARD
        try:
            await self._flow.ask(self._at)
            result.outcome = Outcome.ANSWERED
        except Refused as error:
            result.outcome, result.detail = Outcome.REFUSED, str(error)
        except TimeoutError:
            # Neither an answer nor an end, for longer than a test is patient.
            raise
        except (Closed, OSError) as error:
            result.outcome, result.detail = Outcome.CLOSED, str(error)

    # --- books ------------------------------------------------------------------------------------

    async def _books(self) -> dict[str, int]:
        """Give the books when nothing of the flow is there, and the neighbour does not ask."""
        found: dict[str, int] = {}
        same = 0
        while same < 3:
            async with self._neighbour.paused():
                await asyncio.sleep(0.01)
                now = self._at.books()
            same = same + 1 if now == found else 0
            found = now
        return found

    async def _quiet(self, before: dict[str, int]) -> None:
        """Wait until the books are as before; the neighbour goes on in between."""
        deadline = monotonic() + patient(CELL_SECONDS / 2)
        while True:
            async with self._neighbour.paused():
                left = unlike(before, self._at.books())
            if not left:
                return
            assert monotonic() < deadline, f"left behind (before, now): {left}; tasks: {tasks_of_the_proxy()}"
            await asyncio.sleep(0.02)

    def _causes(self) -> Counter[str]:
        """Give the causes of ends so far; an answer over HTTP that breaks off has a counter of its own."""
        counters = self._at.stage.proxy.counters
        refused = {f"http_{kind}": count for kind, count in counted_by(counters, "http_refused_requests").items()}
        return Counter(
            {
                **counted_by(counters, "disconnects"),
                **refused,
                "http_cut_answers": counted(counters, "http_cut_answers"),
            }
        )
