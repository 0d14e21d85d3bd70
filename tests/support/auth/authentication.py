"""What the tests of authentication share: an authenticator with books, and how a refusal is seen."""

import io
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from limiter.clock import Clock
from proxy.auth.counters import AuthenticationCounters
from proxy.auth.failures import CredentialsRefused
from proxy.auth.identity import Authenticated
from proxy.auth.providers.registry import AuthContext, Authenticator, build_authenticator
from proxy.auth.settings import AuthenticationSettings
from proxy.core.log import open_log
from tests.support.auth.tokens import NOW
from tests.support.loops.clock import ManualClock


class Doorman:
    """An authenticator and all that it told others; `now` is the time of day."""

    def __init__(self, settings: AuthenticationSettings, clock: Clock | None = None) -> None:
        self.now = NOW
        self.counters = AuthenticationCounters()
        self.crashes: list[BaseException] = []
        self._lines = io.BytesIO()
        self.authenticator: Authenticator = build_authenticator(
            settings,
            AuthContext(
                clock=clock or ManualClock(),
                now=lambda: self.now,
                observer=self.counters,
                log=open_log("debug", file=self._lines),
                crashed=self.crashes.append,
            ),
        )

    async def admits(self, method: str, data: bytes, certificate: bytes | None = None) -> Authenticated:
        return await self.authenticator.authenticate(method, data, certificate, "192.0.2.1")

    async def refuses(self, method: str, data: bytes, certificate: bytes | None = None) -> CredentialsRefused:
        with pytest.raises(CredentialsRefused) as refusal:
            await self.authenticator.authenticate(method, data, certificate, "192.0.2.1")
        return refusal.value

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._lines.getvalue().splitlines()]


def at_once(answer: Coroutine[Any, Any, Authenticated]) -> Authenticated:
    """Run what must not suspend."""
    try:
        answer.send(None)
    except StopIteration as end:
        found = end.value
        assert isinstance(found, Authenticated)
        return found
    answer.close()
    raise AssertionError("it suspended")
