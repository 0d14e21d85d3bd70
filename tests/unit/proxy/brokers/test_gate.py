"""The gate in virtual time: which addresses of which targets may be dialled, by names that resolve anew."""

import asyncio
import io
from collections.abc import Awaitable, Callable, Collection
from typing import Any, cast

import pytest

from proxy.app.metrics.counters import Counters
from proxy.brokers.broker_list import BrokerList
from proxy.brokers.discovery import Brokers, BrokerSettings
from proxy.brokers.gate import MOST_MADE_UP_ADDRESSES, TargetGate
from proxy.brokers.known_brokers import KnownBrokers
from proxy.brokers.resolver import CachingResolver
from proxy.brokers.target import BrokerAddress, TargetValidator
from proxy.core.errors import BrokerUnreachable, TargetInactive, TargetRefused, TargetUnknown
from proxy.core.log import open_log
from proxy.core.loop_budget import LoopBudget
from tests.support.loops.loops import run_virtual

SERVICE = "brokers.example"
TTL = 30.0


class Town:
    """A gate before the brokers of one name; `names` are the answers of the name server, for brokers and clients."""

    def __init__(
        self, withholds: bool = True, only_configured: bool = False, listed: Collection[str] | None = None
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.counters = Counters()
        self.log = io.BytesIO()
        log = open_log("info", "json", self.log)
        self.names: dict[str, list[str]] = {SERVICE: ["10.0.0.1", "10.0.0.2"]}
        self.asked: list[str] = []
        settings = BrokerSettings(((SERVICE, 6650), ("10.9.9.9", 6651)), False, TTL, 0.5)
        budget = LoopBudget(self.loop, self.loop.time)
        own = CachingResolver(self.loop, TTL, 1, self._crashed, budget, self._ask, stale_serves=not withholds)
        self.clients_names = CachingResolver(self.loop, TTL, 3, self._crashed, budget, self._ask_for_client)
        self.validator = TargetValidator(["*"], ["*"], ["6650", "6651"], self.clients_names, link_local=False)
        brokers = Brokers(self.loop, settings, own, cast(Any, None), self.counters.brokers, log, budget)
        self.known = KnownBrokers(self.loop.time) if withholds else None
        self.listed = None
        if listed is not None:
            self.hosts = frozenset(listed)
            self.listed = BrokerList(self.loop, self._list, log, self._crashed, budget)
        self.brokers = brokers
        self.gate = TargetGate(
            self.loop, brokers, self.validator, self.counters.brokers, log, self.known, self.listed,
            only_configured=only_configured, is_given=(SERVICE, "named.example", "10.9.9.9").__contains__,
        )  # fmt: skip

    async def reaches(self, host: str, port: int = 6650) -> list[str]:
        """Return the addresses at which a client may be connected."""
        return list((await self.gate.for_client(BrokerAddress(host, port))).addresses)

    async def close(self) -> None:
        await self.brokers.close()
        await self.clients_names.close()
        if self.listed is not None:
            await self.listed.close()

    async def _ask(self, name: str) -> list[str]:
        self.asked.append(name)
        return self.names[name]

    async def _ask_for_client(self, name: str) -> list[str]:
        return self.names[name]

    async def _list(self) -> frozenset[str]:
        return self.hosts

    @staticmethod
    def _crashed(error: BaseException) -> None:
        raise error


def in_town(**given: Any) -> Callable[[Callable[[Town], Awaitable[None]]], None]:
    def run(body: Callable[[Town], Awaitable[None]]) -> None:
        async def main() -> None:
            town = Town(**given)
            await body(town)
            await town.close()

        run_virtual(main())

    return run


def test_addresses_of_a_configured_name_are_known_at_its_port() -> None:
    @in_town()
    async def _(town: Town) -> None:
        town.names |= {"broker-1.example": ["10.0.0.1"], "odd.example": ["10.0.0.2", "10.0.0.3"]}
        assert await town.reaches("10.0.0.1") == ["10.0.0.1"]
        assert await town.reaches("broker-1.example") == ["10.0.0.1"]
        # Only the addresses that are a broker's.
        assert await town.reaches("odd.example") == ["10.0.0.2"]
        assert await town.reaches("10.9.9.9", 6651) == ["10.9.9.9"]
        for host, port in (("10.0.0.1", 6651), ("10.9.9.9", 6650), ("10.0.0.3", 6650)):
            with pytest.raises(TargetUnknown):
                await town.reaches(host, port)
        assert town.counters.brokers.credentials_withheld == {"relay": 3, "redirect": 0, "http": 0}
        assert town.log.getvalue().count(b"is not a known broker") == 1


def test_a_broker_that_joins_a_configured_name_is_known_at_once_and_one_that_left_is_not_for_long() -> None:
    @in_town()
    async def _(town: Town) -> None:
        assert await town.reaches("10.0.0.1") == ["10.0.0.1"]
        town.names[SERVICE] = ["10.0.0.2", "10.0.0.7"]
        await asyncio.sleep(1.0)
        # Within the time for which addresses are cached.
        assert await town.reaches("10.0.0.7") == ["10.0.0.7"]
        with pytest.raises(TargetUnknown):
            await town.reaches("10.0.0.1")


def test_strangers_cost_the_brokers_name_one_question_a_second() -> None:
    @in_town()
    async def _(town: Town) -> None:
        for _ in range(50):
            with pytest.raises(TargetUnknown):
                await town.reaches("192.0.2.66")
            await asyncio.sleep(0.1)
        assert len(town.asked) <= 7


def test_a_named_broker_is_known_by_its_name_and_not_by_its_address() -> None:
    @in_town()
    async def _(town: Town) -> None:
        assert town.known is not None
        town.names["broker-9.example"] = ["10.0.0.9"]
        town.known.note_url("pulsar://broker-9.example:6650")
        assert await town.reaches("Broker-9.example") == ["10.0.0.9"]
        with pytest.raises(TargetUnknown):
            await town.reaches("10.0.0.9")


def test_a_host_of_the_list_is_known_at_the_ports_of_configured_brokers() -> None:
    @in_town(listed=("broker-9.example",))
    async def _(town: Town) -> None:
        town.validator.apply(["*"], ["*"], ["*"])
        town.names["broker-9.example"] = ["10.0.0.9"]
        assert await town.reaches("broker-9.example") == ["10.0.0.9"]
        assert await town.reaches("broker-9.example", 6651) == ["10.0.0.9"]
        with pytest.raises(TargetUnknown):
            await town.reaches("broker-9.example", 22)


def test_a_redirect_needs_a_known_target_and_a_configured_broker_none_of_the_keys() -> None:
    @in_town()
    async def _(town: Town) -> None:
        town.validator.apply(["*"], ["*"], [])
        assert (await town.gate.for_request(BrokerAddress(SERVICE, 6650))).addresses == ["10.0.0.1", "10.0.0.2"]
        town.validator.apply(["*"], ["*"], ["6650"])
        with pytest.raises(TargetUnknown):
            await town.gate.for_request(BrokerAddress("192.0.2.66", 6650))
        assert town.counters.brokers.credentials_withheld["redirect"] == 1


def test_keys_that_refuse_a_target_refuse_a_known_one() -> None:
    @in_town()
    async def _(town: Town) -> None:
        town.validator.apply(["other.example"], ["*"], ["6650"])
        with pytest.raises(TargetRefused, match="brokerProxyAllowedHostNames"):
            await town.reaches("10.0.0.1")


def test_only_configured_brokers_are_active() -> None:
    @in_town(only_configured=True)
    async def _(town: Town) -> None:
        assert town.known is not None
        town.known.note_url("pulsar://192.0.2.66:6650")
        assert await town.reaches("10.0.0.2") == ["10.0.0.2"]
        with pytest.raises(TargetInactive):
            await town.reaches("192.0.2.66")
        with pytest.raises(TargetInactive):
            await town.reaches("10.0.0.1", 22)


@pytest.mark.parametrize("withholds", [True, False])
def test_an_address_that_a_configured_name_had_gets_no_secret_credentials(withholds: bool) -> None:
    member = BrokerAddress(SERVICE, 6650, address="10.0.0.1")

    @in_town(withholds=withholds, only_configured=True)
    async def _(town: Town) -> None:
        assert (await town.gate.configured(member)).addresses == ["10.0.0.1"]
        assert await town.reaches("10.0.0.1") == ["10.0.0.1"]
        town.names[SERVICE] = ["10.0.0.2"]
        await asyncio.sleep(2 * TTL)
        if withholds:
            with pytest.raises(BrokerUnreachable, match="has this address no more"):
                await town.gate.configured(member)
            with pytest.raises(TargetInactive):
                await town.reaches("10.0.0.1")
        else:
            assert (await town.gate.configured(member)).addresses == ["10.0.0.1"]


def test_without_secret_credentials_the_keys_alone_decide() -> None:
    @in_town(withholds=False)
    async def _(town: Town) -> None:
        assert await town.reaches("192.0.2.66") == ["192.0.2.66"]


def test_a_link_local_broker_of_the_configuration_is_reached() -> None:
    @in_town(withholds=False)
    async def _(town: Town) -> None:
        with pytest.raises(TargetRefused, match="link-local"):
            await town.reaches("169.254.3.3")
        town.names[SERVICE] = ["169.254.3.3"]
        await asyncio.sleep(2 * TTL)
        assert await town.reaches("169.254.3.3") == ["169.254.3.3"]


@pytest.mark.threat("dials-without-answer")
def test_of_a_made_up_host_few_addresses_are_tried_and_of_a_named_one_all() -> None:
    @in_town(withholds=False)
    async def _(town: Town) -> None:
        many = [f"10.1.0.{number}" for number in range(20)] + ["2001:db8::1"]
        town.names |= {"made-up.example": many, "named.example": many}
        made_up = await town.gate.for_client(BrokerAddress("made-up.example", 6650), "192.0.2.1")
        assert len(made_up.addresses) == MOST_MADE_UP_ADDRESSES
        assert made_up.addresses[:3] == ["10.1.0.0", "2001:db8::1", "10.1.0.1"]
        assert made_up.made_up_by == "192.0.2.1"
        assert not town.gate.named(made_up.broker)
        for host in ("Named.example", SERVICE, "10.9.9.9"):
            port = 6651 if host == "10.9.9.9" else 6650
            named = await town.gate.for_client(BrokerAddress(host, port), "192.0.2.1")
            assert named.made_up_by is None
            assert len(named.addresses) == len(town.names.get(host.lower(), [host]))


def test_keys_narrowed_to_networks_name_no_broker() -> None:
    @in_town()
    async def _(town: Town) -> None:
        town.validator.apply(["*"], ["10.0.0.0/8"], ["6650"])
        town.names["made-up.example"] = [f"10.1.0.{number}" for number in range(20)]
        made_up = await town.gate.for_client(BrokerAddress("made-up.example", 6650), "192.0.2.1")
        assert made_up.made_up_by == "192.0.2.1"
        assert len(made_up.addresses) == MOST_MADE_UP_ADDRESSES
