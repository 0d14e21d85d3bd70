"""Resolve host names: answers are kept for a while, equal questions are asked once, and few at a time.

A resolver may hang for as long as it likes, in a thread that nobody can end: such a question keeps its place among the
few until it is over, while those who wait for it give up after `RESOLVE_SECONDS`. What clients make this proxy resolve
therefore has places of its own, apart from the brokers'.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from proxy.brokers.target import RESOLVE_SECONDS
from proxy.core.errors import TargetRefused
from proxy.core.tasks import TaskScope

Ask = Callable[[str], Awaitable[list[str]]]

MOST_ANSWERS: Final = 256
# What does not fit into a DNS name, and more addresses than anybody tries, would be memory that strangers fill.
LONGEST_NAME: Final = 253
MOST_ADDRESSES: Final = 128
MOST_QUESTIONS: Final = 1024
# A name that does not resolve is asked for again after this part of the time that addresses are kept.
NEGATIVE_PART: Final = 0.1
# So long the last addresses of a name serve on while the resolver itself fails.
STALE_SECONDS: Final = 3600.0
# What says nothing about the name: the resolver could not be asked.
_RESOLVER_FAILED: Final = frozenset({socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_SYSTEM, socket.EAI_MEMORY})


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is known of a name since `at`: its addresses, or why there are none. Good ones were found at `found_at`."""

    addresses: tuple[str, ...]
    error: str
    at: float
    until: float
    found_at: float

    def give(self) -> list[str]:
        if self.error:
            raise TargetRefused(self.error)
        return list(self.addresses)


class _Question:
    __slots__ = ("answer", "cancel", "started", "waiters")

    def __init__(self, answer: asyncio.Future[_Answer]) -> None:
        self.answer = answer
        self.waiters = 0
        self.started = False
        self.cancel: Callable[[], object] = lambda: None


class CachingResolver:
    """Resolve names with `ask`, at most `at_once` at a time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ttl_seconds: float,
        at_once: int,
        on_crash: Callable[[BaseException], None],
        ask: Ask | None = None,
    ) -> None:
        self._loop = loop
        self.ttl_seconds = ttl_seconds
        self._places = asyncio.Semaphore(at_once)
        self._scope = TaskScope(on_crash)
        self._ask = ask or self._ask_system
        self._answers: dict[str, _Answer] = {}
        self._questions: dict[str, _Question] = {}
        self.outcomes = {"answered": 0, "failed": 0, "stale": 0}

    async def resolve(self, host: str, max_age_seconds: float | None = None) -> list[str]:
        """Give the addresses of `host`, known for at most the time they are kept, or `max_age_seconds`.

        Raises TargetRefused if there are none, or none in time.
        """
        try:
            return [str(ipaddress.ip_address(host))]
        except ValueError:
            pass
        if len(host) > LONGEST_NAME:
            raise TargetRefused(f"host {host[:200]!r}... has {len(host)} characters, expected at most {LONGEST_NAME}")
        name, now = host.lower(), self._loop.time()
        known = self._answers.get(name)
        if known is not None and now < known.until and (max_age_seconds is None or now - known.at < max_age_seconds):
            return known.give()
        question = self._questions.get(name) or self._begin(name)
        return (await self._wait(name, question)).give()

    async def close(self) -> None:
        """Give up all questions."""
        self._scope.cancel()
        await self._scope.emptied()

    def _begin(self, name: str) -> _Question:
        if len(self._questions) >= MOST_QUESTIONS:
            raise TargetRefused(f"host {name!r} is not resolved: {MOST_QUESTIONS} other names wait for it")
        question = self._questions[name] = _Question(self._loop.create_future())
        question.cancel = self._scope.start(self._work(name, question), lambda: self._end(name, question))
        return question

    async def _wait(self, name: str, question: _Question) -> _Answer:
        question.waiters += 1
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                return await asyncio.shield(question.answer)
        except TimeoutError:
            now = self._loop.time()
            return self._failed(name, now, f"host {name!r} was not resolved within {RESOLVE_SECONDS:g} s")
        finally:
            question.waiters -= 1
            if not question.waiters and not question.started:
                # Nobody waits, and nothing was begun: its place is for others.
                question.cancel()

    async def _work(self, name: str, question: _Question) -> None:
        async with self._places:
            question.started = True
            answer = await self._answer(name)
        self._answers.pop(name, None)
        while len(self._answers) >= MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]
        self._answers[name] = answer
        if not question.answer.done():
            question.answer.set_result(answer)

    def _end(self, name: str, question: _Question) -> None:
        if self._questions.get(name) is question:
            del self._questions[name]
        if not question.answer.done():
            now = self._loop.time()
            question.answer.set_result(_Answer((), f"host {name!r} is not resolved any more", now, now, now))

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

    def _failed(self, name: str, now: float, text: str) -> _Answer:
        """Go on with the last good answer if the resolver fails."""
        last = self._answers.get(name)
        if last is None or last.error or now - last.found_at > STALE_SECONDS:
            return self._none(now, text)
        self.outcomes["stale"] += 1
        return _Answer(last.addresses, "", now, now + NEGATIVE_PART * self.ttl_seconds, last.found_at)

    async def _ask_system(self, name: str) -> list[str]:
        found = await self._loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        return [str(entry[4][0]) for entry in found]
