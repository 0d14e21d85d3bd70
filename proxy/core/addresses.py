"""IP addresses as sockets, resolvers and headers write them (operators: `proxy.config.keys.networks`); no I/O."""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from limiter.sites import SiteKey

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# The owner of an IPv6 address has 2^64 addresses of the same network.
IPV6_HOST_NETWORK_BITS: Final = 64
# A customer of a provider has at most a /48 as a rule (RFC 6177), that is 65,536 such networks.
IPV6_SITE_NETWORK_BITS: Final = 48
# The networks of so many addresses are remembered, some 300 bytes each.
REMEMBERED_ADDRESSES: Final = 1024


def parsed(address: str) -> Address:
    """Return an address without its zone, and an IPv4 address that is mapped to IPv6 as itself; raises ValueError."""
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return mapped if mapped is not None else found


def inside(address: Address, networks: Iterable[Network]) -> bool:
    """Return whether an address is in one of the networks."""
    return any(address in network for network in networks)


# A connection's address is asked about some eight times in its life, by each of those who count it.
@lru_cache(REMEMBERED_ADDRESSES)
def host_network(address: str, ipv6_bits: int = IPV6_HOST_NETWORK_BITS) -> str:
    """Return what one host has: an IPv4 address, the /64 network of an IPv6 address; any other text as it is.

    `ipv6_bits` is the length of the network where an operator says otherwise. A network of IPv6 is a `SiteKey`: where
    keys share something, the network takes its turn inside its /48.
    """
    if ":" not in address:
        return address
    try:
        found = parsed(address)
    except ValueError:
        return address
    network = _network_text(found, ipv6_bits)
    return network if found.version == 4 else SiteKey(network, site_network(found))


def host_site(address: str) -> str:
    """Return what one customer has: an IPv4 address, the /48 network of an IPv6 address; any other text as it is."""
    network = host_network(address)
    return network.site if isinstance(network, SiteKey) else network


def site_network(address: Address) -> str:
    """Return what one customer has: an IPv4 address, the /48 network of an IPv6 address."""
    return _network_text(address, IPV6_SITE_NETWORK_BITS)


def claimed(text: str) -> Address | None:
    """Return the address in an element of X-Forwarded-For, which may end with a port; None for any other text."""
    host = text.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        return parsed(host)
    except ValueError:
        return None


def _network_text(address: Address, bits: int) -> str:
    if address.version == 4:
        return str(address)
    spare = address.max_prefixlen - bits
    return f"{ipaddress.IPv6Address(int(address) >> spare << spare)}/{bits}"
