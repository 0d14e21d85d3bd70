"""Choose brokers for requests by the states in `members`, which name resolution, probes and requests update.

Rule: no request is sent to a broker that is known to be down, and no request fails because of a broker that has come
back. If all brokers are down, a request waits until each of them was probed again, then gets an error that names the
brokers, the reasons and the times. A probe of a broker that is down is a TCP connection that is closed at once.
A broker of which nothing was heard is probed, too, with the TLS handshake if brokers are reached with TLS, and with
CONNECT: an open port proves no broker. A broker to which a request connection is open is not probed.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from proxy.brokers.members import BrokerMember, BrokerMembers, MemberState
from proxy.brokers.resolver import CachingResolver
from proxy.brokers.target import BrokerAddress
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.counters import counter, counter_by, gauge, gauge_by
from proxy.core.errors import (
    BrokerUnavailable,
    BrokerUnreachable,
    CredentialsUnavailable,
    NoSocket,
    RequestFailed,
    TargetRefused,
)
from proxy.core.log import LinePace
from proxy.core.task_turns import PacedWaiters, TaskTurns
from proxy.core.tasks import TaskScope, spread

if TYPE_CHECKING:
    from proxy.brokers.handshake import ConnectProbe

# The time limit of a probe, and the longest wait of a request for probes.
PROBE_SECONDS: Final = 1.0
WAIT_SECONDS: Final = 1.5
MOST_MEMBERS: Final = 256
_SHOWN: Final = 4
_FAILED: Final = (MemberState.DOWN, MemberState.TRIAL)
BROKERS: Final = gauge_by(
    "state",
    "brokers",
    "Brokers of brokerServiceURL by state: up, down, unknown until they were probed, refusing the proxy itself, or on "
    "trial after a failure above TCP.",
)
REFUSING: Final = gauge(
    "brokers_refusing",
    "Brokers of brokerServiceURL that live, and refused the proxy's own identity at the last probe, or got none "
    "because the proxy lacks its credentials: the state refusing.",
)
PROBES: Final = counter_by(
    "result",
    "broker_probes",
    "Probes of brokers that are down, or of which nothing was heard, by result; a probe is a connection that "
    "is closed at once.",
    ("reached", "failed"),
)
FAIL_OVERS: Final = counter("broker_fail_overs", "Requests that were sent again, to another broker.")


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The configured hosts, and the times after which they are probed and resolved again."""

    hosts: tuple[tuple[str, int], ...]
    tls: bool
    dns_ttl_seconds: float
    key: str = "brokerServiceURL"
    # The time without news of a broker after which it is probed; 0: only brokers that are down are probed.
    idle_seconds: float = 0.0

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the hosts and times of a configuration."""
        key = Config.broker_service_url_tls if config.tls_enabled_with_broker else Config.broker_service_url
        return cls(
            hosts=config.broker_hosts,
            tls=config.tls_enabled_with_broker,
            dns_ttl_seconds=config.broker_dns_ttl_seconds,
            key=key.name,
            idle_seconds=config.seconds(Config.broker_idle_probe_interval_millis),
        )


class Brokers:
    """The brokers and their states, from `start` to `close`. Users of a broker report `worked` or `failed`."""

    def __init__(
        self,
        core: Core,
        settings: BrokerSettings,
        names: CachingResolver,
        probe: "ConnectProbe",
    ) -> None:
        counters = core.counters
        self._loop = core.loop
        self._settings = settings
        self._names = names
        self._connect_probe = probe
        self._counters = counters
        counters.show(BROKERS, self.states)
        counters.show(REFUSING, self.refusing)
        self._log = core.log.of("brokers")
        self._pace = LinePace()

        def crashed(error: BaseException) -> None:
            counters.internal_error(error, "brokers")

        self._scope = TaskScope(crashed)
        # Until its name is resolved, a host counts as one broker, and the dialer finds its addresses.
        self._found: dict[tuple[str, int], tuple[BrokerAddress, ...]]
        self._found = {host: (_whole(*host, settings.tls),) for host in settings.hosts}
        self._members = BrokerMembers(_flat(self._found), random.random, settings.idle_seconds)
        self._in_use: Callable[[BrokerAddress], bool] = lambda _: False
        self._timer: asyncio.TimerHandle | None = None
        self._turns = TaskTurns(core.loop_budget, crashed)
        # Requests that wait for a broker: each change of a broker lets all of them look again, in turns.
        self._waiters = PacedWaiters(self._turns)
        self._none_up = asyncio.Event()

    def start(self, in_use: Callable[[BrokerAddress], bool] = lambda _: False) -> None:
        """Plan the first probe of each broker, and start resolving the host names periodically.

        `in_use` tells whether a request connection to a broker is open: its end is reported, so that needs no probe.
        """
        self._in_use = in_use
        self._members.begin(self._loop.time())
        self._plan()
        if any(not _is_address(host) for host, _ in self._settings.hosts):
            self._scope.start(self._keep_resolving())

    async def close(self) -> None:
        """Cancel probes and name resolution; waiting requests get an error."""
        self._scope.cancel()
        if self._timer is not None:
            self._timer.cancel()
        await self._scope.emptied()
        await self._names.close()
        self._waiters.wake()
        self._turns.finish()

    # --- choosing ----------------------------------------------------------------------------------

    def home(self, key: str) -> BrokerAddress:
        """Return the broker for `key` at once, even if no broker is up."""
        chosen = self._members.choose(self._loop.time(), key) or self._members.home(key)
        assert chosen is not None
        return chosen

    async def usable(self, broker: BrokerAddress, key: str) -> BrokerAddress:
        """Return `broker` if it is usable, else another broker; raise BrokerUnavailable."""
        return broker if self._members.usable(broker) else await self.pick(key)

    def pick_at_once(self, avoid: BrokerAddress | None) -> BrokerAddress | None:
        """Return the next usable broker, not `avoid` if there is another; None if `pick` would have to wait."""
        chosen = self._members.choose(self._loop.time(), None, avoid)
        if avoid is not None and chosen is not None and chosen != avoid:
            self._counters[FAIL_OVERS].value += 1
        return chosen

    async def pick(self, key: str | None = None, avoid: BrokerAddress | None = None) -> BrokerAddress:
        """Return the next usable broker, or with a `key` always the same; not `avoid` if there is another.

        Raise BrokerUnavailable if no broker is usable, even after a probe of each.
        """
        began = self._loop.time()
        chosen = self._members.choose(began, key, avoid)
        if chosen is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_SECONDS):
                    while chosen is None and not all(member.probed_at > began for member in self._members.all()):
                        await self._waiters.wait()
                        chosen = self._members.choose(self._loop.time(), key, avoid)
            chosen = chosen or self._members.choose(self._loop.time(), key, avoid)
            if chosen is None:
                raise BrokerUnavailable(self._why())
        if avoid is not None and chosen != avoid:
            self._counters[FAIL_OVERS].value += 1
        return chosen

    def __contains__(self, broker: BrokerAddress) -> bool:
        return broker in self._members

    def named(self, target: BrokerAddress) -> bool:
        """Return whether `target` is a configured host and port, or an address of a configured host."""
        return any(
            target.port == member.port and target.host.lower() in (member.host.lower(), member.address)
            for member in self._addresses()
        )

    def configured(self, host: str, port: int) -> bool:
        """Return whether the configuration names `host` at `port`."""
        return any((host.lower(), port) == (known.lower(), its_port) for known, its_port in self._settings.hosts)

    @property
    def ports(self) -> frozenset[int]:
        """Return the ports of the configured brokers."""
        return frozenset(port for _, port in self._settings.hosts)

    async def addresses_at(self, port: int, max_age_seconds: float | None = None) -> set[str]:
        """Return all addresses that configured hosts with `port` resolve to, for targets that use another name.

        Answers of the resolver are as old as its cache allows, or `max_age_seconds`.
        """
        found: set[str] = set()
        for host, its_port in self._settings.hosts:
            if its_port == port:
                with suppress(TargetRefused):
                    found.update(await self._names.resolve(host, port, max_age_seconds))
        return found

    async def resolve(self, broker: BrokerAddress) -> list[str]:
        """Return the addresses of a broker; raise BrokerUnreachable if its name does not resolve."""
        if broker.address:
            return [broker.address]
        try:
            return await self._names.resolve(broker.host, broker.port)
        except TargetRefused as error:
            raise BrokerUnreachable(f"cannot connect to broker {broker}: {error}") from error

    def _addresses(self) -> list[BrokerAddress]:
        return [member.address for member in self._members.all()]

    # --- reports of users --------------------------------------------------------------------------

    def worked(self, broker: BrokerAddress) -> None:
        """Called when a broker has accepted a connection."""
        was = self._members.worked(broker, self._loop.time())
        if was is None:
            return
        again = was in _FAILED
        self._log.info("broker can be used again" if again else "broker can be used", broker=str(broker))
        self._plan()
        self._waiters.wake()

    def failed(self, broker: BrokerAddress, error: str, *, answers_tcp: bool) -> None:
        """Called when a connection to a broker failed; `answers_tcp`: the TCP connection succeeded."""
        was = self._members.failed(broker, self._loop.time(), error, answers_tcp=answers_tcp)
        if was is not None and was not in _FAILED:
            self._log.warning("broker is down", broker=str(broker), detail=error)
        if was is not None:
            self._plan()

    # --- for operators -----------------------------------------------------------------------------

    def states(self) -> dict[str, int]:
        """Return the number of brokers in each state."""
        found = dict.fromkeys(map(str, MemberState), 0)
        for member in self._members.all():
            found[member.state] += 1
        return found

    def refusing(self) -> int:
        """Return how many brokers live, and did not take this proxy's identity when they were probed last."""
        return self.states()[MemberState.REFUSING]

    def shown(self) -> list[Mapping[str, object]]:
        """Return a row for each broker: address, state, why it is not up, and how long ago it failed (seconds)."""
        now = self._loop.time()
        return [
            {
                "broker": str(member.address),
                "state": str(member.state),
                "seconds": now - member.since if member.state in _FAILED else 0.0,
                "error": "" if member.state is MemberState.UP else member.error,
            }
            for member in self._members.all()
        ]

    @property
    def unproven(self) -> bool:
        """Whether no broker is known to be up, and some are not known to be down."""
        states = self.states()
        return bool(states[MemberState.UNKNOWN] + states[MemberState.REFUSING]) and not states[MemberState.UP]

    def _why(self) -> str:
        members, now = self._members.all(), self._loop.time()
        shown = "; ".join(_complaint(member, now) for member in members[:_SHOWN])
        if len(members) == 1:
            return shown
        more = f"; and {len(members) - _SHOWN} more" if len(members) > _SHOWN else ""
        return f"none of {len(members)} brokers can be reached ({self._settings.key}): {shown}{more}"

    # --- probes ------------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Set the timer for the next probe."""
        if self._timer is not None:
            self._timer.cancel()
        due = self._members.next_probe()
        self._timer = None if due is None else self._loop.call_at(due, self._begin_probes)
        if any(member.state is not MemberState.DOWN for member in self._members.all()):
            self._none_up.clear()
        else:
            self._none_up.set()

    def _begin_probes(self) -> None:
        now = self._loop.time()
        # A timer may fire a little early, because its clock counts whole milliseconds.
        for broker in self._members.begin_probes(now + 0.001, self._in_use):
            self._scope.start(self._probe(broker, now) if self._members.down(broker) else self._look(broker))
        self._plan()

    async def _look(self, broker: BrokerAddress) -> None:
        """Probe a broker that is not known to be down."""
        failure: BrokerUnavailable | None = None
        own_fault: Exception | None = None
        try:
            async with asyncio.timeout(self._connect_probe.timeout_seconds):
                addresses = await self.resolve(broker)
            await self._connect_probe.look(broker, addresses)
        except TimeoutError:
            failure = BrokerUnreachable(f"cannot connect to broker {broker}: its name was not resolved in time")
        except (NoSocket, RequestFailed, CredentialsUnavailable) as error:
            own_fault = error
        except BrokerUnavailable as error:
            failure = error
        self._counters[PROBES]["reached" if failure is None and own_fault is None else "failed"] += 1
        if self._members.looked_at(broker, self._loop.time()):
            self._judge(broker, failure, own_fault)
        self._plan()

    def _judge(self, broker: BrokerAddress, failure: BrokerUnavailable | None, own_fault: Exception | None) -> None:
        """Report the result of a probe, unless a request connection knows better."""
        if own_fault is not None:
            # The broker lives, and keeps its requests: clients then get its own words. A lack of sockets says nothing.
            if not isinstance(own_fault, NoSocket) and not self._in_use(broker):
                self._members.doubted(broker, str(own_fault))
        elif failure is None:
            self.worked(broker)
        elif not self._in_use(broker):
            self.failed(broker, str(failure), answers_tcp=not isinstance(failure, BrokerUnreachable))

    async def _probe(self, broker: BrokerAddress, began: float) -> None:
        error: str | None = None
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                addresses = [broker.address]
                if not broker.address:
                    addresses = await self._names.resolve(broker.host, broker.port, PROBE_SECONDS)
                (await self._connect_probe.open(broker, addresses, PROBE_SECONDS)).close()
        except TimeoutError:
            error = f"cannot connect to broker {broker}: its name was not resolved in time"
        except (BrokerUnavailable, TargetRefused) as failure:
            error = str(failure)
        self._counters[PROBES]["reached" if error is None else "failed"] += 1
        if self._members.probed(broker, began, self._loop.time(), error) is MemberState.UP:
            self._log.info("broker can be reached again", broker=str(broker))
        self._plan()
        self._waiters.wake()

    # --- names -------------------------------------------------------------------------------------

    async def _keep_resolving(self) -> None:
        while True:
            for host, port in self._settings.hosts:
                await self._resolve_host(host, port)
            await asyncio.sleep(spread(PROBE_SECONDS))
            # If all brokers are down, resolve again at once: new addresses may help.
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, spread(self._settings.dns_ttl_seconds) - PROBE_SECONDS)):
                    await self._none_up.wait()

    async def _resolve_host(self, host: str, port: int) -> None:
        if _is_address(host):
            return
        try:
            addresses = await self._names.resolve(host, port, PROBE_SECONDS)
        except TargetRefused as error:
            # The last addresses stay: a failure of the resolver removes no broker.
            if self._pace.due(self._loop.time(), "names"):
                self._log.warning("brokers cannot be looked up", host=host, detail=str(error))
            return
        self._found[host, port] = _members_of(host, port, self._settings.tls, addresses)
        if self._members.replace(_flat(self._found)[:MOST_MEMBERS], self._loop.time()):
            self._log.info("brokers found", host=host, detail=f"{len(self._found[host, port])} of {len(self._members)}")
            self._plan()
            self._waiters.wake()


def _members_of(host: str, port: int, tls: bool, addresses: Sequence[str]) -> tuple[BrokerAddress, ...]:
    """Return a broker for each address; an IPv4 and an IPv6 address together count as the same broker."""
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
