"""Resolve host names: answers are cached, equal queries share a single one, and few queries run at a time.

The system's resolver may hang in a thread that nobody can end. A query that has run for `RESOLVE_SECONDS` is given up:
its waiters get an error, its slot is for others, and its thread counts as hanging until it ends. Threads that hang are
bounded in number, for each name and for all names (`_Slots`); above that bound a query keeps its slot. A query has a
thread of its own: the threads of libuv, which all names would share, run two queries at once. Names from clients have
slots and hanging threads apart from those of the brokers (two resolvers), and names that have never resolved have them
apart from those that have.

Rule: a stale answer serves for one more TTL while the new answer is asked for, without an address to which a connection
for this name and port has failed since the answer was found. Failures for another name or port do not count: a client
chooses both, and may have its own name lead to a broker's address. No stale answer serves if the present owner of the
address would be shown credentials that are good elsewhere (`stale_serves`).
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from proxy.brokers.target import RESOLVE_SECONDS
from proxy.core.errors import TargetRefused
from proxy.core.tasks import TaskScope
from proxy.core.threads import in_thread

Ask = Callable[[str], Awaitable[list[str]]]

MOST_ANSWERS: Final = 256
# Limits of the memory that unknown clients can fill: the length of a DNS name, and more addresses than any dialer
# tries.
LONGEST_NAME: Final = 253
MOST_ADDRESSES: Final = 128
MOST_QUERIES: Final = 1024
# A name that does not resolve is cached for this part of the time of other answers.
NEGATIVE_PART: Final = 0.1
# Failed connections that are remembered, of names that have an answer. If there are more, the answer of a name of which
# one was forgotten does not serve beyond its time.
MOST_FAILED: Final = 1024
# Most queries at once of names that have resolved before, beside those of other names.
KNOWN_AT_ONCE: Final = 2
# Most threads that hang, beside those in slots: of a name, and of all names that share the slots.
MOST_HANGING_OF_A_NAME: Final = 2
MOST_HANGING: Final = 8
# Errors that say nothing about the name: the resolver could not be reached.
_RESOLVER_FAILED: Final = frozenset({socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_SYSTEM, socket.EAI_MEMORY})


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer for a name at `at`: its addresses, found at `found_at`, or the reason why there are none.

    `problem` is the reason why the addresses are those of an earlier answer.
    """

    addresses: tuple[str, ...]
    error: str
    at: float
    until: float
    found_at: float
    problem: str = ""

    @property
    def stale(self) -> bool:
        """Return whether the addresses are those of an earlier answer, which the resolver failed to replace."""
        return not self.error and self.found_at < self.at


class _Query:
    __slots__ = ("answer", "cancel", "hanging", "name", "started", "waiters")

    def __init__(self, name: str, answer: asyncio.Future[_Answer]) -> None:
        self.name = name
        self.answer = answer
        self.waiters = 0
        self.started = False
        self.hanging = False
        self.cancel: Callable[[], object] = lambda: None


class _Slots:
    """The slots of queries; a query that hangs leaves its slot to others while fewer than `MOST_HANGING` hang so."""

    __slots__ = ("_free", "_in_slots", "_outside")

    def __init__(self, at_once: int) -> None:
        self._free = asyncio.Semaphore(at_once)
        # Queries that hang: those that still have a slot, in order, and those that have left it.
        self._in_slots: dict[_Query, None] = {}
        self._outside: set[_Query] = set()

    @property
    def hanging(self) -> int:
        """Return how many queries hang."""
        return len(self._in_slots) + len(self._outside)

    async def take(self) -> None:
        """Wait for a slot."""
        await self._free.acquire()

    def hangs(self, query: _Query) -> None:
        """Record that a query has run for too long."""
        query.hanging = True
        self._in_slots[query] = None
        self._let_out()

    def ended(self, query: _Query) -> None:
        """Return the slot of a query that took one, if the query still has it."""
        if query in self._outside:
            self._outside.discard(query)
            self._let_out()
        else:
            self._in_slots.pop(query, None)
            self._free.release()

    def _let_out(self) -> None:
        while self._in_slots and len(self._outside) < MOST_HANGING:
            query = next(iter(self._in_slots))
            del self._in_slots[query]
            self._outside.add(query)
            self._free.release()


class CachingResolver:
    """Resolves names with `ask`, at most `at_once` that have never resolved at a time, and `KNOWN_AT_ONCE` others."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ttl_seconds: float,
        at_once: int,
        on_crash: Callable[[BaseException], None],
        ask: Ask | None = None,
        *,
        stale_serves: bool = True,
    ) -> None:
        self._loop = loop
        self.ttl_seconds = ttl_seconds
        self._stale_serves = stale_serves
        self._slots = _Slots(at_once)
        self._known_slots = _Slots(KNOWN_AT_ONCE)
        # By name: queries that hang.
        self._hanging: dict[str, int] = {}
        # By name, address and port; of names that have an answer.
        self._failed_at: dict[tuple[str, str, int], float] = {}
        # By name: an answer found until then does not serve when it is stale, because a failure had to be forgotten.
        self._forgotten_at: dict[str, float] = {}
        self._scope = TaskScope(on_crash)
        self._ask = ask or self._ask_system
        self._answers: dict[str, _Answer] = {}
        self._queries: dict[str, _Query] = {}
        self.outcomes = {"answered": 0, "failed": 0, "stale": 0}

    @property
    def hanging(self) -> int:
        """Return how many threads hang in the system's resolver."""
        return self._slots.hanging + self._known_slots.hanging

    async def resolve(self, host: str, port: int, max_age_seconds: float | None = None) -> list[str]:
        """Return the addresses of `host`, at most as old as the cache allows, or `max_age_seconds`.

        Raise TargetRefused if there are none, or none in time.
        """
        try:
            return [str(ipaddress.ip_address(host))]
        except ValueError:
            pass
        if len(host) > LONGEST_NAME:
            raise TargetRefused(f"host {host[:200]!r}... has {len(host)} characters, expected at most {LONGEST_NAME}")
        name, now = host.lower(), self._loop.time()
        known = self._answers.get(name)
        kept = known is not None and now < known.until and now - known.at < (max_age_seconds or float("inf"))
        if known is not None and kept and not known.stale:
            return self._served(name, port, known)
        usable: list[str] = []
        if known is not None and (kept or max_age_seconds is None) and self._serves_on(name, known, now):
            usable = self._usable(name, port, known)
        if usable:
            if not kept and name not in self._queries and not self._refusal(name):
                self._begin(name)
            self.outcomes["stale"] += 1
            return usable
        query = self._queries.get(name) or self._begin(name)
        return self._served(name, port, await self._wait(name, query))

    def address_failed(self, host: str, port: int, address: str) -> None:
        """Called when no connection to `address` could be made for `host` and `port`: no stale answer must lead there.

        A host that was not resolved here is skipped.
        """
        name = host.lower()
        if name not in self._answers:
            return
        self._failed_at.pop((name, address, port), None)
        if len(self._failed_at) >= MOST_FAILED:
            forgotten = next(iter(self._failed_at))
            at = self._failed_at.pop(forgotten)
            if forgotten[0] in self._answers:
                self._forgotten_at[forgotten[0]] = at
        self._failed_at[name, address, port] = self._loop.time()

    def _served(self, name: str, port: int, answer: _Answer) -> list[str]:
        """Return the addresses of an answer for a port; raise TargetRefused if there are none."""
        if answer.error:
            raise TargetRefused(answer.error)
        if not answer.stale:
            return list(answer.addresses)
        usable = self._usable(name, port, answer)
        if not usable:
            raise TargetRefused(f"{answer.problem}, and no connection to its last addresses could be made")
        self.outcomes["stale"] += 1
        return usable

    def _usable(self, name: str, port: int, answer: _Answer) -> list[str]:
        """Return the addresses to which no connection for the name and port has failed since they were found."""
        failed, found_at = self._failed_at, answer.found_at
        return [each for each in answer.addresses if failed.get((name, each, port), float("-inf")) < found_at]

    def _serves_on(self, name: str, answer: _Answer, now: float) -> bool:
        """Return whether an answer may serve beyond its TTL: for another TTL, if failures were not forgotten."""
        if answer.error or not self._stale_serves or answer.found_at <= self._forgotten_at.get(name, float("-inf")):
            return False
        return now - answer.found_at < 2 * self.ttl_seconds

    async def close(self) -> None:
        """Cancel all queries."""
        self._scope.cancel()
        await self._scope.emptied()

    def _begin(self, name: str) -> _Query:
        if refusal := self._refusal(name):
            raise TargetRefused(refusal)
        query = self._queries[name] = _Query(name, self._loop.create_future())
        query.cancel = self._scope.start(self._work(name, query), lambda: self._end(query))
        return query

    def _refusal(self, name: str) -> str:
        """Return why no query of `name` may begin, an empty text if one may."""
        if len(self._queries) >= MOST_QUERIES:
            return f"host {name!r} is not resolved: {MOST_QUERIES} other names wait for it"
        if (hanging := self._hanging.get(name, 0)) >= MOST_HANGING_OF_A_NAME:
            return f"host {name!r} is not resolved: {hanging} queries for it hang in the system's resolver"
        return ""

    async def _wait(self, name: str, query: _Query) -> _Answer:
        query.waiters += 1
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                return await asyncio.shield(query.answer)
        except TimeoutError:
            return self._late(name)
        finally:
            query.waiters -= 1
            if not query.waiters and not query.started:
                # Cancel a query that has not begun and has no waiters left: its slot is for others.
                query.cancel()

    async def _work(self, name: str, query: _Query) -> None:
        last = self._answers.get(name)
        slots = self._slots if last is None or last.error else self._known_slots
        await slots.take()
        query.started, began = True, self._loop.time()
        timer = self._loop.call_later(RESOLVE_SECONDS, self._give_up, query, slots)
        try:
            answer = await self._answer(name)
        finally:
            timer.cancel()
            self._ended(query, slots)
        last = self._answers.get(name)
        # A late answer must not replace an answer that was found since, and a late failure says nothing new.
        if not query.hanging or last is None or (last.at < began and not answer.error):
            self._keep(name, answer)
        if not query.answer.done():
            query.answer.set_result(answer)

    def _give_up(self, query: _Query, slots: _Slots) -> None:
        """Answer the waiters of a query that hangs; the next who needs the name asks anew."""
        self._hanging[query.name] = self._hanging.get(query.name, 0) + 1
        slots.hangs(query)
        if self._queries.get(query.name) is query:
            del self._queries[query.name]
        if query.waiters and not query.answer.done():
            query.answer.set_result(self._late(query.name))

    def _ended(self, query: _Query, slots: _Slots) -> None:
        slots.ended(query)
        if query.hanging:
            self._hanging[query.name] -= 1
            if not self._hanging[query.name]:
                del self._hanging[query.name]

    def _keep(self, name: str, answer: _Answer) -> None:
        self._answers.pop(name, None)
        while len(self._answers) >= MOST_ANSWERS:
            # Failures first: names that do not exist, as many as a client likes, must not drive out names that do.
            failures = (known for known, each in self._answers.items() if each.error)
            oldest = next(failures, next(iter(self._answers)))
            del self._answers[oldest]
            self._forgotten_at.pop(oldest, None)
        self._answers[name] = answer

    def _end(self, query: _Query) -> None:
        if self._queries.get(query.name) is query:
            del self._queries[query.name]
        if not query.answer.done():
            now = self._loop.time()
            query.answer.set_result(_Answer((), f"host {query.name!r} is not resolved any more", now, now, now))

    async def _answer(self, name: str) -> _Answer:
        try:
            addresses = await self._ask(name)
        except OSError as error:
            text = f"host {name!r} cannot be resolved: {error.strerror or error}"
            now = self._loop.time()
            return self._failed(name, now, text) if error.errno in _RESOLVER_FAILED else self._none(now, text)
        except UnicodeError as error:
            return self._none(self._loop.time(), f"host {name!r} is no host name: {error}")
        now = self._loop.time()
        if not addresses:
            return self._none(now, f"host {name!r} has no address")
        self.outcomes["answered"] += 1
        return _Answer(tuple(dict.fromkeys(addresses))[:MOST_ADDRESSES], "", now, now + self.ttl_seconds, now)

    def _none(self, now: float, text: str) -> _Answer:
        self.outcomes["failed"] += 1
        return _Answer((), text, now, now + NEGATIVE_PART * self.ttl_seconds, now)

    def _late(self, name: str) -> _Answer:
        text = f"host {name!r} was not resolved within {RESOLVE_SECONDS:g} s"
        return self._failed(name, self._loop.time(), text)

    def _failed(self, name: str, now: float, text: str) -> _Answer:
        """Return the last good answer while the resolver fails, for as long as a stale answer may serve."""
        last = self._answers.get(name)
        if last is None or not self._serves_on(name, last, now):
            return self._none(now, text)
        until = min(now + NEGATIVE_PART * self.ttl_seconds, last.found_at + 2 * self.ttl_seconds)
        return _Answer(last.addresses, "", now, until, last.found_at, text)

    async def _ask_system(self, name: str) -> list[str]:
        # Without a time limit: `_give_up` ends the wait for the thread, and the thread counts until it ends.
        return await in_thread(partial(_addresses, name), "names", None)


def _addresses(name: str) -> list[str]:
    """Ask the system's resolver, which may block for as long as it likes."""
    return [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
