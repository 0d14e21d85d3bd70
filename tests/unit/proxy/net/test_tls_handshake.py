"""The steps of a TLS handshake, without a socket: two sides that share one pair of BIOs, as in a loop."""

import asyncio
from collections.abc import Iterator
from time import perf_counter

import pytest

from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.net.tls.failures import TlsFailed
from proxy.net.tls.handshake import Handshake
from proxy.net.tls.hello import LARGEST_HELLO_BYTES
from proxy.net.tls.shared import TlsShared
from tests.support.auth.tls import HOST, client_context, server_context


class Side:
    """A handshake, and the bytes that it has sent."""

    def __init__(self, shared: TlsShared, *, server_side: bool) -> None:
        context = server_context() if server_side else client_context()
        host = None if server_side else HOST
        ssl_object = context.wrap_bio(shared.incoming, shared.outgoing, server_side, host)
        self._shared = shared
        self.sent = b""
        self.handshake = Handshake(shared, ssl_object, asyncio.Protocol, lambda _: None, server_side=server_side)

    def step(self) -> bool:
        return self.handshake.step(self._flush)

    def take_sent(self) -> memoryview:
        sent, self.sent = self.sent, b""
        return memoryview(sent)

    def _flush(self) -> bytes:
        records = self._shared.outgoing.read()
        self.sent += records
        return records


@pytest.fixture
def shared() -> Iterator[TlsShared]:
    loop = asyncio.new_event_loop()
    yield TlsShared(LoopBudget(loop, perf_counter))
    loop.close()


@pytest.fixture
def server(shared: TlsShared) -> Side:
    return Side(shared, server_side=True)


@pytest.fixture
def client(shared: TlsShared) -> Side:
    return Side(shared, server_side=False)


def hello_of(client: Side) -> memoryview:
    assert not client.step()
    return client.take_sent()


def test_two_sides_finish_in_a_few_steps(client: Side, server: Side) -> None:
    server.handshake.receive(hello_of(client))
    assert not server.step()
    client.handshake.receive(server.take_sent())
    assert client.step()
    server.handshake.receive(client.take_sent())
    assert server.step()


def test_a_part_of_a_hello_is_kept_until_the_rest_arrives(client: Side, server: Side) -> None:
    hello = hello_of(client)
    server.handshake.receive(hello[:100])
    assert not server.handshake.ready()
    assert not server.step()
    assert server.handshake.received == hello[:100]
    server.handshake.receive(hello[100:])
    assert server.handshake.ready()


def test_a_step_leaves_the_shared_buffers_empty(client: Side, server: Side, shared: TlsShared) -> None:
    server.handshake.receive(hello_of(client))
    server.step()
    assert not shared.incoming.pending
    assert not shared.outgoing.pending


def test_data_after_the_handshake_is_left_for_the_transport(client: Side, server: Side, shared: TlsShared) -> None:
    server.handshake.receive(hello_of(client))
    server.step()
    client.handshake.receive(server.take_sent())
    client.step()
    server.handshake.receive(memoryview(bytes(client.take_sent()) + b"early data of the next record"))
    assert server.step()
    assert server.handshake.received == b"early data of the next record"


def test_a_client_without_tls_is_refused_by_its_first_byte(server: Side) -> None:
    with pytest.raises(TlsFailed) as refused:
        server.handshake.receive(memoryview(b"\0\0\0\x08"))
    assert (refused.value.cause, refused.value.reason) == (DisconnectCause.NOT_TLS, "not_tls")


def test_a_hello_that_claims_too_much_is_refused(server: Side) -> None:
    claimed = (LARGEST_HELLO_BYTES + 1).to_bytes(3, "big")
    server.handshake.receive(memoryview(b"\x16\x03\x01\x02\x00\x01" + claimed))
    with pytest.raises(TlsFailed, match="claims 16385 bytes"):
        server.handshake.ready()
