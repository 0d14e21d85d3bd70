"""Hosts and networks as operators write them in keys.

Addresses as sockets and headers write them are in `proxy.core.addresses`, which needs `limiter`: the configuration is
read before anybody knows whose package that is.
"""

import ipaddress
import re
from itertools import product
from math import prod
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# A text that names more networks than this costs each look at it too much time.
MOST_NETWORKS: Final = 256
# Java reads a part with a leading zero as octal, so nobody can know what was meant.
_PARTS: Final = {
    4: re.compile(r"(0|[1-9][0-9]{0,2})(?:-(0|[1-9][0-9]{0,2}))?"),
    6: re.compile(r"([0-9A-Fa-f]{1,4})(?:-([0-9A-Fa-f]{1,4}))?"),
}
# RFC 4291, 2.5.5.2.
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine reach a host: a loopback address, or the name localhost.

    A zone says nothing about that; an IPv4 address may be mapped to IPv6.
    """
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host.lower() == "localhost"
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def host_in(text: str) -> str:
    """Return the name or address in a text, IPv6 without brackets; raise ValueError with a hint, where there is one."""
    bare = _without_brackets(text)
    if bare == text and _NAME.fullmatch(text):
        return text
    try:
        return str(ipaddress.IPv6Address(bare))
    except ValueError:
        if text == "*":
            raise ValueError("every address is 0.0.0.0,::") from None
        rest, _, port = text.rpartition(":")
        has_port = port.isdigit() and (_NAME.fullmatch(rest) or rest.endswith("]"))
        raise ValueError("the port has a key of its own, such as servicePort" if has_port else "") from None


def networks_in(text: str) -> tuple[Network, ...]:
    """Return the networks that a text names: an address, CIDR, or parts with `*` and ranges, as 10.0.*.* and 1::2-f.

    A text means what it means to the Java proxy (its library is IPAddress). Raise ValueError, with what to write
    instead where that is known, for any other text: nothing is guessed, lest more is allowed than somebody meant.
    A network of IPv4 in its IPv6 form is returned as IPv4: addresses are compared so (`proxy.core.addresses.parsed`).
    """
    return tuple(_unmapped(network) for network in _networks(text))


def _networks(text: str) -> tuple[Network, ...]:
    bare = _without_brackets(text)
    if "*" not in bare and "-" not in bare:
        return (_network_in(bare),)
    if "/" in bare:
        raise ValueError("write CIDR, or * and ranges, not both")
    version = 6 if ":" in bare else 4
    bits = 16 if version == 6 else 8
    ranges = [_range(part, version, (1 << bits) - 1) for part in _parts(bare, version)]
    return _covering(ranges, bits)


def _unmapped(network: Network) -> Network:
    if not isinstance(network, ipaddress.IPv6Network) or not network.subnet_of(_MAPPED):
        return network
    return ipaddress.IPv4Network((network.network_address.packed[-4:], network.prefixlen - _MAPPED.prefixlen))


def _network_in(text: str) -> Network:
    address, _, mask = text.partition("/")
    try:
        network = ipaddress.ip_network(text, strict=False)
        first = ipaddress.ip_address(address)
    except ValueError:
        # The text of ipaddress only repeats what was given.
        raise ValueError from None
    if network.network_address != first:
        # The Java proxy takes the address alone, other programs the network.
        raise ValueError(f"write {network} or {address}")
    if "." in mask and mask != str(network.netmask):
        raise ValueError(f"write {network}")
    return network


def _without_brackets(text: str) -> str:
    return text[1:-1] if text.startswith("[") and text.endswith("]") and ":" in text else text


def _parts(text: str, version: int) -> list[str]:
    """Return the parts of an address; a `*` at the end of a short one stands for all that are missing."""
    whole, separator = (8, ":") if version == 6 else (4, ".")
    before, gap, after = text.partition("::")
    parts = [part for part in before.split(separator) if part or not gap]
    if gap:
        behind = [part for part in after.split(separator) if after]
        return [*parts, *["0"] * max(1, whole - len(parts) - len(behind)), *behind]
    return [*parts, *["*"] * (whole - len(parts))] if parts[-1] == "*" else parts


def _range(part: str, version: int, most: int) -> tuple[int, int]:
    if part == "*":
        return 0, most
    found = _PARTS[version].fullmatch(part)
    if found is None:
        raise ValueError
    base = 16 if version == 6 else 10
    low = int(found[1], base)
    high = int(found[2] or found[1], base)
    if not low <= high <= most:
        raise ValueError
    return low, high


def _covering(ranges: list[tuple[int, int]], bits: int) -> tuple[Network, ...]:
    """Return the networks with exactly the addresses whose parts are in the ranges; raise ValueError for too many."""
    if bits * len(ranges) not in (32, 128):
        raise ValueError("an address has four parts, or eight")
    family = ipaddress.IPv4Address if bits == 8 else ipaddress.IPv6Address
    ends = [at for at, part in enumerate(ranges) if part != (0, (1 << bits) - 1)]
    # An address is in with any parts behind this one.
    last = ends[-1] if ends else 0
    found: list[Network] = []
    if prod(high - low + 1 for low, high in ranges[:last]) <= MOST_NETWORKS:
        spare = bits * (len(ranges) - 1 - last)
        for chosen in product(*(range(low, high + 1) for low, high in ranges[:last])):
            before = sum(part << bits * (last - at) for at, part in enumerate(chosen))
            first, end = before + ranges[last][0], before + ranges[last][1] + 1
            block: tuple[Address, Address] = family(first << spare), family((end << spare) - 1)
            found += ipaddress.summarize_address_range(*block)
    if not 1 <= len(found) <= MOST_NETWORKS:
        raise ValueError(f"more than {MOST_NETWORKS} networks: write fewer, as CIDR")
    return tuple(found)
