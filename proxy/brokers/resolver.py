"""Resolve host names: answers are cached, equal queries share a single one, and few queries run at a time.

The system's resolver may hang in a thread that nobody can end. A query that has run for `RESOLVE_SECONDS` is given up:
its waiters get an error, its slot is for others, and its thread counts as hanging until it ends. Threads that hang are
bounded in number, for each name and for all names (`Slots`); above that bound a query keeps its slot. A query has a
thread of its own: the threads of libuv, which all names would share, run two queries at once. Names that have never
resolved have slots and hanging threads apart from those that have.

There are three resolvers, which share no slot, no line and no answer: for the configured brokers, for targets that
configuration or brokers have named, and for names that clients make up (`TargetNames`). So clients' own names can
neither hold up nor drive out a broker's.

Rule: a stale answer serves for one more TTL while the new answer is asked for, without an address to which a connection
for this name and port has failed since the answer was found. Failures for another name or port do not count: a client
chooses both, and may have its own name lead to a broker's address. No stale answer serves if the present owner of the
address would be shown credentials that are good elsewhere (`stale_serves`).
"""

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Final

from proxy.brokers.name_queries import Asker, NameAnswer, Query, Slots
from proxy.brokers.target import RESOLVE_SECONDS
from proxy.core.counters import counter_by, gauge
from proxy.core.errors import TargetRefused
from proxy.core.loop_budget import LoopBudget
from proxy.core.task_turns import TaskTurns
from proxy.core.tasks import TaskScope
from proxy.core.threads import in_thread

Ask = Callable[[str], Awaitable[list[str]]]

MOST_ANSWERS: Final = 256
# Limits of the memory that unknown clients can fill: the length of a DNS name, and more addresses than any dialer
# tries.
LONGEST_NAME: Final = 253
NAMES: Final = counter_by(
    "result", "names_resolved", "Resolutions of the host names of brokers and targets, by result."
)
HANGING: Final = gauge(
    "names_hanging", "Threads that resolve a name for longer than 10 s. Nobody can end them; they are bounded."
)
MOST_ADDRESSES: Final = 128
# A name that does not resolve is cached for this part of the time of other answers.
NEGATIVE_PART: Final = 0.1
# Failed connections that are remembered, of names that have an answer. If there are more, the answer of a name of which
# one was forgotten does not serve beyond its time.
MOST_FAILED: Final = 1024
# Most queries at once, each in a thread: of names that have never resolved; and beside them of those that have.
NAMES_AT_ONCE: Final = 4
KNOWN_AT_ONCE: Final = 2
# Most threads that hang for one name, beside a query that is not given up yet.
MOST_HANGING_OF_A_NAME: Final = 2
# Errors that say nothing about the name: the resolver could not be reached, or there was no thread to ask it.
_RESOLVER_FAILED: Final = frozenset(
    {socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_SYSTEM, socket.EAI_MEMORY, errno.EAGAIN}
)


class CachingResolver:
    """Resolves names with `ask`, at most `at_once` that have never resolved at a time, and `KNOWN_AT_ONCE` others."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ttl_seconds: float,
        at_once: int,
        on_crash: Callable[[BaseException], None],
        loop_budget: LoopBudget,
        ask: Ask | None = None,
        *,
        stale_serves: bool = True,
    ) -> None:
        self._loop = loop
        self.ttl_seconds = ttl_seconds
        self._stale_serves = stale_serves
        self._slots = Slots(at_once, self._start)
        self._known_slots = Slots(KNOWN_AT_ONCE, self._start)
        # By name: queries that hang.
        self._hanging: dict[str, int] = {}
        # By name, address and port; of names that have an answer.
        self._failed_at: dict[tuple[str, str, int], float] = {}
        # By name: an answer found until then does not serve when it is stale, because a failure had to be forgotten.
        self._forgotten_at: dict[str, float] = {}
        self._scope = TaskScope(on_crash)
        # Clients that have an answer: thousands may have waited for the same name, and each dials next.
        self._turns = TaskTurns(loop_budget, on_crash)
        self._ask = ask or self._ask_system
        self._answers: dict[str, NameAnswer] = {}
        self._queries: dict[str, Query] = {}
        self.outcomes = {"answered": 0, "failed": 0, "stale": 0}

    @property
    def hanging(self) -> int:
        """Return how many threads hang in the system's resolver."""
        return self._slots.hanging + self._known_slots.hanging

    async def resolve(
        self, host: str, port: int, max_age_seconds: float | None = None, *, network: str = ""
    ) -> list[str]:
        """Return the addresses of `host`, at most as old as the cache allows, or `max_age_seconds`.

        `network` is that of the client who asks; the proxy's own questions have none. Raise TargetRefused if there are
        no addresses, or none in time.
        """
        if len(host) > LONGEST_NAME:
            raise TargetRefused(f"host {host[:200]!r}... has {len(host)} characters, expected at most {LONGEST_NAME}")
        if (address := _literal(host)) is not None:
            return [address]
        name, now = host.lower(), self._loop.time()
        known = self._answers.get(name)
        kept = known is not None and now < known.until and now - known.at < (max_age_seconds or float("inf"))
        if known is not None and kept and not known.stale:
            return self._served(name, port, known)
        usable: list[str] = []
        if known is not None and (kept or max_age_seconds is None) and self._serves_on(name, known, now):
            usable = self._usable(name, port, known)
        if usable:
            if not kept and name not in self._queries:
                with suppress(TargetRefused):
                    self._join(name, network)
            self.outcomes["stale"] += 1
            return usable
        query, asker = self._join(name, network)
        return self._served(name, port, await self._wait(query, network, asker))

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

    def _served(self, name: str, port: int, answer: NameAnswer) -> list[str]:
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

    def _usable(self, name: str, port: int, answer: NameAnswer) -> list[str]:
        """Return the addresses to which no connection for the name and port has failed since they were found."""
        failed, found_at = self._failed_at, answer.found_at
        return [each for each in answer.addresses if failed.get((name, each, port), float("-inf")) < found_at]

    def _serves_on(self, name: str, answer: NameAnswer, now: float) -> bool:
        """Return whether an answer may serve beyond its TTL: for another TTL, if failures were not forgotten."""
        if answer.error or not self._stale_serves or answer.found_at <= self._forgotten_at.get(name, float("-inf")):
            return False
        return now - answer.found_at < 2 * self.ttl_seconds

    async def close(self) -> None:
        """Cancel all queries."""
        self._scope.cancel()
        for query in list(self._queries.values()):
            if not query.started:
                query.settle(self._gone(query))
                for network in list(query.askers):
                    self._leave(query, network)
        await self._scope.emptied()
        self._turns.finish()

    # --- waiting ------------------------------------------------------------------------------------

    def _join(self, name: str, network: str) -> tuple[Query, Asker]:
        """Add a network to those that ask for a name, in the query under way or a new one; raise TargetRefused."""
        query = self._queries.get(name)
        if query is None and (hanging := self._hanging.get(name, 0)) >= MOST_HANGING_OF_A_NAME:
            text = f"host {name!r} is not resolved: {hanging} queries for it hang in the system's resolver"
            raise TargetRefused(text)
        if query is not None and network in query.askers:
            return query, query.askers[network]
        if query is None:
            query = self._queries[name] = Query(name, self._slots_for(name))
        asker = Asker(self._turns)
        self._make_room(query.slots.join(query, network, asker), asker)
        return query, asker

    def _slots_for(self, name: str) -> Slots:
        last = self._answers.get(name)
        return self._slots if last is None or last.error else self._known_slots

    def _make_room(self, lost: tuple[Query, Asker] | None, newcomer: Asker) -> None:
        """Answer those who have lost their place in line; raise TargetRefused if it is the newcomer."""
        if lost is None:
            return
        query, loser = lost
        if not query.askers:
            del self._queries[query.name]
        if loser is newcomer:
            raise TargetRefused("too many other names wait to be resolved")
        now = self._loop.time()
        text = f"host {query.name!r} is not resolved: too many names of its clients' network wait"
        loser.settle(NameAnswer((), text, now, now, now))

    def _leave(self, query: Query, network: str) -> None:
        """Take a network without waiters from a query that has not begun: the slot is for others."""
        query.slots.leave(query, network)
        if not query.askers:
            del self._queries[query.name]

    async def _wait(self, query: Query, network: str, asker: Asker) -> NameAnswer:
        asker.waiters += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(RESOLVE_SECONDS):
                    while asker.answer is None:
                        await asker.waiting.wait()
            # The answer may have come while this client stood in line for its turn.
            return asker.answer or self._late(query.name)
        finally:
            asker.waiters -= 1
            if not asker.waiters and not query.started and query.askers.get(network) is asker:
                self._leave(query, network)

    # --- queries ------------------------------------------------------------------------------------

    def _start(self, query: Query) -> None:
        """Start a query that has its slot."""
        timer = self._loop.call_later(RESOLVE_SECONDS, self._give_up, query)
        self._scope.start(self._work(query), lambda: self._end(query, timer))

    async def _work(self, query: Query) -> None:
        name, began = query.name, self._loop.time()
        answer = await self._answer(name)
        last = self._answers.get(name)
        # A late answer must not replace an answer that was found since, and a late failure says nothing new.
        if not query.hanging or last is None or (last.at < began and not answer.error):
            self._keep(name, answer)
        query.settle(answer)

    def _give_up(self, query: Query) -> None:
        """Answer the waiters of a query that hangs; the next who needs the name asks anew."""
        self._hanging[query.name] = self._hanging.get(query.name, 0) + 1
        query.slots.hangs(query)
        if self._queries.get(query.name) is query:
            del self._queries[query.name]
        if query.waiters:
            query.settle(self._late(query.name))

    def _end(self, query: Query, timer: asyncio.TimerHandle) -> None:
        """Return the slot of a query that has ended, or never began because all queries are cancelled."""
        timer.cancel()
        if self._queries.get(query.name) is query:
            del self._queries[query.name]
        if query.hanging:
            self._hanging[query.name] -= 1
            if not self._hanging[query.name]:
                del self._hanging[query.name]
        query.settle(self._gone(query))
        query.slots.ended(query)

    def _gone(self, query: Query) -> NameAnswer:
        now = self._loop.time()
        return NameAnswer((), f"host {query.name!r} is not resolved any more", now, now, now)

    def _keep(self, name: str, answer: NameAnswer) -> None:
        self._answers.pop(name, None)
        while len(self._answers) >= MOST_ANSWERS:
            # Failures first: names that do not exist, as many as a client likes, must not drive out names that do.
            failures = (known for known, each in self._answers.items() if each.error)
            oldest = next(failures, next(iter(self._answers)))
            del self._answers[oldest]
            self._forgotten_at.pop(oldest, None)
        self._answers[name] = answer

    async def _answer(self, name: str) -> NameAnswer:
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
        return NameAnswer(tuple(dict.fromkeys(addresses))[:MOST_ADDRESSES], "", now, now + self.ttl_seconds, now)

    def _none(self, now: float, text: str) -> NameAnswer:
        self.outcomes["failed"] += 1
        return NameAnswer((), text, now, now + NEGATIVE_PART * self.ttl_seconds, now)

    def _late(self, name: str) -> NameAnswer:
        text = f"host {name!r} was not resolved within {RESOLVE_SECONDS:g} s"
        return self._failed(name, self._loop.time(), text)

    def _failed(self, name: str, now: float, text: str) -> NameAnswer:
        """Return the last good answer while the resolver fails, for as long as a stale answer may serve."""
        last = self._answers.get(name)
        if last is None or not self._serves_on(name, last, now):
            return self._none(now, text)
        until = min(now + NEGATIVE_PART * self.ttl_seconds, last.found_at + 2 * self.ttl_seconds)
        return NameAnswer(last.addresses, "", now, until, last.found_at, text)

    async def _ask_system(self, name: str) -> list[str]:
        # Without a time limit: `_give_up` ends the wait for the thread, and the thread counts until it ends.
        return await in_thread(partial(_addresses, name), "names", None)


class TargetNames:
    """Resolves the names of targets: those that configuration or brokers have `given` apart from those made up."""

    def __init__(self, given: CachingResolver, made_up: CachingResolver, is_given: Callable[[str], bool]) -> None:
        self._given = given
        self._made_up = made_up
        self._is_given = is_given

    async def resolve(self, host: str, port: int, *, network: str = "") -> list[str]:
        """Return the addresses of `host`; made-up names take turns by the `network` of their client."""
        if self._is_given(host.lower()):
            return await self._given.resolve(host, port)
        return await self._made_up.resolve(host, port, network=network)


def _addresses(name: str) -> list[str]:
    """Ask the system's resolver, which may block for as long as it likes."""
    return [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]


@lru_cache(MOST_ANSWERS)
def _literal(host: str) -> str | None:
    """Return a host that is an address, in one spelling; None for a name."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None
