"""Own certificates of a test, and the other end of TLS connections, by OpenSSL over a bare socket.

Rule: a peer seals and opens by hand, so that a test can cut a record, hold one back or send no TLS at all.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

import pytest
import trustme

from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.core.tasks import TaskScope
from proxy.net.tls.failures import TlsFailed
from proxy.net.tls.pem import CERTIFICATES, KEYS, of_kind
from proxy.net.tls.session import new_config, new_session
from proxy.net.tls.shared import TlsShared
from proxy.net.tls.transport import TlsTransport
from proxy.net.transport import SharedReadBuffer
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.raw_broker import RawBroker, Serve, raw_broker
from tests.support.clients.async_client import LOOPBACK, AsyncClient, Closed
from tests.support.loops.loops import eventually
from tests.support.patience import in_time
from tests.support.proxies import proxy_under_test
from tests.support.proxies.proxy_under_test import Stage
from tests.support.sockets.endpoints import Peer, RecordingEndpoint, hangup_watcher, tcp_pair

if TYPE_CHECKING:
    from proxy.core.native import TlsConfig, TlsSession

HOST = "localhost"
PIECE_BYTES = 64 * 1024


def authority(name: str = "first") -> trustme.CA:
    """Give the authority of that name; it is the same in all tests."""
    return _authority(name)


@cache
def _authority(name: str) -> trustme.CA:
    return trustme.CA(organization_name=name)


@cache
def certificate(of: str = "first", *names: str) -> trustme.LeafCert:
    """Give a certificate that names `names`, or localhost and 127.0.0.1."""
    return authority(of).issue_cert(*(names or (HOST, LOOPBACK)))


def client_context(of: str = "first", own: trustme.LeafCert | None = None) -> ssl.SSLContext:
    """Give what a client uses that trusts one authority, and may have a certificate of its own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority(of).configure_trust(context)
    if own is not None:
        own.configure_cert(context)
    return context


def server_context(own: trustme.LeafCert | None = None, clients_from: str | None = None) -> ssl.SSLContext:
    """Give what a server uses; with `clients_from` it demands certificates of that authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (certificate() if own is None else own).configure_cert(context)
    # A peer that closes with a ticket unread sends an RST.
    context.num_tickets = 0
    if clients_from is not None:
        authority(clients_from).configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@cache
def served_config() -> "TlsConfig":
    """Give the proxy's own settings of a port that asks for no certificates."""
    return _config(server_side=True, own=certificate())


@cache
def calling_config(of: str = "first") -> "TlsConfig":
    """Give the proxy's own settings towards brokers of an authority."""
    return _config(server_side=False, trusted=authority(of))


def _config(
    *, server_side: bool, own: trustme.LeafCert | None = None, trusted: trustme.CA | None = None
) -> "TlsConfig":
    roots = [] if trusted is None else of_kind(trusted.cert_pem.bytes(), CERTIFICATES)
    chain = [] if own is None else [each for pem in own.cert_chain_pems for each in of_kind(pem.bytes(), CERTIFICATES)]
    key = b"" if own is None else of_kind(own.private_key_pem.bytes(), KEYS)[0]
    return new_config(
        server_side=server_side, chain=chain, key=key, roots=roots, lists=[], verify=2 * bool(roots),
        check_name=not server_side, versions=[], suites=[],
        # A peer that closes with a ticket unread sends an RST.
        resumes=False,
    )  # fmt: skip


def show_chain(context: ssl.SSLContext, directory: Path, count: int) -> ssl.SSLContext:
    """Have a context show a certificate of the first authority, and `count` behind it that nobody needs."""
    leaf, file = certificate(), directory / "chain.pem"
    chain = [leaf.private_key_pem.bytes(), leaf.cert_chain_pems[0].bytes()]
    file.write_bytes(b"".join(chain + [authority("second").cert_pem.bytes()] * count))
    context.load_cert_chain(file)
    return context


@dataclass(frozen=True)
class PemFiles:
    """A certificate, its key and an authority, as files."""

    certificate: Path
    key: Path
    trust: Path

    @classmethod
    def write(cls, directory: Path, own: trustme.LeafCert | None = None, trusted: str = "first") -> Self:
        directory.mkdir(parents=True, exist_ok=True)
        files = cls(directory / "cert.pem", directory / "key.pem", directory / "ca.pem")
        leaf = certificate() if own is None else own
        files.certificate.write_bytes(b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        files.key.write_bytes(leaf.private_key_pem.bytes())
        files.trust.write_bytes(authority(trusted).cert_pem.bytes())
        return files

    @property
    def server_keys(self) -> dict[str, Any]:
        """Give the keys of a proxy that serves TLS with them."""
        return {"servicePortTls": 0, "tlsCertificateFilePath": self.certificate, "tlsKeyFilePath": self.key}

    @property
    def broker_keys(self) -> dict[str, Any]:
        """Give the keys of a proxy that speaks TLS to its broker."""
        return {"tlsEnabledWithBroker": "true", "brokerClientTrustCertsFilePath": self.trust}


class Sealer:
    """One end of a TLS connection without a socket."""

    def __init__(self, context: ssl.SSLContext, *, server_side: bool = False, host: str | None = HOST) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side, None if server_side else host)

    def seal(self, data: bytes) -> bytes:
        """Give the records that carry `data`."""
        if data:
            self.tls.write(data)
        return self.outgoing.read()

    def say_close_notify(self) -> bytes:
        """Give the record that ends the stream."""
        with suppress(ssl.SSLError):
            self.tls.unwrap()
        return self.outgoing.read()

    def opened(self, count: int) -> bytes | None:
        """Give up to `count` bytes, none at the end of the stream, None if more must come first."""
        try:
            return self.tls.read(count)
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLZeroReturnError:
            return b""

    async def shake(self, sock: socket.socket) -> None:
        """Do the handshake; raises ssl.SSLError, or Closed if the other side ends it."""
        loop, done = asyncio.get_running_loop(), False
        while not done:
            try:
                self.tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            finally:
                if self.outgoing.pending:
                    await loop.sock_sendall(sock, self.outgoing.read())
            if not done:
                await self.more(sock)

    async def more(self, sock: socket.socket) -> None:
        """Read some ciphertext; raises Closed."""
        try:
            data = await asyncio.get_running_loop().sock_recv(sock, PIECE_BYTES)
        except ConnectionError as error:
            raise Closed("reset") from error
        if not data:
            raise Closed("closed")
        self.incoming.write(data)


class Refused(Exception):
    """A session has failed; the text says why."""


def hands_shaken(
    config: "TlsConfig", peer: ssl.SSLContext, name: str = "", session: ssl.SSLSession | None = None
) -> "tuple[TlsSession, ssl.SSLObject]":
    """Give both ends of a connection in memory; raises Refused, or ssl.SSLError if the peer refuses.

    With a `name` the session is the client's.
    """
    ours = new_session(config, name)
    incoming, outgoing, no_room = ssl.MemoryBIO(), ssl.MemoryBIO(), memoryview(bytearray())
    theirs = peer.wrap_bio(incoming, outgoing, bool(name), None if name else HOST, session)
    for _ in range(4):
        incoming.write(ours.take_own())
        with suppress(ssl.SSLWantReadError):
            theirs.do_handshake()
        ours.receive(outgoing.read(), no_room)
        if ours.failure is not None:
            raise Refused(ours.failure[1])
    incoming.write(ours.take_own() + ours.seal([b"x"]))
    # What a server says behind the handshake comes with the first data.
    assert theirs.read(1) == b"x"
    assert not ours.handshaking
    return ours, theirs


class TlsPeer(Peer):
    """The other end of an endpoint, over TLS."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        super().__init__(sock)
        self.sealer = Sealer(context)
        self._scope = TaskScope(lambda error: None)

    async def send(self, data: bytes) -> None:
        await super().send(self.sealer.seal(data))

    def close(self) -> None:
        self._scope.cancel()
        super().close()

    def send_until_full(self) -> int:
        sent = 0
        while True:
            sealed = self.sealer.seal(bytes(PIECE_BYTES))
            sent += PIECE_BYTES
            try:
                taken = self.sock.send(sealed)
            except BlockingIOError:
                taken = 0
            if taken < len(sealed):
                self._scope.start(self._loop.sock_sendall(self.sock, sealed[taken:]))
                return sent

    async def read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.sealer.opened(count - len(data))
            if piece == b"":
                break
            if piece is None:
                raw = await self._loop.sock_recv(self.sock, 1 << 20)
                if not raw:
                    break
                self.sealer.incoming.write(raw)
            else:
                data += piece
        return bytes(data)


@asynccontextmanager
async def tls_link(
    kind: type[RecordingEndpoint] = RecordingEndpoint,
    kernel_buffer_bytes: int = 0,
    shared: TlsShared | None = None,
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[RecordingEndpoint, TlsPeer]]:
    """Give an endpoint with TLS below it and its peer, hands shaken; nothing is left open afterwards."""
    loop = asyncio.get_running_loop()
    served, client = tcp_pair(kernel_buffer_bytes)
    if kernel_buffer_bytes:
        served.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, kernel_buffer_bytes)
    async with hangup_watcher() as watcher:
        endpoint = kind(loop, SharedReadBuffer(), watcher)
        failures: list[TlsFailed] = []
        shared = TlsShared(LoopBudget(loop, perf_counter)) if shared is None else shared
        transport = TlsTransport(shared, served_config(), lambda: endpoint, failures.append)
        await loop.create_connection(lambda: transport, sock=served)
        peer = TlsPeer(client, client_context() if context is None else context)
        await peer.sealer.shake(client)
        await eventually(lambda: endpoint.transport is not None or endpoint.ends)
        try:
            yield endpoint, peer
        finally:
            peer.close()
            endpoint.abort(DisconnectCause.SHUTDOWN)
            transport.abort()
            await eventually(lambda: endpoint.transport is None, "the transport is gone")
        assert not failures


class TlsClient(AsyncClient):
    """A Pulsar client over TLS that reads only what a test takes."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, server_side: bool = False) -> None:
        super().__init__(sock)
        self.sealer = Sealer(context, server_side=server_side)
        # Sends what the kernel did not take of a record; nothing else may go before it.
        self._rest = TaskScope(lambda error: None)

    async def shake(self) -> Self:
        async with in_time():
            await self.sealer.shake(self.sock)
        return self

    async def send(self, data: bytes) -> None:
        await self._rest.emptied()
        await super().send(self.sealer.seal(data))

    def send_now(self, data: bytes) -> int:
        """Send all of it or none, as far as its records go."""
        if len(self._rest):
            return 0
        sealed = self.sealer.seal(data)
        taken = super().send_now(sealed)
        if taken < len(sealed):
            # As long as the receiver likes: a record that is cut would be lost bytes.
            self._rest.start(self._loop.sock_sendall(self.sock, sealed[taken:]))
        return len(data)

    def close(self) -> None:
        self._rest.cancel()
        super().close()

    def reset(self) -> None:
        # While something is being sent the loop keeps the socket open, and no RST goes out.
        self._rest.cancel()
        super().reset()

    def receive_now(self, size: int) -> bytes:
        if (piece := self.sealer.opened(size)) is None:
            self.sealer.incoming.write(super().receive_now(PIECE_BYTES))
            piece = self.sealer.opened(size)
        return piece or b""

    async def some(self, count: int) -> bytes:
        while (piece := self.sealer.opened(count)) is None:
            await self.sealer.more(self.sock)
        if not piece:
            raise Closed("close_notify")
        return piece


@asynccontextmanager
async def tls_broker(serve: Serve, context: ssl.SSLContext | None = None) -> AsyncIterator[RawBroker]:
    """Run `serve` for each connection, hands shaken."""
    accepted = server_context() if context is None else context

    async def shaken(peer: AsyncClient) -> None:
        await peer.shake()
        await serve(peer)

    async with raw_broker(shaken, lambda sock: TlsClient(sock, accepted, server_side=True)) as broker:
        yield broker


async def tls_client(stage: Stage, context: ssl.SSLContext | None = None, rcvbuf: int | None = None) -> TlsClient:
    """Open a connection to the TLS port and shake hands."""
    plain = await AsyncClient.open(stage.proxy.tls_port, rcvbuf)
    client = TlsClient(plain.sock, client_context() if context is None else context)
    stage.clients.append(client)
    return await client.shake()


def brokers_with_tls(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the brokers of all stages, and the raw ones beside them, shake hands first."""
    accepting = server_context()
    accepted = partial(TlsClient, context=accepting, server_side=True)
    monkeypatch.setattr("tests.support.brokers.raw_broker.PEER", accepted)
    sealed = partial(EmbeddedBroker, tls=accepting)
    monkeypatch.setattr(proxy_under_test, "EmbeddedBroker", lambda topics, tls: sealed(topics))
    for key, value in PemFiles.write(directory).broker_keys.items():
        monkeypatch.setitem(proxy_under_test.DEFAULTS, key, str(value))


def serve_with_tls(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every client of every stage shake hands first."""
    trusting = client_context()

    async def client(stage: Stage, rcvbuf: int | None = None, port: int | None = None) -> AsyncClient:
        assert port is None
        return await tls_client(stage, trusting, rcvbuf)

    monkeypatch.setattr(Stage, "client", client)
    for key, value in PemFiles.write(directory).server_keys.items():
        monkeypatch.setitem(proxy_under_test.DEFAULTS, key, str(value))
