"""No herd: what a fleet of proxies asks again after a failure that all of them saw at the same moment, in virtual time.

Each test lets one server fail a whole fleet at once, and asks how many of the fleet come back within a small part of
the pause between two attempts. Without jitter all of them do. The file stands outside of the rooms because its
tests are about what several of them do at the same moment.
"""

import asyncio
import random
from collections.abc import Coroutine, Iterator
from typing import Any, Final, cast

import pytest

from eventlog.buffer import EventBuffer, Stamp
from eventlog.drain import Drain, StoreError
from proxy.auth.failures import Reason
from proxy.auth.own.oauth2 import OAuth2Credentials, Token
from proxy.auth.providers.issuer_client import IssuerFault, Keys
from proxy.auth.providers.issuer_keys import IssuerKeys
from proxy.brokers.admin_port import AdminRefused
from proxy.brokers.broker_list import REFUSED_SECONDS, BrokerList
from proxy.brokers.discovery import Brokers, BrokerSettings
from proxy.brokers.members import BrokerMembers
from proxy.brokers.resolver import CachingResolver
from proxy.brokers.target import BrokerAddress
from proxy.core.errors import BrokerUnreachable, CredentialsUnavailable
from proxy.core.log import open_log
from proxy.core.loop_budget import LoopBudget
from proxy.core.tasks import TaskScope
from proxy.telemetry.events.topic_watch import SECONDS_UNTIL_KEPT, TopicWatch
from proxy.web.forward.upstreams import LONGEST_PAUSE_SECONDS, Upstreams
from tests.support.configured import configured
from tests.support.cores import core_of
from tests.support.loops.clock import ManualClock
from tests.support.loops.loops import run_without_sockets
from tests.unit.eventlog.parts import BOOT, MIB, MemoryStore, encode, tee

FLEET: Final = 60
# A pause is up to a quarter shorter at random: of a fleet that is spread evenly an eighth falls into this part of it.
PART: Final = 1 / 32
MOST: Final = FLEET // 3
BROKER: Final = BrokerAddress("192.0.2.1", 6650)


@pytest.fixture(autouse=True)
def dice() -> Iterator[None]:
    """Draw the same numbers in each run."""
    before = random.getstate()
    random.seed(58)
    yield
    random.setstate(before)


def most_at_once(times: list[float], seconds: float) -> int:
    """Return how many of the times lie within `seconds` at most."""
    ordered = sorted(times)
    return max(sum(begin <= each <= begin + seconds for each in ordered) for begin in ordered)


def in_time(times: list[float], begin: float, end: float) -> list[float]:
    found = [each for each in times if begin <= each < end]
    assert len(found) >= FLEET, "each of the fleet comes back"
    return found


def crashed(error: BaseException) -> None:
    raise error


def budget() -> LoopBudget:
    loop = asyncio.get_running_loop()
    return LoopBudget(loop, loop.time)


def run(*each: Coroutine[Any, Any, None]) -> None:
    """Run all at once in virtual time."""

    async def main() -> None:
        await asyncio.gather(*each)

    run_without_sockets(main())


def test_brokers_that_are_down_are_probed_by_a_fleet_out_of_step() -> None:
    times: list[float] = []
    for _ in range(FLEET):
        members = BrokerMembers([BROKER], random.random)
        members.failed(BROKER, 0.0, "refused", answers_tcp=False)
        while (now := cast(float, members.next_probe())) < 60:
            assert members.begin_probes(now) == [BROKER]
            members.probed(BROKER, now, now, "refused")
            times.append(now)
    late = in_time(times, 20, 30)
    # Somebody probes all the time, and never many at once.
    assert most_at_once(late, PART) <= MOST


def test_names_of_brokers_that_are_all_down_are_asked_for_by_a_fleet_out_of_step() -> None:
    times: list[float] = []

    async def ask(name: str) -> list[str]:
        times.append(asyncio.get_running_loop().time())
        return [BROKER.host]

    async def one() -> None:
        core = core_of()
        names = CachingResolver(core.loop, 30.0, 1, crashed, budget(), ask)
        settings = BrokerSettings((("brokers.example", 6650),), False, 30.0)
        brokers = Brokers(core, settings, names, cast(Any, Nobody()))
        brokers.start()
        brokers.failed(BrokerAddress("brokers.example", 6650), "refused", answers_tcp=False)
        await asyncio.sleep(40)
        await brokers.close()

    begin = 1000.0
    run(*(one() for _ in range(FLEET)))
    assert most_at_once(in_time(times, begin + 20, begin + 30), PART) <= MOST


class Nobody:
    """A dialer that reaches no broker."""

    timeout_seconds = 10.0

    async def open(self, broker: BrokerAddress, *_: object) -> None:
        raise BrokerUnreachable(f"cannot connect to broker {broker}: connection refused")

    look = open


def test_event_logs_whose_topic_is_away_try_again_out_of_step() -> None:
    class Away(MemoryStore):
        def write(self, lines: list[bytes], now: float) -> int:
            times.append(now)
            raise StoreError("away")

    times: list[float] = []
    for _ in range(FLEET):
        buffer = EventBuffer(MIB)
        tee([buffer]).put({"kind": "get_topics"})
        drain = Drain(buffer, Stamp("proxy", BOOT, encode), Away(), 0.01, lambda text: None, lambda: None)
        now = 0.0
        while now < 120:
            now += drain.step(now)
    assert most_at_once(in_time(times, 50, 90), 30 * PART) <= MOST


def test_tokens_of_an_issuer_that_fails_are_asked_for_out_of_step() -> None:
    times: list[float] = []

    class Ill:
        async def fetch(self) -> Token:
            times.append(asyncio.get_running_loop().time() - 1000)
            raise CredentialsUnavailable("ill")

    async def one() -> None:
        credentials = OAuth2Credentials(Ill().fetch, crashed, budget())
        for _ in range(700):
            with pytest.raises(CredentialsUnavailable):
                await credentials.current()
            await asyncio.sleep(0.1)
        await credentials.close()

    run(*(one() for _ in range(FLEET)))
    assert most_at_once(in_time(times, 25, 60), 32 * PART) <= MOST


def test_tokens_that_were_fetched_together_are_renewed_out_of_step() -> None:
    life, times = 3600.0, list[float]()

    class Issuer:
        async def fetch(self) -> Token:
            times.append(asyncio.get_running_loop().time() - 1000)
            return Token("token", life)

    async def one() -> None:
        credentials = OAuth2Credentials(Issuer().fetch, crashed, budget())
        while asyncio.get_running_loop().time() < 1000 + life:
            await credentials.current()
            await asyncio.sleep(5)
        await credentials.close()

    run(*(one() for _ in range(FLEET)))
    renewed = in_time(times, 0.8 * life, life)
    assert most_at_once(renewed, 10) <= MOST
    assert max(renewed) <= 0.9 * life + 5


def test_keys_of_an_issuer_that_fails_are_asked_for_out_of_step() -> None:
    times: list[float] = []

    async def ill(_: str) -> Keys:
        times.append(asyncio.get_running_loop().time() - 1000)
        raise IssuerFault(Reason.ERROR_RETRIEVING_PUBLIC_KEY, "ill")

    async def one() -> None:
        scope = TaskScope(crashed)
        keys = IssuerKeys(configured(), ill, scope.start, asyncio.get_running_loop().time)
        for _ in range(400):
            with pytest.raises(IssuerFault):
                await keys.key("https://issuer.example", "key", 100)
            await asyncio.sleep(0.1)
        scope.cancel()
        await scope.emptied()

    run(*(one() for _ in range(FLEET)))
    assert most_at_once(in_time(times, 20, 32), 10 * PART) <= MOST


def test_a_topic_that_would_lose_events_is_looked_at_by_a_fleet_out_of_step() -> None:
    times: list[float] = []

    class Watch(TopicWatch):
        async def look(self) -> None:
            times.append(asyncio.get_running_loop().time() - 1000)

    async def one() -> None:
        watch = Watch(cast(Any, None), None, None, open_log("error"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(300):
                await watch.run()

    run(*(one() for _ in range(FLEET)))
    assert most_at_once(in_time(times, 200, 230), SECONDS_UNTIL_KEPT * PART) <= MOST


def test_a_list_of_brokers_that_was_refused_is_asked_for_again_out_of_step() -> None:
    times: list[float] = []

    async def refuse() -> frozenset[str]:
        times.append(asyncio.get_running_loop().time() - 1000)
        raise AdminRefused("no")

    async def one() -> None:
        loop = asyncio.get_running_loop()
        listed = BrokerList(loop, refuse, open_log("error"), crashed, budget())
        listed.start()
        while loop.time() < 1000 + 1.5 * REFUSED_SECONDS:
            await listed.learn("broker.example")
            await asyncio.sleep(1)
        await listed.close()

    run(*(one() for _ in range(FLEET)))
    assert most_at_once(in_time(times, 100, REFUSED_SECONDS + 5), REFUSED_SECONDS * PART) <= MOST


def test_web_servers_that_failed_are_tried_again_out_of_step() -> None:
    waits = []
    for _ in range(FLEET):
        clock = ManualClock()
        servers = Upstreams(("http://a",), clock)
        for _ in range(8):
            servers.failed("http://a")
            clock.advance(servers.seconds_to_wait)
        servers.failed("http://a")
        waits.append(servers.seconds_to_wait)
    assert max(waits) <= LONGEST_PAUSE_SECONDS
    assert most_at_once(waits, PART) <= MOST
