"""Many clients on the TLS port that do not go on with their handshake hold up nobody else."""

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from protocol.proxy_header import HostPort, ProxyHeader, encode
from proxy.net.tls import arrivals, places
from proxy.net.tls.arrivals import Arrival
from tests.support.auth.tls import PemFiles, Sealer, TlsClient, authority, client_context, show_chain, tls_client
from tests.support.clients.async_client import LOOPBACK, AsyncClient, Closed
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import Stage, staged

NEVER_SECONDS = 3600.0
PATIENT: dict[str, Any] = {"handshakeTimeoutMillis": 3_600_000}
CROWD_ADDRESS = "127.0.0.2"
MANY = 200
DEPTH = 6


def times(monkeypatch: pytest.MonkeyPatch, place: float, least: float) -> None:
    monkeypatch.setattr(places, "PLACE_SECONDS", place)
    monkeypatch.setattr(places, "LEAST_SECONDS", least)


def hello() -> bytes:
    sealer = Sealer(client_context())
    with suppress(ssl.SSLWantReadError):
        sealer.tls.do_handshake()
    return sealer.outgoing.read()


async def crowd(stage: Stage, sent: bytes, number: int = MANY, *, at_once: bool = True) -> list[AsyncClient]:
    """Give clients of another address that have sent `sent`, and nothing after it; `at_once`: all are there."""
    clients = []
    for _ in range(number):
        address = (LOOPBACK, stage.proxy.tls_port)
        client = AsyncClient(socket.create_connection(address, source_address=(CROWD_ADDRESS, 0)))
        client.sock.setblocking(False)
        stage.clients.append(client)
        await client.send(sent)
        clients.append(client)
    if at_once:
        await stage.until(lambda: len(stage.proxy.sessions) >= number, "all clients")
    return clients


async def served(stage: Stage) -> TlsClient:
    client = await tls_client(stage)
    await client.connect()
    return client


def half_done(stage: Stage) -> int:
    """Return how many handshakes hold memory of OpenSSL."""
    return sum(isinstance(each, Arrival) and each.transport is not None for each in stage.sessions)


@pytest.mark.threat("one-byte-tls")
@pytest.mark.parametrize("part", [1, 100, -1])
async def test_clients_with_a_part_of_a_hello_hold_no_place(
    files: PemFiles, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    times(monkeypatch, NEVER_SECONDS, NEVER_SECONDS)
    async with staged(**files.server_keys, **PATIENT, maxConcurrentTlsHandshakes=1) as stage:
        await crowd(stage, hello()[:part])
        await served(stage)
        assert half_done(stage) == 0
        assert counted(stage.proxy.counters, "tls_handshakes_waiting") == 0
        assert len(stage.proxy.sessions) == MANY + 1


@pytest.mark.threat("client-hellos-drip")
@pytest.mark.parametrize(("records", "taken"), [(64, True), (65, False)])
async def test_a_hello_may_come_in_a_bounded_number_of_records(files: PemFiles, records: int, taken: bool) -> None:
    header, message = hello()[:5], hello()[5:]
    # The first record has the header of the message.
    pieces = [message[:4], *(message[at : at + 1] for at in range(4, 2 + records)), message[2 + records :]]
    async with staged(**files.server_keys, **PATIENT) as stage:
        plain = await stage.client(port=stage.proxy.tls_port)
        for piece in pieces:
            await plain.send(header[:3] + len(piece).to_bytes(2, "big") + piece)
        if taken:
            # A ServerHello.
            assert (await plain.receive(6))[::5] == b"\x16\x02"
        else:
            assert await plain.rest() == b""
            assert stage.caused("tls_handshake_failed") == 1


@pytest.mark.threat("hello-then-silence")
async def test_half_done_handshakes_never_hold_more_than_their_places(
    files: PemFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    times(monkeypatch, 0.05, 0.05)
    async with staged(**files.server_keys, **PATIENT, maxConcurrentTlsHandshakes=4) as stage:
        # On a busy machine the first have lost their places before the last are accepted.
        await crowd(stage, hello(), at_once=False)
        counters = stage.proxy.counters
        await stage.until(
            lambda: counted(counters, "tls_handshakes", "client", "displaced") >= MANY - 4, "places change hands"
        )
        assert half_done(stage) <= 4
        assert stage.caused("handshake_timeout") >= MANY - 4
        monkeypatch.setattr(places, "PLACE_SECONDS", NEVER_SECONDS)
        await served(stage)


@pytest.mark.threat("hellos-of-one-address")
async def test_another_address_has_the_next_turn_however_many_wait(
    files: PemFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The crowd leaves no place to its own: only turns by address let another client in.
    times(monkeypatch, NEVER_SECONDS, 0.0)
    async with staged(**files.server_keys, **PATIENT, maxConcurrentTlsHandshakes=2) as stage:
        await crowd(stage, hello())
        counters = stage.proxy.counters
        await stage.until(lambda: counted(counters, "tls_handshakes_waiting") == MANY - 2, "a full queue")
        await served(stage)
        assert counted(counters, "tls_handshakes_waiting") >= MANY - 4


@pytest.mark.threat("many-networks-one-customer")
async def test_another_customer_has_the_next_turn_however_many_networks_one_has(
    files: PemFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    times(monkeypatch, NEVER_SECONDS, 0.0)
    keys: dict[str, Any] = {"haProxyProtocolEnabled": "true", "brokerHaProxyProtocolVersion": "none"}

    async def client_of(stage: Stage, address: str, sent: bytes = b"") -> AsyncClient:
        client = await stage.client(port=stage.proxy.tls_port)
        await client.send(encode(ProxyHeader(HostPort(address, 4000), HostPort("2001:db8::1", 6651)), 2) + sent)
        return client

    async with staged(**files.server_keys, **PATIENT, **keys, maxConcurrentTlsHandshakes=2) as stage:
        for number in range(MANY):
            await client_of(stage, f"2001:db8:1:{number:x}::1", hello())
        counters = stage.proxy.counters
        await stage.until(lambda: counted(counters, "tls_handshakes_waiting") == MANY - 2, "a full queue")
        newcomer = TlsClient((await client_of(stage, "2001:db8:2::1")).sock, client_context())
        await newcomer.shake()
        await newcomer.connect()
        assert counted(counters, "tls_handshakes_waiting") >= MANY - 4


async def test_a_client_that_goes_on_keeps_its_place(files: PemFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    times(monkeypatch, NEVER_SECONDS, NEVER_SECONDS)
    async with staged(**files.server_keys, **PATIENT, maxConcurrentTlsHandshakes=1) as stage:
        plain = await stage.client(port=stage.proxy.tls_port)
        slow = TlsClient(plain.sock, client_context())
        with suppress(ssl.SSLWantReadError):
            slow.sealer.tls.do_handshake()
        await plain.send(slow.sealer.outgoing.read())
        await stage.until(lambda: half_done(stage) == 1, "a place")
        behind = await crowd(stage, hello(), 1)
        await stage.until(lambda: counted(stage.proxy.counters, "tls_handshakes_waiting") == 1, "a client that waits")
        await slow.shake()
        await slow.connect()
        # Its place is free now.
        assert await behind[0].receive(5)


@pytest.mark.threat("dripping-handshakes-hold-places")
async def test_a_client_that_drips_keeps_no_place_but_its_own(files: PemFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Arrival] = []

    def all_but_the_first_are_silent(holder: Arrival) -> bool:
        asked.append(holder)
        return holder is not asked[0]

    times(monkeypatch, NEVER_SECONDS, NEVER_SECONDS)
    monkeypatch.setattr(arrivals, "is_silent", all_but_the_first_are_silent)
    async with staged(**files.server_keys, **PATIENT, maxConcurrentTlsHandshakes=2) as stage:
        await crowd(stage, hello(), 2)
        await stage.until(lambda: half_done(stage) == 2, "two places that are taken")
        times(monkeypatch, 0.0, 0.0)
        await served(stage)
        assert counted(stage.proxy.counters, "tls_handshakes", "client", "displaced") == 1
        assert asked[0].transport is not None


@pytest.mark.threat("dripping-handshakes-hold-places")
async def test_a_client_that_drips_is_looked_at_now_and_then_and_loses_its_place_in_the_end(
    files: PemFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def never_silent(_: Arrival) -> bool:
        looks.append(asyncio.get_running_loop().time())
        return False

    times(monkeypatch, 0.0, 0.0)
    monkeypatch.setattr(arrivals, "is_silent", never_silent)
    async with staged(**files.server_keys, **PATIENT, maxConcurrentTlsHandshakes=1) as stage:
        await crowd(stage, hello(), 1)
        await stage.until(lambda: half_done(stage) == 1, "a place that is taken")
        await served(stage)
        assert counted(stage.proxy.counters, "tls_handshakes", "client", "displaced") == 1
        assert len(looks) == arrivals.MOST_LOOKS + 1
        assert looks[-1] - looks[0] >= 0.9 * arrivals.MOST_LOOKS * arrivals.AGAIN_SECONDS


def client_of_depth(issuer: trustme.CA, depth: int) -> ssl.SSLContext:
    """Return the context of a client whose certificate is so many authorities below `issuer`."""
    for _ in range(depth):
        issuer = issuer.create_child_ca()
    return client_context(own=issuer.issue_cert("somebody"))


def client_with_names(number: int) -> ssl.SSLContext:
    """Return the context of a client whose certificate has 22 bytes for each of so many names."""
    return client_context(own=authority().issue_cert(*(f"name-{each:07}.example" for each in range(number))))


@pytest.mark.threat("huge-certificate-chain")
async def test_a_deep_chain_and_a_large_certificate_are_served_and_a_huge_one_is_refused(
    files: PemFiles, tmp_path: Path
) -> None:
    demand: dict[str, Any] = {"tlsTrustCertsFilePath": files.trust, "tlsRequireTrustedClientCertOnConnect": "true"}
    deep = trustme.CA(path_length=DEPTH)
    files.trust.write_bytes(authority().cert_pem.bytes() + deep.cert_pem.bytes())
    async with staged(**files.server_keys, **demand) as stage:
        small, many, huge = (show_chain(client_context(), tmp_path, count) for count in (31, 40, 200))
        for context in (client_of_depth(deep, DEPTH), client_with_names(400), small):
            client = await tls_client(stage, context)
            await client.connect()
        for context in (client_with_names(1_000), many, huge):
            with pytest.raises((Closed, ssl.SSLError)):
                await (await tls_client(stage, context)).connect()
        await stage.until(lambda: stage.caused("tls_handshake_failed") == 3, "three refusals")
        await client.ping()
