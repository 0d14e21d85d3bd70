"""The gate of every connection to a broker: who may be connected to, and who gets secret credentials.

Rule: this module alone makes a `CheckedTarget`, and dialers take nothing else. Where the proxy's own credentials are
secret, or those of clients are forwarded, only a known host and port passes: (a) a configured broker, or an address
that a configured name resolves to; (b) a broker that a known broker has named; (c) a host of the brokers' own list, at
a configured port; (d) a target inside keys that the operator has narrowed. The addresses that were checked are those
that are dialled.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from proxy.brokers.broker_list import BrokerList
from proxy.brokers.dialer import interleaved
from proxy.brokers.discovery import Brokers
from proxy.brokers.known_brokers import KnownBrokers
from proxy.brokers.target import BrokerAddress, CheckedTarget, TargetValidator
from proxy.config.core import Core
from proxy.config.keys_table import ConfigKeys
from proxy.core.counters import counter_by
from proxy.core.errors import BrokerUnreachable, TargetInactive, TargetUnknown
from proxy.core.log import LinePace

# A name of a configured broker is resolved again, at most this often, before an address counts as foreign.
FRESH_SECONDS = 1.0
# Longest wait for fresh addresses of the configured names.
NAMES_SECONDS = 5.0
# Addresses of a host that a client made up: each CONNECT sends a SYN to every one of them.
MOST_MADE_UP_ADDRESSES: Final = 8
CREDENTIALS_WITHHELD: Final = counter_by(
    "path",
    "credentials_withheld",
    "Targets refused because they would get credentials of the proxy or its "
    "clients and are not known to be brokers, by path: relays, redirects of lookups, HTTP.",
    ("relay", "redirect", "http"),
)


class TargetGate:
    """Lets connections to brokers through; `known` is None if no credentials have to be withheld.

    `is_given` tells of a host in lower case whether configuration or brokers have named it.
    """

    def __init__(
        self,
        core: Core,
        brokers: Brokers,
        validator: TargetValidator,
        known: KnownBrokers | None,
        listed: BrokerList | None,
        is_given: Callable[[str], bool],
    ) -> None:
        self._loop = core.loop
        self._brokers = brokers
        self._validator = validator
        self._counters = core.counters
        self._log = core.log.of("brokers")
        self._pace = LinePace()
        self._listed = listed
        self._only_configured = core.config.check_active_brokers
        self._is_given = is_given
        self.known = known

    async def configured(self, broker: BrokerAddress) -> CheckedTarget:
        """Return a configured broker with its addresses; raise BrokerUnreachable if its name does not resolve.

        Where credentials have to be withheld, an address that the name had until lately is nobody's.
        """
        addresses = await self._brokers.resolve(broker)
        if self.known is not None and broker.address:
            present = await self._brokers.resolve(broker._replace(address=""))
            if broker.address not in present:
                raise BrokerUnreachable(f"cannot connect to broker {broker}: its name has this address no more")
        return CheckedTarget(broker, addresses)

    async def for_request(self, broker: BrokerAddress) -> CheckedTarget:
        """Return a broker for requests, which is configured, or which a redirect has named; raise TargetRefused.

        A configured broker needs no permission; a redirect may lead only to targets that clients may reach.
        """
        if broker in self._brokers:
            return await self.configured(broker)
        addresses = await self._validator.resolve(broker, self._brokers.addresses_at)
        if self.known is not None:
            addresses = await self._those_known(broker, addresses, "redirect")
        return CheckedTarget(broker, addresses)

    async def for_client(self, target: BrokerAddress, network: str = "") -> CheckedTarget:
        """Return the broker that a client of `network` names; raise TargetRefused."""
        if self._only_configured:
            return CheckedTarget(target, await self._active(target, network))
        addresses = await self._validator.resolve(target, self._brokers.addresses_at, network=network)
        if self.known is not None:
            addresses = await self._those_known(target, addresses, "relay")
        if self.named(target):
            return CheckedTarget(target, addresses)
        return CheckedTarget(target, interleaved(addresses)[:MOST_MADE_UP_ADDRESSES], network)

    def named(self, target: BrokerAddress) -> bool:
        """Return whether configuration or brokers have named the host of a target.

        Keys that the operator has narrowed to networks do not count: a client's own host may be there.
        """
        return self._only_configured or self._is_given(target.host.lower()) or self._brokers.named(target)

    def withheld(self, target: str, path: str) -> None:
        """Count and log that `target` did not get secret credentials; `path` is relay, redirect or http."""
        self._counters[CREDENTIALS_WITHHELD][path] += 1
        if self._pace.due(self._loop.time(), path):
            self._log.warning(
                "a target that is not a known broker is refused: it would get credentials of the proxy or its clients",
                target=target, path=path,
                change=f"{ConfigKeys.broker_proxy_allowed_host_names.name}, "
                f"{ConfigKeys.broker_proxy_allowed_ip_addresses.name} or {ConfigKeys.broker_web_service_url.name}",
            )  # fmt: skip

    async def _active(self, target: BrokerAddress, network: str) -> list[str]:
        """Return the addresses of a target that is a configured broker, by name or by address."""
        if self._brokers.configured(target.host, target.port) or (self.known is None and self._brokers.named(target)):
            return await self._validator.resolve(target, self._brokers.addresses_at, network=network)
        configured = await self._brokers.addresses_at(target.port)
        if not configured:
            raise TargetInactive
        addresses = await self._validator.resolve(target, self._brokers.addresses_at, network=network)
        active = [address for address in addresses if address in configured]
        if not active:
            raise TargetInactive
        return active

    async def _those_known(self, target: BrokerAddress, addresses: list[str], path: str) -> list[str]:
        """Return the addresses of `target` that are a known broker's; raise TargetUnknown if there are none."""
        # The keys were checked already, by the validator: narrowed keys are the operator's own list of brokers.
        if self._validator.narrowed or self._brokers.configured(target.host, target.port):
            return addresses
        assert self.known is not None
        if target in self.known or self._lists(target):
            return addresses
        cached = await self._brokers.addresses_at(target.port)
        if found := [address for address in addresses if address in cached]:
            return found
        # A miss: a broker may be new. The configured names are resolved again, then the list is asked for.
        fresh: set[str] = set()
        with suppress(TimeoutError):
            async with asyncio.timeout(NAMES_SECONDS):
                fresh = await self._brokers.addresses_at(target.port, FRESH_SECONDS)
        if found := [address for address in addresses if address in fresh]:
            return found
        if self._at_a_configured_port(target) and self._listed is not None and await self._listed.learn(target.host):
            return addresses
        if target in self.known:
            return addresses
        self.withheld(str(target), path)
        raise TargetUnknown

    def _lists(self, target: BrokerAddress) -> bool:
        return self._listed is not None and target.host in self._listed and self._at_a_configured_port(target)

    def _at_a_configured_port(self, target: BrokerAddress) -> bool:
        """Return whether a configured broker has the port: the list does not tell the ports for clients."""
        return target.port in self._brokers.ports
