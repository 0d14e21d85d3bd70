"""The PROXY protocol under any input: what is written is read back, and nothing but the header is ever taken."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import MalformedFrame
from protocol.proxy_header import MAX_HEADER_BYTES, SIGNATURE, HeaderReader, HostPort, ProxyHeader, encode

ports = st.integers(0, 65535)
any_family = st.builds(lambda host, port: HostPort.of(str(host), port), st.ip_addresses(), ports)
# Mapped and IPv4 addresses are one: they come out as IPv4.
headers = st.one_of(st.just(ProxyHeader()), st.builds(ProxyHeader, any_family, any_family))
# What may stand behind a header, or in the place of one: a Pulsar frame, TLS, HTTP.
begins = st.sampled_from([b"\x00", b"\x16", b"GET /", b"PUT /", b"POST /", b"PATCH /"])
streams = st.builds(lambda begin, rest: begin + rest, begins, st.binary(max_size=64))


def read(stream: bytes, cuts: list[int]) -> tuple[HeaderReader, bytes]:
    """Show a reader `stream` in pieces as a socket would: what it did not take is shown again with what follows."""
    reader, taken = HeaderReader(), 0
    for end in [*sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]:
        while not reader.done and taken < end and (step := reader.take(stream[taken:end])):
            taken += step
    return reader, stream[taken:]


@given(headers, st.sampled_from([1, 2]), streams, st.lists(st.integers(0, 300)))
def test_a_header_is_read_back_and_what_follows_is_left(
    header: ProxyHeader, version: int, stream: bytes, cuts: list[int]
) -> None:
    reader, rest = read(encode(header, version) + stream, cuts)
    assert (reader.done, reader.header, rest) == (True, header, stream)


@given(streams, st.lists(st.integers(0, 300)))
def test_a_stream_without_a_header_is_left_whole(stream: bytes, cuts: list[int]) -> None:
    reader, rest = read(stream, cuts)
    assert (reader.done, reader.header, rest) == (True, None, stream)


@given(headers, st.binary(max_size=200), streams)
def test_what_stands_behind_the_addresses_is_passed_over(header: ProxyHeader, more: bytes, stream: bytes) -> None:
    written = bytearray(encode(header, 2))
    written[14:16] = (len(written) - 16 + len(more)).to_bytes(2, "big")
    reader, rest = read(bytes(written) + more + stream, [1, 13, 17, 60])
    assert (reader.header, rest) == (header, stream)


@given(st.sampled_from([b"P", b"PROXY ", b"PROXY TCP4 ", b"\r", SIGNATURE, SIGNATURE + b"\x21\x11"]), st.binary())
def test_garbage_is_refused_or_read_and_never_more_taken_than_a_header_may_have(begin: bytes, garbage: bytes) -> None:
    reader = HeaderReader()
    try:
        taken = reader.take(begin + garbage)
    except MalformedFrame:
        return
    assert taken <= MAX_HEADER_BYTES
    assert reader.done or taken == len(begin + garbage) or begin + garbage == b"P"


@pytest.mark.parametrize(
    "line",
    [
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n",
        "PROXY TCP4 ::1 ::2 1 2\r\n",
        "PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY TCP4 1.2.3 5.6.7.8 1 2\r\n",
        "PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n",
        "PROXY  UNKNOWN\r\n",
        "PROXY \r\n",
        "PROXY\r\n",
        "PROPFIND / HTTP/1.1\r\n",
        "PROXY UNKNOWN " + 100 * "x",
        "PROXY TCP4 1.2.3.4 5.6.7.8 \u0661 2\r\n",
    ],
)
def test_a_line_that_breaks_the_rules_is_refused(line: str) -> None:
    with pytest.raises(MalformedFrame):
        HeaderReader().take(line.encode())


@pytest.mark.parametrize(
    ("command", "family", "length"),
    [(0x22, 0x11, 12), (0x11, 0x11, 12), (0x21, 0x11, 11), (0x21, 0x21, 12), (0x21, 0x41, 12), (0x21, 0x11, 4081)],
)
def test_a_binary_header_that_breaks_the_rules_is_refused(command: int, family: int, length: int) -> None:
    with pytest.raises(MalformedFrame):
        HeaderReader().take(SIGNATURE + bytes((command, family)) + length.to_bytes(2, "big"))


@pytest.mark.parametrize(
    ("command", "family", "length"), [(0x20, 0x11, 12), (0x20, 0x99, 3), (0x21, 0x00, 0), (0x21, 0x31, 216)]
)
def test_a_header_without_a_tcp_address_says_nothing(command: int, family: int, length: int) -> None:
    header = SIGNATURE + bytes((command, family)) + length.to_bytes(2, "big") + bytes(length)
    reader, rest = read(header + b"\x00\x01", [5])
    assert (reader.header, rest) == (ProxyHeader(), b"\x00\x01")


def test_mixed_families_are_written_as_ipv6_in_both_versions() -> None:
    mixed = ProxyHeader(HostPort("192.0.2.1", 1), HostPort("2001:db8::1", 2))
    assert encode(mixed, 1) == b"PROXY TCP6 ::ffff:c000:201 2001:db8::1 1 2\r\n"
    assert encode(mixed, 2)[13] == 0x21


def test_an_ipv6_client_is_never_written_as_ipv4() -> None:
    header = ProxyHeader(HostPort("2001:db8::7", 1), HostPort("2001:db8::1", 2))
    assert encode(header, 1).startswith(b"PROXY TCP6 2001:db8::7 ")
    assert ipaddress.IPv6Address(encode(header, 2)[16:32]) == ipaddress.IPv6Address("2001:db8::7")
