"""The gate in virtual time: which addresses of which targets may be dialled, by names that resolve anew."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from proxy.brokers.discovery import Brokers, BrokerSettings
from proxy.brokers.gate import MOST_MADE_UP_ADDRESSES, TargetGate
from proxy.brokers.known_brokers import KnownBrokers
from proxy.brokers.resolver import CachingResolver
from proxy.brokers.target import BrokerAddress, TargetValidator
from proxy.core.counters import Counters
from proxy.core.errors import BrokerUnreachable, TargetInactive, TargetRefused, TargetUnknown
from proxy.core.log import open_log
from tests.support.brokers.played import crash
from tests.support.configured import configured
from tests.support.cores import core_of
from tests.support.loops.loops import virtually
from tests.support.proxies.counted import counted, counted_by

SERVICE = "brokers.example"
TTL = 30.0


class Town:
    """A gate before the brokers of one name; `names` are the answers of the name server, for brokers and clients."""

    def __init__(self, withholds: bool = True, only_configured: bool = False) -> None:
        self.loop = asyncio.get_running_loop()
        self.counters = Counters()
        self.log = io.BytesIO()
        log = open_log("info", "json", self.log)
        self.names: dict[str, list[str]] = {SERVICE: ["10.0.0.1", "10.0.0.2"]}
        self.asked: list[str] = []
        settings = BrokerSettings(((SERVICE, 6650), ("10.9.9.9", 6651)), False, TTL)
        config = configured(checkActiveBrokers=str(only_configured).lower())
        core = core_of(config=config, counters=self.counters, log=log, clock=self.loop.time)
        budget = core.loop_budget
        own = CachingResolver(self.loop, TTL, 1, crash, budget, self._ask, stale_serves=not withholds)
        self.clients_names = CachingResolver(self.loop, TTL, 3, crash, budget, self._ask_for_client)
        self.validator = TargetValidator(["*"], ["*"], ["6650", "6651"], self.clients_names, link_local=False)
        brokers = Brokers(core, settings, own, cast(Any, None))
        self.known = KnownBrokers(self.loop.time) if withholds else None
        self.brokers = brokers
        is_given = (SERVICE, "named.example", "10.9.9.9").__contains__
        self.gate = TargetGate(core, brokers, self.validator, self.known, None, is_given)

    async def reaches(self, host: str, port: int = 6650) -> list[str]:
        """Return the addresses at which a client may be connected."""
        return list((await self.gate.for_client(BrokerAddress(host, port))).addresses)

    async def close(self) -> None:
        await self.brokers.close()
        await self.clients_names.close()

    async def _ask(self, name: str) -> list[str]:
        self.asked.append(name)
        return self.names[name]

    async def _ask_for_client(self, name: str) -> list[str]:
        return self.names[name]


@asynccontextmanager
async def town_of(*, withholds: bool = True, only_configured: bool = False) -> AsyncIterator[Town]:
    town = Town(withholds, only_configured)
    yield town
    await town.close()


@virtually(town_of)
async def test_addresses_of_a_configured_name_are_known_at_its_port(town: Town) -> None:
    town.names |= {"broker-1.example": ["10.0.0.1"], "odd.example": ["10.0.0.2", "10.0.0.3"]}
    assert await town.reaches("10.0.0.1") == ["10.0.0.1"]
    assert await town.reaches("broker-1.example") == ["10.0.0.1"]
    # Only the addresses that are a broker's.
    assert await town.reaches("odd.example") == ["10.0.0.2"]
    assert await town.reaches("10.9.9.9", 6651) == ["10.9.9.9"]
    for host, port in (("10.0.0.1", 6651), ("10.9.9.9", 6650), ("10.0.0.3", 6650)):
        with pytest.raises(TargetUnknown):
            await town.reaches(host, port)
    assert counted_by(town.counters, "credentials_withheld") == {"relay": 3, "redirect": 0, "http": 0}
    # One line for all, with a key that helps.
    assert town.log.getvalue().count(b"is not a known broker") == 1
    assert b"brokerProxyAllowedHostNames" in town.log.getvalue()


@virtually(town_of)
async def test_a_broker_that_joins_a_configured_name_is_known_at_once_and_one_that_left_is_not_for_long(
    town: Town,
) -> None:
    assert await town.reaches("10.0.0.1") == ["10.0.0.1"]
    town.names[SERVICE] = ["10.0.0.2", "10.0.0.7"]
    await asyncio.sleep(1.0)
    # Within the time for which addresses are cached.
    assert await town.reaches("10.0.0.7") == ["10.0.0.7"]
    with pytest.raises(TargetUnknown):
        await town.reaches("10.0.0.1")


@virtually(town_of)
async def test_strangers_cost_the_brokers_name_one_question_a_second(town: Town) -> None:
    for _ in range(50):
        with pytest.raises(TargetUnknown):
            await town.reaches("192.0.2.66")
        await asyncio.sleep(0.1)
    assert len(town.asked) <= 7


@virtually(town_of)
async def test_a_redirect_needs_a_known_target_and_a_configured_broker_none_of_the_keys(town: Town) -> None:
    town.validator.apply(["*"], ["*"], [])
    assert (await town.gate.for_request(BrokerAddress(SERVICE, 6650))).addresses == ["10.0.0.1", "10.0.0.2"]
    town.validator.apply(["*"], ["*"], ["6650"])
    with pytest.raises(TargetUnknown):
        await town.gate.for_request(BrokerAddress("192.0.2.66", 6650))
    assert counted(town.counters, "credentials_withheld", "redirect") == 1


MEMBER = BrokerAddress(SERVICE, 6650, address="10.0.0.1")


@virtually(town_of, only_configured=True)
async def test_an_address_that_a_configured_name_had_gets_no_secret_credentials(town: Town) -> None:
    assert (await town.gate.configured(MEMBER)).addresses == ["10.0.0.1"]
    assert await town.reaches("10.0.0.1") == ["10.0.0.1"]
    town.names[SERVICE] = ["10.0.0.2"]
    await asyncio.sleep(2 * TTL)
    with pytest.raises(BrokerUnreachable, match="has this address no more"):
        await town.gate.configured(MEMBER)
    with pytest.raises(TargetInactive):
        await town.reaches("10.0.0.1")


@virtually(town_of, withholds=False)
async def test_an_address_that_a_configured_name_had_is_a_broker_where_there_is_no_secret(town: Town) -> None:
    town.names[SERVICE] = ["10.0.0.2"]
    assert (await town.gate.configured(MEMBER)).addresses == ["10.0.0.1"]


@virtually(town_of, withholds=False)
async def test_a_link_local_broker_of_the_configuration_is_reached(town: Town) -> None:
    with pytest.raises(TargetRefused, match="link-local"):
        await town.reaches("169.254.3.3")
    town.names[SERVICE] = ["169.254.3.3"]
    await asyncio.sleep(2 * TTL)
    assert await town.reaches("169.254.3.3") == ["169.254.3.3"]


@pytest.mark.threat("dials-without-answer")
@virtually(town_of, withholds=False)
async def test_of_a_made_up_host_few_addresses_are_tried_and_of_a_named_one_all(town: Town) -> None:
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


@virtually(town_of)
async def test_keys_narrowed_to_networks_name_no_broker(town: Town) -> None:
    town.validator.apply(["*"], ["10.0.0.0/8"], ["6650"])
    town.names["made-up.example"] = [f"10.1.0.{number}" for number in range(20)]
    made_up = await town.gate.for_client(BrokerAddress("made-up.example", 6650), "192.0.2.1")
    assert made_up.made_up_by == "192.0.2.1"
    assert len(made_up.addresses) == MOST_MADE_UP_ADDRESSES
