"""What the tests of authentication share: an authenticator with books, and how a refusal is seen."""

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from limiter.clock import Clock
from proxy.auth.authenticator import Authenticator
from proxy.auth.failures import CredentialsRefused
from proxy.auth.identity import Authenticated
from proxy.auth.providers.registry import build_authenticator
from proxy.config.config import Config
from proxy.core.counters import Counters
from proxy.core.log import open_log
from tests.support.auth.tokens import NOW
from tests.support.cores import core_of
from tests.support.loops.clock import ManualClock
from tests.support.loops.loops import run_virtual
from tests.support.proxies.counted import counted, counted_by


class Doorman:
    """An authenticator and all that it told others; `now` is the time of day."""

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self.now = NOW
        self.crashes: list[BaseException] = []
        self.counters = Counters(lambda error, where: self.crashes.append(error))
        self._lines = io.BytesIO()
        core = core_of(
            config=config, counters=self.counters, log=open_log("debug", file=self._lines), loop=clock or ManualClock()
        )
        self.authenticator: Authenticator = build_authenticator(config.authentication_providers, core, lambda: self.now)

    async def admits(self, method: str, data: bytes, certificate: bytes | None = None) -> Authenticated:
        return await self.authenticator.authenticate(method, data, certificate, "192.0.2.1")

    async def refuses(self, method: str, data: bytes, certificate: bytes | None = None) -> CredentialsRefused:
        with pytest.raises(CredentialsRefused) as refusal:
            await self.authenticator.authenticate(method, data, certificate, "192.0.2.1")
        return refusal.value

    async def reads_files(self, result: str = "applied") -> None:
        """Wait until a file that has changed was read again."""
        before = counted(self.counters, "authentication_file_reloads", result)
        for _ in range(1000):
            if counted(self.counters, "authentication_file_reloads", result) > before:
                return
            await asyncio.sleep(1)
        raise AssertionError(f"no file was {result}: {counted_by(self.counters, 'authentication_file_reloads')}")

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._lines.getvalue().splitlines()]


def watching(config: Config) -> Callable[[Callable[[Doorman], Awaitable[None]]], None]:
    """Run a test's body in virtual time, with an authenticator that watches its files."""

    def run(body: Callable[[Doorman], Awaitable[None]]) -> None:
        async def main() -> None:
            doorman = Doorman(config)
            doorman.authenticator.start()
            await body(doorman)
            await doorman.authenticator.close()
            assert doorman.crashes == []

        run_virtual(main())

    return run


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
