"""The steps of a TLS handshake, without a socket: two sides that share one pair of BIOs, as in a loop."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import pytest

from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.net.tls.failures import TlsFailed
from proxy.net.tls.handshake import BROKER_HANDSHAKE_BYTES, CLIENT_HANDSHAKE_BYTES, Handshake
from proxy.net.tls.shared import TlsShared
from proxy.net.transport import SMALL_READ_BYTES
from tests.support.auth.tls import HOST, authority, certificate, client_context, server_context


class Side:
    """A handshake, and the bytes that it has sent."""

    def __init__(self, shared: TlsShared, *, server_side: bool, context: ssl.SSLContext | None = None) -> None:
        if context is None:
            context = server_context() if server_side else client_context()
        host = None if server_side else HOST
        ssl_object = context.wrap_bio(shared.incoming, shared.outgoing, server_side, host)
        self._shared = shared
        self.sent = b""
        self.taken = 0
        self.handshake = Handshake(shared, ssl_object, asyncio.Protocol, lambda _: None, server_side=server_side)

    def step(self) -> bool:
        return self.handshake.step(self._flush)

    def take_sent(self) -> memoryview:
        sent, self.sent = self.sent, b""
        return memoryview(sent)

    def read_all(self, flight: memoryview) -> bool:
        """Take a flight in reads as a socket's; return whether the handshake is done, and count what OpenSSL took."""
        done = False
        for start in range(0, len(flight), SMALL_READ_BYTES):
            self.handshake.receive(flight[start : start + SMALL_READ_BYTES])
            while not done and self.handshake.ready():
                before = len(self.handshake.received)
                try:
                    done = self.step()
                finally:
                    self.taken += before - len(self.handshake.received)
        return done

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


def test_data_after_the_handshake_is_left_for_the_transport(client: Side, server: Side, shared: TlsShared) -> None:
    server.handshake.receive(hello_of(client))
    server.step()
    client.handshake.receive(server.take_sent())
    client.step()
    server.handshake.receive(memoryview(bytes(client.take_sent()) + b"early data of the next record"))
    assert server.step()
    assert server.handshake.received == b"early data of the next record"


class TestChains:
    """Certificates cost the loop by their number, in one step: OpenSSL gets no more than a real chain's bytes."""

    @pytest.mark.threat("huge-certificate-chain")
    def test_a_client_with_200_certificates_is_refused_before_openssl_sees_them_all(
        self, shared: TlsShared, tmp_path: Path
    ) -> None:
        server, flight = self._asked(shared, tmp_path, 200)
        assert len(flight) > 4 * CLIENT_HANDSHAKE_BYTES
        with pytest.raises(TlsFailed, match="the client's chain of certificates") as refused:
            server.read_all(flight)
        assert (refused.value.cause, refused.value.reason) == (DisconnectCause.TLS_HANDSHAKE_FAILED, "certificate")
        assert server.taken <= CLIENT_HANDSHAKE_BYTES

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    def test_a_real_chain_passes_and_the_data_behind_it_counts_for_nothing(
        self, shared: TlsShared, tmp_path: Path, version: ssl.TLSVersion
    ) -> None:
        server, flight = self._asked(shared, tmp_path, 30, version)
        assert 12_000 < len(flight) < CLIENT_HANDSHAKE_BYTES
        data = bytes(CLIENT_HANDSHAKE_BYTES)
        assert server.read_all(memoryview(bytes(flight) + data))
        assert server.handshake.received == data

    def test_certificates_in_the_record_of_the_hello_count(self, shared: TlsShared, tmp_path: Path) -> None:
        _, flight = self._asked(shared, tmp_path, 200, ssl.TLSVersion.TLSv1_2)
        context = client_context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        hello = bytes(hello_of(Side(shared, server_side=False, context=context)))
        server = Side(shared, server_side=True, context=server_context(clients_from="first"))
        half = CLIENT_HANDSHAKE_BYTES // 2
        server.handshake.receive(memoryview(record(hello[5:] + bytes(flight[5 : 5 + half]))))
        assert not server.step()
        with pytest.raises(TlsFailed, match="the client's chain of certificates"):
            server.read_all(memoryview(record(bytes(flight[5 + half : 5 + 2 * half]))))
        assert server.taken <= half

    def test_a_second_hello_counts_for_nothing(self, shared: TlsShared, tmp_path: Path) -> None:
        context = server_context(clients_from="first")
        context.set_ecdh_curve("secp521r1")
        server, flight = self._asked(shared, tmp_path, 20, server=context)
        assert server.read_all(flight)

    @pytest.mark.threat("huge-certificate-chain")
    def test_a_broker_with_200_certificates_is_refused_and_one_with_20_is_not(
        self, shared: TlsShared, tmp_path: Path
    ) -> None:
        for count in (20, 200):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            with_chain(context, tmp_path, count)
            client, broker = Side(shared, server_side=False), Side(shared, server_side=True, context=context)
            broker.handshake.receive(hello_of(client))
            broker.step()
            flight = broker.take_sent()
            if count == 20:
                assert client.read_all(flight)
            else:
                assert len(flight) > BROKER_HANDSHAKE_BYTES
                with pytest.raises(TlsFailed, match="the broker's chain of certificates"):
                    client.read_all(flight)
                assert client.taken <= BROKER_HANDSHAKE_BYTES

    @staticmethod
    def _asked(
        shared: TlsShared,
        directory: Path,
        count: int,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        server: ssl.SSLContext | None = None,
    ) -> tuple[Side, memoryview]:
        """Give a server that asks for a certificate, and the flight of a client that shows `count` more of them."""
        context = client_context()
        context.maximum_version = version
        with_chain(context, directory, count)
        context_of_server = server_context(clients_from="first") if server is None else server
        asking = Side(shared, server_side=True, context=context_of_server)
        client = Side(shared, server_side=False, context=context)
        flight = hello_of(client)
        for _ in range(2):
            asking.handshake.receive(flight)
            asking.step()
            client.handshake.receive(asking.take_sent())
            client.step()
            flight = client.take_sent()
            if len(flight) > count * 100:
                break
        return asking, flight


def record(content: bytes) -> bytes:
    """Give a record of the handshake that is not sealed."""
    return b"\x16\x03\x03" + len(content).to_bytes(2, "big") + content


def with_chain(context: ssl.SSLContext, directory: Path, count: int) -> None:
    """Give `context` a certificate of the first authority, followed by `count` that nobody needs."""
    leaf = certificate()
    file = directory / "chain.pem"
    chain = [leaf.private_key_pem.bytes(), leaf.cert_chain_pems[0].bytes()]
    file.write_bytes(b"".join(chain + [authority("second").cert_pem.bytes()] * count))
    context.load_cert_chain(file)
