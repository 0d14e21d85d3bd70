"""The brokers' own list of the active brokers: asked at the start, and again when a client names an unknown host.

Rules: one question at a time serves all waiters, and questions begin at least a second apart, so clients that name
unknown hosts cost the brokers one small request a second. A role that may not read the list stops the questions. The
list has the hosts of brokers and the ports of their web services, so only its hosts are used.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

from proxy.brokers.admin_port import AdminRefused, AdminUnavailable
from proxy.core.log import LinePace, Logger
from proxy.core.loop_budget import LoopBudget
from proxy.core.task_turns import PacedWaiters, TaskTurns
from proxy.core.tasks import TaskScope, spread

PAUSE_SECONDS: Final = 1.0
# The longest wait of a client's CONNECT for a list.
WAIT_SECONDS: Final = 5.0
LIST_SECONDS: Final = 60.0
# A role that was refused may have a new token, or new rights, by then.
REFUSED_SECONDS: Final = 300.0


class BrokerList:
    """The hosts of the list that `ask` returned last, from `start` to `close`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ask: Callable[[], Awaitable[frozenset[str]]],
        log: Logger,
        on_crash: Callable[[BaseException], None],
        loop_budget: LoopBudget,
    ) -> None:
        self._loop = loop
        self._ask = ask
        self._log = log
        self._pace = LinePace()
        self._scope = TaskScope(on_crash)
        self._hosts: frozenset[str] = frozenset()
        self._good_until = -math.inf
        self._refused_until = -math.inf
        self._told_refusal = False
        self._not_before = -math.inf
        # The last question that began, and the last that ended.
        self._begun = self._ended = 0
        self._asking = False
        self._turns = TaskTurns(loop_budget, on_crash)
        self._waiters = PacedWaiters(self._turns)
        self._closed = False

    def start(self) -> None:
        """Ask for the list, so that it is there before the first client."""
        if not self._asking and not self._closed:
            self._begin()

    async def close(self) -> None:
        """Cancel a question under way; waiters get their answer from the last list."""
        self._closed = True
        self._scope.cancel()
        await self._scope.emptied()
        self._turns.finish()

    def __contains__(self, host: str) -> bool:
        return host.lower() in self._hosts and self._loop.time() < self._good_until

    def named(self, host: str) -> bool:
        """Return whether `host` is in the last list, however old that is."""
        return host.lower() in self._hosts

    @property
    def off(self) -> bool:
        """Return whether the proxy's role may not read the list."""
        return self._loop.time() < self._refused_until

    async def learn(self, host: str) -> bool:
        """Return whether `host` is in the list, or in the answer to a question that begins after this call.

        The wait ends after `WAIT_SECONDS`.
        """
        before = self._begun
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while host not in self:
                    # A question of others may be under way since the one of this client has ended.
                    if self.off or self._closed or self._ended > before:
                        return False
                    if not self._asking:
                        self._begin()
                    await self._waiters.wait()
        except TimeoutError:
            return False
        return True

    def _begin(self) -> None:
        self._asking = True
        self._scope.start(self._work(), self._over)

    def _over(self) -> None:
        self._asking = False
        self._ended = self._begun
        self._waiters.wake()

    async def _work(self) -> None:
        await asyncio.sleep(max(0.0, self._not_before - self._loop.time()))
        self._begun += 1
        self._not_before = self._loop.time() + PAUSE_SECONDS
        try:
            hosts = await self._ask()
        except AdminRefused as error:
            self._refused_until = self._loop.time() + spread(REFUSED_SECONDS)
            if not self._told_refusal:
                self._told_refusal = True
                self._log.warning("the list of brokers may not be read and is not used", detail=str(error))
        except AdminUnavailable as error:
            if self._pace.due(self._loop.time()):
                self._log.warning("the list of brokers cannot be read", detail=str(error))
        else:
            if hosts != self._hosts:
                self._log.info("brokers listed", detail=f"{len(hosts)} hosts")
            self._told_refusal = False
            self._hosts, self._good_until = hosts, self._loop.time() + LIST_SECONDS
