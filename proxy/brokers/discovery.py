"""Choose brokers for requests: what the books of `members` say, fed by name resolution, by looks, and by those who ask.

Rule: no request is sent to a broker that is known to be down, and none fails for a broker that came back meanwhile: if
all are down, a request waits until each of them was looked at once more, then gets an error that says which brokers,
why and since when. A look is one TCP connect, closed at once.
"""

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, Self

from proxy.brokers.dialer import Dialer
from proxy.brokers.members import BrokerMember, BrokerMembers, MemberState
from proxy.brokers.resolver import CachingResolver
from proxy.brokers.target import BrokerAddress
from proxy.config.config import Config
from proxy.core.errors import BrokerUnavailable, BrokerUnreachable, TargetRefused
from proxy.core.log import LinePace, Logger
from proxy.core.tasks import TaskScope
from proxy.telemetry.counters import Counters

# A look that takes longer has failed; a request waits no longer for looks than this.
LOOK_SECONDS: Final = 1.0
WAIT_SECONDS: Final = 1.5
MOST_MEMBERS: Final = 256
_TOLD: Final = 4


class BrokerChoice(Protocol):
    """What those who ask brokers need of the list of them."""

    def home(self, key: str) -> BrokerAddress:
        """Give the broker for `key` at once, also if none is up."""

    async def pick(self, key: str | None = None, avoid: BrokerAddress | None = None) -> BrokerAddress:
        """Give a broker that can be used, if need be after waiting for one; raises BrokerUnavailable."""

    async def usable(self, broker: BrokerAddress, key: str) -> BrokerAddress:
        """Give `broker` if it can be used, else another; raises BrokerUnavailable."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The hosts of the configuration, and the times after which they are looked at and resolved again."""

    hosts: tuple[tuple[str, int], ...]
    tls: bool
    dns_ttl_seconds: float
    longest_pause_seconds: float
    key: str = "brokerServiceURL"

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the hosts and times of a configuration."""
        key = Config.broker_service_url_tls if config.tls_enabled_with_broker else Config.broker_service_url
        return cls(
            hosts=config.broker_hosts,
            tls=config.tls_enabled_with_broker,
            dns_ttl_seconds=config.broker_dns_ttl_seconds,
            longest_pause_seconds=config.seconds(Config.broker_probe_interval_millis),
            key=key.name,
        )


class Brokers:
    """Know the brokers from `start` to `close`. Whoever uses one reports `worked` or `failed`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: BrokerSettings,
        names: CachingResolver,
        dialer: Dialer,
        counters: Counters,
        log: Logger,
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._names = names
        self._dialer = dialer
        self._counters = counters
        self._log = log
        self._pace = LinePace()
        self._scope = TaskScope(lambda error: counters.internal_error(error, "brokers"))
        # Until its name is resolved each host is one broker, whose addresses are found when it is connected to.
        self._found: dict[tuple[str, int], tuple[BrokerAddress, ...]]
        self._found = {host: (_whole(*host, settings.tls),) for host in settings.hosts}
        self._members = BrokerMembers(_flat(self._found), settings.longest_pause_seconds, random.random)
        self._timer: asyncio.TimerHandle | None = None
        self._news: set[asyncio.Future[None]] = set()
        self._none_up = asyncio.Event()

    def start(self) -> None:
        """Begin to resolve the names among the hosts, again and again."""
        if any(not _is_address(host) for host, _ in self._settings.hosts):
            self._scope.start(self._keep_resolving())

    async def close(self) -> None:
        """End looks and name resolution; who waits gets its error."""
        self._scope.cancel()
        if self._timer is not None:
            self._timer.cancel()
        await self._scope.emptied()
        await self._names.close()
        self._tell()

    # --- who asks ---------------------------------------------------------------------------------

    def home(self, key: str) -> BrokerAddress:
        """Give the broker for `key` at once, also if none is up."""
        chosen = self._members.choose(self._loop.time(), key) or self._members.home(key)
        assert chosen is not None
        return chosen

    async def usable(self, broker: BrokerAddress, key: str) -> BrokerAddress:
        """Give `broker` if it can be used, else another; raises BrokerUnavailable."""
        return broker if self._members.usable(broker) else await self.pick(key)

    async def pick(self, key: str | None = None, avoid: BrokerAddress | None = None) -> BrokerAddress:
        """Give the next broker that can be used, or with a `key` always the same; not `avoid` if there is another.

        Raises BrokerUnavailable if none can be used and a look at each has not changed that.
        """
        began = self._loop.time()
        chosen = self._members.choose(began, key, avoid)
        if chosen is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_SECONDS):
                    while chosen is None and not all(member.looked_at > began for member in self._members.all()):
                        await self._change()
                        chosen = self._members.choose(self._loop.time(), key, avoid)
            chosen = chosen or self._members.choose(self._loop.time(), key, avoid)
            if chosen is None:
                raise BrokerUnavailable(self._why())
        if avoid is not None and chosen != avoid:
            self._counters.broker_fail_overs += 1
        return chosen

    def __contains__(self, broker: BrokerAddress) -> bool:
        return broker in self._members

    def named(self, target: BrokerAddress) -> bool:
        """Tell whether `target` names a host and port of the configuration, or an address that one of them has."""
        return any(
            target.port == member.port and target.host.lower() in (member.host.lower(), member.address)
            for member in self._addresses()
        )

    async def addresses_at(self, port: int) -> set[str]:
        """Give all addresses of brokers that listen on `port`, for those who come by another name."""
        found: set[str] = set()
        for member in self._addresses():
            if member.port == port:
                with suppress(BrokerUnreachable):
                    found.update(await self.resolve(member))
        return found

    async def resolve(self, broker: BrokerAddress) -> list[str]:
        """Give the addresses of one of these brokers; raises BrokerUnreachable if its name does not resolve."""
        if broker.address:
            return [broker.address]
        try:
            return await self._names.resolve(broker.host)
        except TargetRefused as error:
            raise BrokerUnreachable(f"cannot connect to broker {broker}: {error}") from error

    def _addresses(self) -> list[BrokerAddress]:
        return [member.address for member in self._members.all()]

    # --- who has asked ----------------------------------------------------------------------------

    def worked(self, broker: BrokerAddress) -> None:
        """Hear that a broker has accepted a connection."""
        if self._members.worked(broker):
            self._log.info("broker can be used again", broker=str(broker))
            self._plan()
            self._tell()

    def failed(self, broker: BrokerAddress, error: str, *, answers_tcp: bool) -> None:
        """Hear that a broker could not be connected to, and whether it had answered TCP at least."""
        was = self._members.failed(broker, self._loop.time(), error, answers_tcp=answers_tcp)
        if was is MemberState.UP:
            self._log.warning("broker is down", broker=str(broker), detail=error)
        if was is not None:
            self._plan()

    # --- what the operator sees -------------------------------------------------------------------

    def states(self) -> dict[str, int]:
        """Count the brokers by state."""
        found = dict.fromkeys(map(str, MemberState), 0)
        for member in self._members.all():
            found[member.state] += 1
        return found

    def name_outcomes(self) -> Mapping[str, int]:
        """Count the names of brokers that were resolved by what became of them."""
        return self._names.outcomes

    def shown(self) -> list[Mapping[str, object]]:
        """Give a row for each broker: address, state, and for one that is not up since when (seconds) and why."""
        now = self._loop.time()
        return [
            {
                "broker": str(member.address),
                "state": str(member.state),
                "seconds": 0.0 if member.state is MemberState.UP else now - member.since,
                "error": "" if member.state is MemberState.UP else member.error,
            }
            for member in self._members.all()
        ]

    def _why(self) -> str:
        members, now = self._members.all(), self._loop.time()
        told = "; ".join(_complaint(member, now) for member in members[:_TOLD])
        if len(members) == 1:
            return told
        more = f"; and {len(members) - _TOLD} more" if len(members) > _TOLD else ""
        return f"none of {len(members)} brokers can be reached ({self._settings.key}): {told}{more}"

    # --- looks ------------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Set the timer for the next look."""
        if self._timer is not None:
            self._timer.cancel()
        due = self._members.next_look()
        self._timer = None if due is None else self._loop.call_at(due, self._begin_looks)
        if any(member.state is not MemberState.DOWN for member in self._members.all()):
            self._none_up.clear()
        else:
            self._none_up.set()

    def _begin_looks(self) -> None:
        now = self._loop.time()
        # A timer may come a little early: its clock counts whole milliseconds.
        for broker in self._members.begin_looks(now + 0.001):
            self._scope.start(self._look(broker, now))
        self._plan()

    async def _look(self, broker: BrokerAddress, began: float) -> None:
        error: str | None = None
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                addresses = [broker.address] if broker.address else await self._names.resolve(broker.host, LOOK_SECONDS)
                (await self._dialer.open(broker, addresses, LOOK_SECONDS)).close()
        except TimeoutError:
            error = f"cannot connect to broker {broker}: its name was not resolved in time"
        except (BrokerUnavailable, TargetRefused) as failure:
            error = str(failure)
        self._counters.broker_looks["reached" if error is None else "failed"] += 1
        if self._members.looked(broker, began, self._loop.time(), error) is MemberState.UP:
            self._log.info("broker can be reached again", broker=str(broker))
        self._plan()
        self._tell()

    # --- waiting ----------------------------------------------------------------------------------

    async def _change(self) -> None:
        news: asyncio.Future[None] = self._loop.create_future()
        self._news.add(news)
        try:
            await news
        finally:
            self._news.discard(news)

    def _tell(self) -> None:
        for news in self._news:
            if not news.done():
                news.set_result(None)

    # --- names ------------------------------------------------------------------------------------

    async def _keep_resolving(self) -> None:
        while True:
            for host, port in self._settings.hosts:
                await self._resolve_host(host, port)
            await asyncio.sleep(LOOK_SECONDS)
            # With no broker left, new addresses are what may help.
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._settings.dns_ttl_seconds - LOOK_SECONDS)):
                    await self._none_up.wait()

    async def _resolve_host(self, host: str, port: int) -> None:
        if _is_address(host):
            return
        try:
            addresses = await self._names.resolve(host, LOOK_SECONDS)
        except TargetRefused as error:
            # The last addresses stay: a resolver that fails takes no broker away.
            if self._pace.due(self._loop.time(), "names"):
                self._log.warning("brokers cannot be looked up", host=host, detail=str(error))
            return
        self._found[host, port] = _members_of(host, port, self._settings.tls, addresses)
        if self._members.replace(_flat(self._found)[:MOST_MEMBERS]):
            self._log.info("brokers found", host=host, detail=f"{len(self._found[host, port])} of {len(self._members)}")
            self._plan()
            self._tell()


def _members_of(host: str, port: int, tls: bool, addresses: Sequence[str]) -> tuple[BrokerAddress, ...]:
    """Make a broker of each address; one IPv4 and one IPv6 address are two ways to one broker."""
    sixes = sum(":" in address for address in addresses)
    if sixes <= 1 and len(addresses) - sixes <= 1:
        return (_whole(host, port, tls),)
    return tuple(BrokerAddress(host, port, tls, address) for address in sorted(addresses))


def _whole(host: str, port: int, tls: bool) -> BrokerAddress:
    return BrokerAddress(host, port, tls)


def _flat(found: Mapping[tuple[str, int], Iterable[BrokerAddress]]) -> list[BrokerAddress]:
    return list(dict.fromkeys(member for members in found.values() for member in members))


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _complaint(member: BrokerMember, now: float) -> str:
    seconds = now - member.since
    return f"{member.error}, for {seconds:.0f} s now" if seconds >= 1 else member.error
