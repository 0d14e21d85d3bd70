"""The views of the admin API: documents made on demand from numbers that are kept anyway.

Rules: a view changes nothing, and holds the event loop for a few milliseconds at a time. Of stacks only places in the
code are shown, never values: these may be credentials.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from types import FrameType
from typing import Any, Final

from limiter.semaphore import AsyncSemaphore
from limiter.statistics import WaiterStatistics
from proxy.core.registry import Entry
from proxy.requests.topic_lists.groups import ListGroup
from proxy.web.admin.connections import LONGEST_NAME, ConnectionsPage, connection_row
from proxy.web.admin.paging import SLICE_ROWS, AdminDocument, Answer, Row, Rows, steps
from proxy.web.admin.routes import DEFAULT_PAGE, LARGEST_PAGE, ROUTES, Parameters
from proxy.web.admin.sources import AdminSources
from proxy.web.http.errors import HttpRefused

TOP_HOLDERS: Final = 10
# The statistics of a limiter take about 50 us, and 0.2 us more for each key that holds or waits.
SLICE_LIMITERS: Final = 10
CLIENTS_OF_A_GROUP: Final = 3
_MOST_TASKS: Final = 200
_MOST_LINES: Final = 40
_LONGEST_ID: Final = 15


class Views:
    """Answers the routes that change nothing."""

    def __init__(self, sources: AdminSources) -> None:
        self._sources = sources
        self._names = sources.names

    def by_route(self) -> dict[str, Callable[[Parameters], Answer]]:
        """Return the method that answers each route, by the route's name."""
        return {
            "index": self.index,
            "top": self.top,
            "connections": self.connections,
            "connection": self.connection,
            "limiters": self.limiters,
            "queue": self.queue,
            "groups": self.groups,
            "config": self.config,
            "stacks": self.stacks,
            "log_level": self.log_level,
        }

    def index(self, _: Parameters) -> Answer:
        routes = [
            {"method": route.method, "path": route.path, "doc": route.doc, "changes": route.changes} for route in ROUTES
        ]
        return AdminDocument({"routes": routes})

    def top(self, _: Parameters) -> Answer:
        return AdminDocument(self._sources.top())

    def connections(self, parameters: Parameters) -> Answer:
        sessions = self._sources.sessions
        limit = int(parameters.get("limit", DEFAULT_PAGE))
        page = ConnectionsPage(sessions, self._sources.loop.time, self._names, parameters, limit)
        return Rows(
            {"total": len(sessions.registry)}, "connections", page.steps(int(parameters.get("after", 0))), page.tail
        )

    def connection(self, parameters: Parameters) -> Answer:
        number = id_of(parameters)
        sessions = self._sources.sessions
        entry = sessions.registry.find(number)
        if entry is None:
            raise HttpRefused(404, f"no connection {number}: it has closed or never existed", "no_connection")
        return AdminDocument(connection_row(entry, sessions, self._sources.loop.time(), self._names))

    def limiters(self, _: Parameters) -> Answer:
        return Rows({}, "limiters", self._limiters(list(self._sources.semaphores())), named=True)

    def queue(self, parameters: Parameters) -> Answer:
        limit, semaphores = int(parameters.get("limit", DEFAULT_PAGE)), list(self._sources.semaphores())
        lines = {each.name: each.queue_size + each.growers_waiting for _, each in semaphores}
        waiting = {name: count for name, count in lines.items() if count}
        return Rows({"lines": waiting}, "waiters", self._waiters(semaphores, limit))

    def groups(self, parameters: Parameters) -> Answer:
        registry = self._sources.groups.registry
        ids = registry.ids(most=int(parameters.get("limit", DEFAULT_PAGE)))
        return Rows({"total": len(registry)}, "groups", steps(registry, ids, self._group))

    def config(self, _: Parameters) -> Answer:
        return AdminDocument(self._sources.settings.config())

    def stacks(self, _: Parameters) -> Answer:
        return AdminDocument(_stacks())

    def log_level(self, _: Parameters) -> Answer:
        return AdminDocument(self._sources.settings.log_level())

    # --- rows ---------------------------------------------------------------------------------------

    def _limiters(self, semaphores: Sequence[tuple[str, AsyncSemaphore]]) -> Iterator[Sequence[Row]]:
        sources = self._sources
        waits = {"heap": sources.heap_waits.wait_millis, "direct": sources.direct_waits.wait_millis}
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
        groups = self._sources.groups
        return {
            "namespace": group.request.namespace[:LONGEST_NAME],
            "principal": None if group.principal is None else self._owner(group.principal),
            "broker": str(group.broker),
            "stage": group.step.stage.name.lower(),
            "members": len(group.members),
            "clients": clients,
            "shared": bool(group.key),
            "joinable": groups.takes_joiners(group),
            "age_seconds": round(self._sources.loop.time() - entry.since, 3),
            "holds": group.holds(),
        }

    def _owner(self, key: object) -> str | None:
        return None if key is None else self._names(key)[:LONGEST_NAME]


def id_of(parameters: Parameters) -> int:
    """Return the id in a path; raises HttpRefused with status 400."""
    text = str(parameters["id"])
    if not text.isascii() or not text.isdigit() or len(text) > _LONGEST_ID:
        raise HttpRefused(400, f"id: got {text[:80]!r}, expected the number of a connection", "bad_request")
    return int(text)


def _stacks() -> Mapping[str, object]:
    """Return the innermost places of each thread, and the place of each task of this thread's loop."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    tasks = asyncio.all_tasks()
    return {
        "threads": [
            {"name": names.get(number, str(number)), "lines": list(_lines(frame))}
            for number, frame in sys._current_frames().items()
        ],
        "tasks_total": len(tasks),
        "tasks": [_task(task) for task in islice(tasks, _MOST_TASKS)],
    }


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
