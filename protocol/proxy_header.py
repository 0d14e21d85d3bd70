"""The PROXY protocol, versions 1 and 2: the client's address behind a load balancer (HAProxy's proxy-protocol.txt).

Bytes in, values out. A reader gets the bytes that have arrived and returns how many of them belong to the header, so
that no byte after the header is lost; the first two bytes tell a connection without a header. The reader holds at most
the bytes of the longest address, whatever a header claims.
"""

import ipaddress
import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from protocol.errors import MalformedFrame
from protocol.host_port import host_port

# The longest line of version 1 with its end, and the longest header of version 2 that is read: addresses, some TLVs.
MAX_LINE_BYTES: Final = 107
MAX_HEADER_BYTES: Final = 4096
SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_LINE_BEGINS: Final = b"PROXY "
_FIXED: Final = struct.Struct("!12sBBH")
_LOCAL, _PROXY = 0x20, 0x21
_ADDRESSES: Final = {0x11: struct.Struct("!4s4sHH"), 0x21: struct.Struct("!16s16sHH")}
# Families and protocols that have no TCP address: their sizes in bytes.
_OTHERS: Final = {0x00: 0, 0x12: 12, 0x22: 36, 0x31: 216, 0x32: 216}
_HELD_BYTES: Final = _FIXED.size + _ADDRESSES[0x21].size


class HostPort(NamedTuple):
    """An IP address and a TCP port; an IPv4 address is never written in its IPv6 form."""

    host: str
    port: int

    @classmethod
    def of(cls, host: str, port: int) -> "HostPort":
        """Return an address in its normal form; raises ValueError for a text that is no IP address."""
        parsed = ipaddress.ip_address(host.partition("%")[0])
        mapped = getattr(parsed, "ipv4_mapped", None)
        return cls(str(parsed if mapped is None else mapped), port)

    def __str__(self) -> str:
        return host_port(self.host, self.port)


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """The addresses in a header: the client's and the one it connected to, or none (UNKNOWN, LOCAL, no TCP)."""

    source: HostPort | None = None
    destination: HostPort | None = None


class HeaderReader:
    """A reader of one header at the start of a stream.

    Once `done` is set, `header` is final: None for a stream without a header.
    """

    def __init__(self) -> None:
        self.done = False
        self.header: ProxyHeader | None = None
        self._held = b""
        self._taken = 0
        self._total = 0

    def take(self, data: bytes) -> int:
        """Read arrived bytes and return how many of them belong to the header; these must not be passed again.

        0 before `done` means that one byte does not tell: it must be passed again together with the next.

        Raises MalformedFrame for a header that breaks its own rules.
        """
        if self.done or not data:
            return 0
        begin = self._held or data
        if begin == _LINE_BEGINS[:1]:
            return 0
        if _LINE_BEGINS.startswith(begin[:2]):
            return self._take_line(data)
        if begin[0] == SIGNATURE[0]:
            return self._take_binary(data)
        # A Pulsar frame begins with 0x00, TLS with 0x16, HTTP with a method, which may be PUT, POST or PATCH.
        self.done = True
        return 0

    def _take_line(self, data: bytes) -> int:
        taken = data[: data.find(b"\n") + 1] or data[: MAX_LINE_BYTES + 1]
        held = self._held = self._held + taken
        if not held.startswith(_LINE_BEGINS[: len(held)]) or len(held) > MAX_LINE_BYTES:
            raise MalformedFrame(f"got a PROXY header that begins with {held[:16]!r}, expected a line of version 1")
        if held.endswith(b"\n"):
            self._finish(_parse_line(held))
        return len(taken)

    def _take_binary(self, data: bytes) -> int:
        taken = data[: (self._total or _FIXED.size) - self._taken]
        self._held += taken[: max(0, _HELD_BYTES - len(self._held))]
        self._taken += len(taken)
        if not self._held.startswith(SIGNATURE[: len(self._held)]):
            raise MalformedFrame(f"got a PROXY header that begins with {self._held[:12]!r}, expected a signature")
        if not self._total and self._taken == _FIXED.size:
            self._total = _total_bytes(self._held)
        if self._total and self._taken == self._total:
            self._finish(_parse_binary(self._held))
        elif len(taken) < len(data):
            return len(taken) + self._take_binary(data[len(taken) :])
        return len(taken)

    def _finish(self, header: ProxyHeader) -> None:
        self.done, self.header, self._held = True, header, b""


def _parse_line(line: bytes) -> ProxyHeader:
    fault = MalformedFrame(f"got the PROXY header {line!r}, expected version 1")
    if not line.endswith(b"\r\n") or not line.isascii():
        raise fault
    words = line[:-2].decode().split(" ")
    if words[1] == "UNKNOWN":
        return ProxyHeader()
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise fault
    kind = ipaddress.IPv4Address if words[1] == "TCP4" else ipaddress.IPv6Address
    try:
        hosts = [str(kind(word)) for word in words[2:4]]
        ports = [_port(word) for word in words[4:6]]
    except ValueError:
        raise fault from None
    source, destination = map(HostPort.of, hosts, ports)
    return ProxyHeader(source, destination)


def _port(word: str) -> int:
    port = int(word) if word.isdigit() else -1
    if not 0 <= port <= 65535 or str(port) != word:
        raise ValueError(word)
    return port


def _total_bytes(fixed: bytes) -> int:
    _, command, family, length = _FIXED.unpack(fixed)
    if command not in (_LOCAL, _PROXY):
        raise MalformedFrame(f"got PROXY version and command {command:#04x}, expected {_LOCAL:#04x} or {_PROXY:#04x}")
    known = _ADDRESSES.get(family)
    least = _OTHERS.get(family) if known is None else known.size
    # The family of a LOCAL header is to be ignored, and so are its addresses.
    if command == _PROXY and (least is None or length < least):
        raise MalformedFrame(f"got a PROXY header of family {family:#04x} with {length} bytes, expected {least}")
    if _FIXED.size + length > MAX_HEADER_BYTES:
        raise MalformedFrame(f"got a PROXY header of {_FIXED.size + length} bytes, expected at most {MAX_HEADER_BYTES}")
    return _FIXED.size + int(length)


def _parse_binary(held: bytes) -> ProxyHeader:
    _, command, family, _ = _FIXED.unpack_from(held)
    addresses = _ADDRESSES.get(family)
    if command == _LOCAL or addresses is None:
        return ProxyHeader()
    source, destination, source_port, destination_port = addresses.unpack_from(held, _FIXED.size)
    return ProxyHeader(
        HostPort.of(str(ipaddress.ip_address(source)), source_port),
        HostPort.of(str(ipaddress.ip_address(destination)), destination_port),
    )


def encode(header: ProxyHeader, version: int) -> bytes:
    """Return a header's bytes: without both addresses UNKNOWN in version 1, LOCAL in version 2.

    If only one address is IPv4, that address is written in its IPv6 form: no header has two families.
    """
    source, destination = header.source, header.destination
    if source is None or destination is None:
        return b"PROXY UNKNOWN\r\n" if version == 1 else _FIXED.pack(SIGNATURE, _LOCAL, 0, 0)
    hosts = [ipaddress.ip_address(source.host), ipaddress.ip_address(destination.host)]
    if hosts[0].version != hosts[1].version:
        hosts = [host if host.version == 6 else ipaddress.IPv6Address(f"::ffff:{host}") for host in hosts]
    four = hosts[0].version == 4
    if version == 1:
        words = ["PROXY", "TCP4" if four else "TCP6", *map(str, hosts), str(source.port), str(destination.port)]
        return " ".join(words).encode() + b"\r\n"
    family = 0x11 if four else 0x21
    addresses = _ADDRESSES[family].pack(hosts[0].packed, hosts[1].packed, source.port, destination.port)
    return _FIXED.pack(SIGNATURE, _PROXY, family, len(addresses)) + addresses
