"""Stand in for the list of brokers where a test has one that is always up."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from proxy.brokers.discovery import Brokers
from proxy.brokers.side import BrokerSide
from proxy.brokers.target import BrokerAddress
from proxy.core.errors import BrokerUnavailable


class OneBroker(Brokers):
    """The only broker, and what was reported of it."""

    def __init__(self, broker: BrokerAddress) -> None:
        self.broker = broker
        self.reports: list[str] = []

    def home(self, key: str) -> BrokerAddress:
        return self.broker

    def pick_at_once(self, avoid: BrokerAddress | None = None) -> BrokerAddress | None:
        return self.broker

    async def pick(self, key: str | None = None, avoid: BrokerAddress | None = None) -> BrokerAddress:
        return self.broker

    async def usable(self, broker: BrokerAddress, key: str) -> BrokerAddress:
        return broker

    def worked(self, broker: BrokerAddress) -> None:
        self.reports.append("worked")

    def failed(self, broker: BrokerAddress, error: str, *, answers_tcp: bool) -> None:
        self.reports.append(error)


class SilentBroker(OneBroker):
    """A broker that never comes up; or with a `gate` when that opens, and then with an error."""

    def __init__(self, broker: BrokerAddress, gate: asyncio.Event | None = None) -> None:
        super().__init__(broker)
        self._gate = asyncio.Event() if gate is None else gate

    def pick_at_once(self, avoid: BrokerAddress | None = None) -> BrokerAddress | None:
        return None

    async def pick(self, key: str | None = None, avoid: BrokerAddress | None = None) -> BrokerAddress:
        await self._gate.wait()
        raise BrokerUnavailable("no broker is up")


def side_of(brokers: OneBroker, pool: Any = None) -> BrokerSide:
    """Give what leads to brokers as a service of requests sees it: a choice of brokers, and a pool."""
    return cast(BrokerSide, SimpleNamespace(brokers=brokers, pool=pool, known=None))
