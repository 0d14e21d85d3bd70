"""The cached keys of OpenID issuers: their age limits, and when an issuer is asked again.

Rules:
- An issuer gets a single request at a time, shared by all waiters; the request continues if a waiter leaves.
- Cached keys that are no longer fresh are refreshed in the background and stay in use until they expire: an issuer that
  is down locks out no client whose key is cached.
- Unknown key ids cause at most `MISSES_A_WINDOW` requests at once, and one for each such part of `miss_seconds` in the
  long run, so made-up ids cannot flood an issuer; nor can they keep a new key out for longer than such a part. An id
  that was looked for in vain waits as long. An issuer that failed is left alone for a second, then twice as long each
  time, up to a quarter less at random; checks that need it in this pause fail at once.
- At most `MOST_WAITING` checks wait for an issuer, with at most `MOST_WAITING_BYTES` of tokens; further checks fail
  with a busy error. Any client may name an issuer, and a waiting check holds memory.
"""

import asyncio
import random
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from proxy.auth.failures import Reason
from proxy.auth.issuer_sockets import MOST_WAITING
from proxy.auth.providers.issuer_client import IssuerFault, Keys
from proxy.auth.providers.verifying_keys import VerifyingKey
from proxy.config.config import Config
from proxy.core.tasks import Draw, spread

# Of tokens that wait, beside the number of checks.
MOST_WAITING_BYTES: Final = 4 * 1024 * 1024
REST_SECONDS: Final = 1.0
MISSES_A_WINDOW: Final = 5
# Ids of each issuer that are known not to be there.
MOST_VAIN_IDS: Final = 64
LONGEST_REST_SECONDS: Final = 10.0

_NO_ANSWER: Final = IssuerFault(Reason.ERROR_RETRIEVING_PROVIDER_METADATA, "the issuer has not answered")

Start = Callable[[Coroutine[Any, Any, None], Callable[[], None]], object]


@dataclass(frozen=True, slots=True)
class _HeldKeys:
    keys: Keys
    since: float


@dataclass(slots=True)
class _Misses:
    """Decides which unknown ids of an issuer are worth a request; `part` is the time that one request stands for."""

    part: float
    paid_until: float = 0.0
    # When the last request for an id ended that did not find it, oldest first.
    vain: OrderedDict[str, float] = field(default_factory=OrderedDict)

    def allows(self, key_id: str, now: float) -> bool:
        """Return whether a request may be made for an id, and count the request if so."""
        if now - self.vain.get(key_id, -self.part) < self.part:
            return False
        if self.paid_until - now > (MISSES_A_WINDOW - 1) * self.part:
            return False
        self.paid_until = max(self.paid_until, now) + self.part
        return True

    def in_vain(self, key_id: str, now: float) -> None:
        """Remember that the issuer does not publish an id."""
        self.vain[key_id] = now
        self.vain.move_to_end(key_id)
        while len(self.vain) > MOST_VAIN_IDS:
            self.vain.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Failure:
    fault: IssuerFault
    until: float
    rest_seconds: float


class IssuerKeys:
    """Finds keys by issuer and key id; `start` runs a request, `monotonic` returns seconds.

    The caller passes allowed issuers only: their number bounds the state kept beside `openIDCacheSize` key sets.
    """

    def __init__(
        self,
        config: Config,
        fetch: Callable[[str], Awaitable[Keys]],
        start: Start,
        monotonic: Callable[[], float],
        draw: Draw = random.random,
    ) -> None:
        self._config = config
        self._refresh_seconds = config.open_id_cache_refresh_after_write_seconds
        self._fetch = fetch
        self._start = start
        self._monotonic = monotonic
        self._draw = draw
        self._held: OrderedDict[str, _HeldKeys] = OrderedDict()
        self._requests: dict[str, asyncio.Future[None]] = {}
        self._failures: dict[str, _Failure] = {}
        self._misses: dict[str, _Misses] = {}
        self._waiting: Counter[str] = Counter()
        self._waiting_bytes: Counter[str] = Counter()

    async def key(self, issuer: str, key_id: str | None, token_bytes: int) -> VerifyingKey:
        """Return a key, fetching it from its issuer if needed; do not suspend for a cached key. Raise IssuerFault.

        `token_bytes` is the size of the token that the caller holds in memory meanwhile.
        """
        if key_id is None:
            raise IssuerFault(Reason.ERROR_RETRIEVING_PUBLIC_KEY, "the token names no key (kid)")
        held = self._fresh(issuer)
        found = held.keys.get(key_id) if held else None
        if found is not None:
            if held is not None and self._age(held) >= self._refresh_seconds and not self._rests(issuer):
                self._ask(issuer)
            return found
        if held is None or self._may_miss(issuer, key_id, held):
            before = held
            await self._asked(issuer, token_bytes)
            held = self._fresh(issuer)
            found = held.keys.get(key_id) if held else None
            if found is None and held is not None and held is not before:
                self._misses_of(issuer).in_vain(key_id, self._monotonic())
        if found is None:
            raise self._why_not(issuer, held)
        return found

    def _may_miss(self, issuer: str, key_id: str, held: _HeldKeys) -> bool:
        """Return whether an unknown id waits for newer keys."""
        if issuer in self._requests:
            return True
        if self._age(held) < REST_SECONDS or self._rests(issuer):
            return False
        return self._misses_of(issuer).allows(key_id, self._monotonic())

    def _misses_of(self, issuer: str) -> _Misses:
        part = max(self._config.open_id_key_id_cache_miss_refresh_seconds, REST_SECONDS) / MISSES_A_WINDOW
        return self._misses.setdefault(issuer, _Misses(part))

    async def _asked(self, issuer: str, token_bytes: int) -> None:
        if issuer not in self._requests and self._rests(issuer):
            return
        size = self._waiting_bytes[issuer] + token_bytes
        if self._waiting[issuer] >= MOST_WAITING or size > MOST_WAITING_BYTES:
            raise IssuerFault(Reason.BUSY, "too many wait for the keys of the issuer, try again")
        self._waiting[issuer] += 1
        self._waiting_bytes[issuer] += token_bytes
        try:
            # Do not await the future itself: the cancellation of this waiter would cancel the future for all waiters.
            await asyncio.wait((self._ask(issuer),))
        finally:
            self._waiting[issuer] -= 1
            self._waiting_bytes[issuer] -= token_bytes

    def _ask(self, issuer: str) -> "asyncio.Future[None]":
        request = self._requests.get(issuer)
        if request is None:
            request = self._requests[issuer] = asyncio.get_running_loop().create_future()
            self._start(self._request(issuer), lambda: self._answered(issuer))
        return request

    async def _request(self, issuer: str) -> None:
        # Record a failure until the answer is there, so that the pause holds however this request ends.
        former = self._failures.get(issuer)
        rest_seconds = min(LONGEST_REST_SECONDS, 2 * former.rest_seconds) if former else REST_SECONDS
        self._failed(issuer, _NO_ANSWER, rest_seconds)
        try:
            keys = await self._fetch(issuer)
        except IssuerFault as fault:
            self._failed(issuer, fault, rest_seconds)
            return
        self._failures.pop(issuer, None)
        self._held[issuer] = _HeldKeys(keys, self._monotonic())
        self._held.move_to_end(issuer)
        while len(self._held) > self._config.open_id_cache_size:
            self._held.popitem(last=False)

    def _failed(self, issuer: str, fault: IssuerFault, rest_seconds: float) -> None:
        until = self._monotonic() + spread(rest_seconds, self._draw)
        self._failures[issuer] = _Failure(fault, until, rest_seconds)

    def _answered(self, issuer: str) -> None:
        request = self._requests.pop(issuer)
        if not request.done():
            request.set_result(None)

    def _fresh(self, issuer: str) -> _HeldKeys | None:
        held = self._held.get(issuer)
        if held is None:
            return None
        if self._age(held) >= self._config.open_id_cache_expiration_seconds:
            del self._held[issuer]
            return None
        self._held.move_to_end(issuer)
        return held

    def _age(self, held: _HeldKeys) -> float:
        return self._monotonic() - held.since

    def _rests(self, issuer: str) -> bool:
        failure = self._failures.get(issuer)
        return failure is not None and self._monotonic() < failure.until

    def _why_not(self, issuer: str, held: _HeldKeys | None) -> IssuerFault:
        failure = self._failures.get(issuer)
        if held is None and failure is not None:
            return IssuerFault(failure.fault.reason, str(failure.fault))
        return IssuerFault(Reason.ERROR_RETRIEVING_PUBLIC_KEY, "the issuer does not publish the token's key")
