"""Check the addresses that clients want to be connected to (upstream's `brokerProxyAllowed*` keys).

The order is upstream's: port, host name, then the resolved addresses against the networks. The result are the checked
addresses themselves: resolving the name again would let a second DNS answer slip past the check.
"""

import asyncio
import fnmatch
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from protocol.host_port import host_port
from proxy.config.credential_targets import narrowed_hosts, narrowed_networks
from proxy.config.keys.networks import networks_in
from proxy.core.addresses import Network, inside, parsed
from proxy.core.errors import TargetRefused

_PLAIN_SCHEME: Final = "pulsar://"
_TLS_SCHEME: Final = "pulsar+ssl://"
_DEFAULT_PORTS: Final = {_PLAIN_SCHEME: 6650, _TLS_SCHEME: 6651}
RESOLVE_SECONDS: Final = 10.0
_HOST_CHARACTERS: Final = re.compile(r"[A-Za-z0-9._:-]+")
_PORT: Final = re.compile(r"[0-9]{1,5}")
# Clouds serve the credentials of machines there (169.254.169.254).
_LINK_LOCAL: Final = (ipaddress.ip_network("169.254.0.0/16"), ipaddress.ip_network("fe80::/10"))

# Returns the addresses of configured brokers with a port.
AddressesAt = Callable[[int], Awaitable[Collection[str]]]


class BrokerAddress(NamedTuple):
    """The host and port of a broker, whether it needs TLS, and an address of the host.

    An empty `address` means any address of the host name. A tuple, because each request looks some ten dictionaries up
    by it: a data class would run a function for each hash.
    """

    host: str
    port: int
    tls: bool = False
    address: str = ""

    def __str__(self) -> str:
        name = host_port(self.host, self.port)
        return f"{name} ({self.address})" if self.address else name


@dataclass(frozen=True, slots=True)
class CheckedTarget:
    """A broker that may be connected to, at these addresses only, and may get credentials.

    Only `proxy.brokers.gate` makes one. A dialer takes nothing else. `made_up_by` is the network of the client that
    made the host up; None for a host that configuration or brokers have named.
    """

    broker: BrokerAddress
    addresses: Sequence[str]
    made_up_by: str | None = None


def parse_address(text: str, key: str = "proxy_to_broker_url", *, tls: bool = False) -> BrokerAddress:
    """Parse `host:port`, with or without pulsar:// or pulsar+ssl:// (IPv6 in brackets, or split at the last colon).

    With `tls` (tlsEnabledWithBroker) all brokers need TLS, with any scheme. Raise TargetRefused that names `key` for
    any other text.
    """
    rest = text
    if text.startswith(_TLS_SCHEME) and not tls:
        raise TargetRefused(
            f"{key} {text[:200]!r} asks for TLS, which is not configured towards brokers (tlsEnabledWithBroker)"
        )
    for scheme, port_of_scheme in _DEFAULT_PORTS.items():
        if text.startswith(scheme):
            rest = text[len(scheme) :].rstrip("/")
            if ":" not in rest.rpartition("]")[2]:
                rest = f"{rest}:{port_of_scheme}"
    host, _, port = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not _HOST_CHARACTERS.fullmatch(host) or not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
        raise TargetRefused(f"{key} {text[:200]!r} is not host:port")
    return BrokerAddress(host, int(port), tls)


class NameResolver(Protocol):
    """Resolves host names (`proxy.brokers.resolver.CachingResolver` caches the answers)."""

    async def resolve(self, host: str, port: int, *, network: str = "") -> list[str]:
        """Return the addresses of `host` for connections to `port`; raise TargetRefused if it has none.

        `network` is that of the client who names the host, and whose turn this is.
        """


class TargetValidator:
    """Checks targets against `brokerProxyAllowedTargetPorts`, `...HostNames` and `...IPAddresses`.

    Without `link_local`, link-local addresses are allowed only inside a link-local network of the list.
    """

    def __init__(
        self,
        host_names: Iterable[str],
        ip_addresses: Iterable[str],
        ports: Iterable[str],
        names: NameResolver | None = None,
        *,
        link_local: bool = True,
    ) -> None:
        self._names = names
        self._link_local = link_local
        self.apply(host_names, ip_addresses, ports)

    def apply(self, host_names: Iterable[str], ip_addresses: Iterable[str], ports: Iterable[str]) -> None:
        """Replace the lists; existing connections stay."""
        patterns, networks = list(host_names), list(ip_addresses)
        self._host_names = [re.compile(fnmatch.translate(name.strip().lower())) for name in patterns if name.strip()]
        self._any_address = False
        self._networks: list[Network] = []
        for text in networks:
            if text.strip() == "*":
                self._any_address = True
            elif text.strip():
                self._networks += networks_in(text.strip())
        self._any_port = any(port.strip() == "*" for port in ports)
        self._ports = {int(port) for port in ports if port.strip().isdigit()}
        self.narrowed = narrowed_hosts(patterns) or narrowed_networks(networks)

    async def resolve(
        self, target: BrokerAddress, configured: AddressesAt | None = None, *, network: str = ""
    ) -> list[str]:
        """Return the allowed addresses of `target`; raise TargetRefused if there are none.

        The addresses that `configured` returns may be link-local. `network` is that of the client who names the target.
        """
        if not self._any_port and target.port not in self._ports:
            raise TargetRefused(f"target port {target.port} is not in brokerProxyAllowedTargetPorts")
        if not any(pattern.fullmatch(target.host.lower()) for pattern in self._host_names):
            raise TargetRefused(f"target host {target.host!r} is not in brokerProxyAllowedHostNames")
        if self._names is None:
            addresses = await resolve(target)
        else:
            addresses = await self._names.resolve(target.host, target.port, network=network)
        if not self._any_address:
            addresses = [address for address in addresses if inside(parsed(address), self._networks)]
            if not addresses:
                raise TargetRefused(f"no address of {target.host!r} is in brokerProxyAllowedIPAddresses")
        return addresses if self._link_local else await self._without_link_local(target, addresses, configured)

    async def _without_link_local(
        self, target: BrokerAddress, addresses: list[str], configured: AddressesAt | None
    ) -> list[str]:
        chosen = [network for network in self._networks if _is_link_local(network)]
        local = {address for address in addresses if inside(parsed(address), _LINK_LOCAL)}
        refused = {address for address in local if not inside(parsed(address), chosen)}
        if refused and configured is not None:
            refused.difference_update(await configured(target.port))
        allowed = [address for address in addresses if address not in refused]
        if not allowed:
            text = f"{target.host!r} is link-local, which needs a link-local network in brokerProxyAllowedIPAddresses"
            raise TargetRefused(text)
        return allowed


def _is_link_local(network: Network) -> bool:
    local = _LINK_LOCAL[network.version == 6]
    return network.prefixlen >= local.prefixlen and network.network_address in local


async def resolve(target: BrokerAddress) -> list[str]:
    """Resolve a host name to its addresses; raise TargetRefused if it has none."""
    try:
        return [str(ipaddress.ip_address(target.host))]
    except ValueError:
        pass
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except TimeoutError as error:
        raise TargetRefused(f"host {target.host!r} was not resolved within {RESOLVE_SECONDS:g} s") from error
    except OSError as error:
        raise TargetRefused(f"host {target.host!r} cannot be resolved: {error.strerror or error}") from error
    except UnicodeError as error:
        raise TargetRefused(f"host {target.host[:200]!r} is no host name: {error}") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
