"""A ClientHello that lies about itself is refused before anybody takes memory for it."""

import ssl
from asyncio import BaseProtocol
from typing import TYPE_CHECKING

import pytest

from proxy.net.tls.failures import TlsFailed
from proxy.net.tls.handshake import CLIENT_HANDSHAKE_BYTES, Handshake
from proxy.net.tls.hello import LARGEST_HELLO_BYTES, MOST_RECORDS, hello_end, hello_progress
from proxy.net.tls.session import new_session
from tests.support.auth.tls import Sealer, client_context, served_config

if TYPE_CHECKING:
    from proxy.core.native import TlsSession

# The beginning of a key of X25519, and a record that may stand before a second hello.
SHARE = b"\x00\x1d\x00\x20"
CHANGE_CIPHER_SPEC = b"\x14\x03\x03\x00\x01\x01"


def record(body: bytes, kind: int = 22) -> bytes:
    return bytes((kind, 3, 1)) + len(body).to_bytes(2, "big") + body


def message(size: int, kind: int = 1) -> bytes:
    return bytes((kind,)) + size.to_bytes(3, "big")


def real_hello() -> bytes:
    sealer = Sealer(client_context())
    with pytest.raises(ssl.SSLWantReadError):
        sealer.tls.do_handshake()
    return sealer.outgoing.read()


def test_a_real_hello_ends_where_its_bytes_end_and_not_before() -> None:
    hello = real_hello()
    assert [hello_end(hello[:size]) for size in range(len(hello))] == [0] * len(hello)
    assert hello_end(hello) == hello_end(hello + b"behind") == len(hello)


def test_an_incomplete_hello_says_how_many_bytes_tell_more() -> None:
    first, second = record(message(300) + bytes(100)), record(bytes(200))
    held, needed = first + second, [5]
    while needed[-1] < len(held):
        _, more = hello_progress(held[: needed[-1]])
        # Until there are so many, there is nothing else to say.
        assert [hello_progress(held[:size]) for size in range(needed[-1], more)] == [(0, more)] * (more - needed[-1])
        needed.append(more)
    assert needed == [5, 9, len(first) + 5, len(held)]
    assert hello_progress(held) == (len(held), len(held))


@pytest.mark.parametrize(
    ("sent", "detail"),
    [
        (record(message(131_000) + bytes(40))[:9], "claims 131000 bytes, expected at most 16384"),
        (record(message(LARGEST_HELLO_BYTES + 1)), "claims 16385 bytes"),
        (record(message(100, kind=11)), "handshake type 11, expected 1"),
        (record(b"\x01\x00\x00"), "a first record of 3 bytes, expected 4 or more"),
        (record(message(300) + bytes(10)) + record(bytes(20), kind=23), "a record of type 23"),
        (record(message(300) + bytes(10)) + b"\x16\x03\x01\xff\xff", "a record of 65535 bytes"),
        (record(message(300)) + record(b".") * MOST_RECORDS, "more than 64 records"),
    ],
)
def test_what_no_client_says_is_refused_as_soon_as_it_shows(sent: bytes, detail: str) -> None:
    with pytest.raises(TlsFailed, match=detail):
        hello_end(sent)


def asked_again() -> "tuple[Handshake, TlsSession, bytes]":
    """Give a handshake whose client was asked for another key, and the hello with that key."""
    hello = real_hello()
    # The share of X25519 passes for one of X448, which the server does not have.
    assert hello.count(SHARE) == 1
    session, failures = new_session(served_config(), ""), list[TlsFailed]()
    handshake = Handshake(session, BaseProtocol, failures.append, server_side=True, most_bytes=CLIENT_HANDSHAKE_BYTES)
    handshake.receive(memoryview(hello.replace(SHARE, b"\x00\x1e\x00\x20")))
    assert handshake.ready()
    assert handshake.step(session.take_own) is False
    return handshake, session, hello


def test_a_second_hello_that_drips_is_taken_when_it_is_whole() -> None:
    handshake, session, hello = asked_again()
    for byte in CHANGE_CIPHER_SPEC + hello:
        assert not handshake.ready()
        handshake.receive(memoryview(bytes((byte,))))
    assert handshake.ready()
    answers: list[bytes] = []

    def flushed() -> bytes:
        answers.append(session.take_own())
        return answers[-1]

    assert handshake.step(flushed) is False
    # The server's flight, with its certificate; what the client sends next is no hello.
    assert len(answers[0]) > 500
    handshake.receive(memoryview(b"\x17\x03\x03\0\x01"))
    assert handshake.ready()


@pytest.mark.parametrize(
    ("sent", "detail"),
    [
        (record(message(100, 11)), "handshake type 11"),
        (record(message(17_000)), "17000 bytes"),
        (b"GET / HTTP/1.1", "type 71"),
    ],
)
def test_a_second_hello_is_held_to_what_the_first_is(sent: bytes, detail: str) -> None:
    handshake, _, _ = asked_again()
    handshake.receive(memoryview(sent))
    with pytest.raises(TlsFailed, match=detail):
        handshake.ready()
