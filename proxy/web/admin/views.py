"""The views of the admin API: documents made on demand from numbers that are kept anyway.

Rules: a view changes nothing, and holds the event loop for a few milliseconds at a time. Of stacks only places in the
code are shown, never values: these may be credentials.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from types import FrameType
from typing import Any, Final

from limiter.semaphore import AsyncSemaphore
from limiter.statistics import WaiterStatistics
from proxy.clients.sessions import Sessions
from proxy.config.core import Core
from proxy.core.registry import Entry
from proxy.requests.topic_lists.groups import ListGroup, ListGroups
from proxy.requests.topic_lists.memory import ListMemory
from proxy.web.admin.connections import LONGEST_NAME, ConnectionsPage, Names, connection_row
from proxy.web.admin.paging import SLICE_ROWS, AdminDocument, Answer, Row, Rows, steps
from proxy.web.admin.routes import DEFAULT_PAGE, LARGEST_PAGE, ROUTES, Parameters
from proxy.web.http.errors import HttpRefused
from proxy.web.runtime_settings import RuntimeSettings

View = Callable[[Parameters], Answer]
TOP_HOLDERS: Final = 10
# The statistics of a limiter take about 50 us, and 0.2 us more for each key that holds or waits.
SLICE_LIMITERS: Final = 10
CLIENTS_OF_A_GROUP: Final = 3
_MOST_TASKS: Final = 200
_MOST_LINES: Final = 40
_LONGEST_ID: Final = 15


class ClientViews:
    """Shows connections; `names` shows principals as the log does."""

    def __init__(self, core: Core, sessions: Sessions, names: Names) -> None:
        self._clock = core.clock
        self._sessions = sessions
        self._names = names

    def by_route(self) -> dict[str, View]:
        """Return the method that answers each route, by the route's name."""
        return {"connections": self.connections, "connection": self.connection}

    def connections(self, parameters: Parameters) -> Answer:
        sessions = self._sessions
        limit = int(parameters.get("limit", DEFAULT_PAGE))
        page = ConnectionsPage(sessions, self._clock, self._names, parameters, limit)
        return Rows(
            {"total": len(sessions.registry)}, "connections", page.steps(int(parameters.get("after", 0))), page.tail
        )

    def connection(self, parameters: Parameters) -> Answer:
        number = id_of(parameters)
        entry = self._sessions.registry.find(number)
        if entry is None:
            raise HttpRefused(404, f"no connection {number}: it has closed or never existed", "no_connection")
        return AdminDocument(connection_row(entry, self._sessions, self._clock(), self._names))


class ListViews:
    """Shows what lists wait for, and the groups of equal lists; `semaphores` come with the unit of their permits."""

    def __init__(
        self,
        core: Core,
        memory: ListMemory,
        groups: ListGroups,
        semaphores: Callable[[], Iterable[tuple[str, AsyncSemaphore]]],
        names: Names,
    ) -> None:
        self._clock = core.clock
        self._memory = memory
        self._groups = groups
        self._semaphores = semaphores
        self._names = names

    def by_route(self) -> dict[str, View]:
        """Return the method that answers each route, by the route's name."""
        return {"limiters": self.limiters, "queue": self.queue, "groups": self.groups}

    def limiters(self, _: Parameters) -> Answer:
        return Rows({}, "limiters", self._limiters(list(self._semaphores())), named=True)

    def queue(self, parameters: Parameters) -> Answer:
        limit, semaphores = int(parameters.get("limit", DEFAULT_PAGE)), list(self._semaphores())
        lines = {each.name: each.queue_size + each.growers_waiting for _, each in semaphores}
        waiting = {name: count for name, count in lines.items() if count}
        return Rows({"lines": waiting}, "waiters", self._waiters(semaphores, limit))

    def groups(self, parameters: Parameters) -> Answer:
        registry = self._groups.registry
        ids = registry.ids(most=int(parameters.get("limit", DEFAULT_PAGE)))
        return Rows({"total": len(registry)}, "groups", steps(registry, ids, self._group))

    def _limiters(self, semaphores: Sequence[tuple[str, AsyncSemaphore]]) -> Iterator[Sequence[Row]]:
        memory = self._memory
        waits = {"heap": memory.heap_waits.wait_millis, "direct": memory.direct_waits.wait_millis}
        for start in range(0, len(semaphores), SLICE_LIMITERS):
            shown = []
            for unit, semaphore in semaphores[start : start + SLICE_LIMITERS]:
                row = {"unit": unit, **self._statistics(semaphore)}
                if semaphore.name in waits:
                    row["wait_p50_ms"], row["wait_p99_ms"] = waits[semaphore.name].quantiles(0.5, 0.99)
                shown.append({semaphore.name: row})
            yield shown

    def _statistics(self, semaphore: AsyncSemaphore) -> dict[str, Any]:
        numbers = asdict(semaphore.statistics())
        for kept_elsewhere in ("name", "observer_errors"):
            del numbers[kept_elsewhere]
        holders = semaphore.top_holders(TOP_HOLDERS)
        numbers["share_by_key"] = semaphore.share_by_key
        numbers["top_holders"] = [{"owner": self._owner(key), "held": held} for key, held in holders]
        return numbers

    def _waiters(self, semaphores: list[tuple[str, AsyncSemaphore]], limit: int) -> Iterator[Sequence[Row]]:
        left = LARGEST_PAGE
        for unit, semaphore in semaphores:
            for waiters in semaphore.waiters(min(limit, left), SLICE_ROWS):
                left -= len(waiters)
                yield [self._waiter(semaphore.name, unit, waiter) for waiter in waiters]

    def _waiter(self, line: str, unit: str, waiter: WaiterStatistics) -> Row:
        return {
            "line": line,
            "owner": self._owner(waiter.key),
            "namespace": None if waiter.about is None else str(waiter.about)[:LONGEST_NAME],
            "asked": waiter.size,
            "unit": unit,
            "waited_seconds": round(waiter.waited_seconds, 3),
            # A waiter for a broker's turn has no deadline of its own, only the deadline of its request.
            "seconds_left": round(waiter.seconds_left, 3) if waiter.seconds_left < 1e9 else None,
            "grows": waiter.grows,
        }

    def _group(self, entry: Entry[ListGroup]) -> Row:
        group = entry.member
        clients = [member.client.name for member in islice(group.members, CLIENTS_OF_A_GROUP)]
        return {
            "namespace": group.request.namespace[:LONGEST_NAME],
            "principal": None if group.principal is None else self._owner(group.principal),
            "broker": str(group.broker),
            "stage": group.step.stage.name.lower(),
            "members": len(group.members),
            "clients": clients,
            "shared": bool(group.key),
            "joinable": self._groups.takes_joiners(group),
            "age_seconds": round(self._clock() - entry.since, 3),
            "holds": group.holds(),
        }

    def _owner(self, key: object) -> str | None:
        return None if key is None else self._names(key)[:LONGEST_NAME]


def settings_views(settings: RuntimeSettings) -> dict[str, View]:
    """Return what answers the routes that show settings, by the route's name."""
    return {
        "config": lambda _: AdminDocument(settings.config()),
        "log_level": lambda _: AdminDocument(settings.log_level()),
    }


def index(_: Parameters) -> Answer:
    """Show all routes."""
    routes = [
        {"method": route.method, "path": route.path, "doc": route.doc, "changes": route.changes} for route in ROUTES
    ]
    return AdminDocument({"routes": routes})


def id_of(parameters: Parameters) -> int:
    """Return the id in a path; raises HttpRefused with status 400."""
    text = str(parameters["id"])
    if not text.isascii() or not text.isdigit() or len(text) > _LONGEST_ID:
        raise HttpRefused(400, f"id: got {text[:80]!r}, expected the number of a connection", "bad_request")
    return int(text)


def stacks(_: Parameters) -> Answer:
    """Show the innermost places of each thread, and the place of each task of this thread's loop."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    tasks = asyncio.all_tasks()
    found = {
        "threads": [
            {"name": names.get(number, str(number)), "lines": list(_lines(frame))}
            for number, frame in sys._current_frames().items()
        ],
        "tasks_total": len(tasks),
        "tasks": [_task(task) for task in islice(tasks, _MOST_TASKS)],
    }
    return AdminDocument(found)


def _lines(frame: FrameType | None) -> Iterator[str]:
    found = list[str]()
    while frame is not None and len(found) < _MOST_LINES:
        found.append(_place(frame))
        frame = frame.f_back
    return reversed(found)


def _task(task: "asyncio.Task[object]") -> Mapping[str, str]:
    coroutine = task.get_coro()
    frames = task.get_stack(limit=1)
    return {
        "name": getattr(coroutine, "__qualname__", type(coroutine).__name__),
        "line": _place(frames[0]) if frames else "",
    }


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}"
