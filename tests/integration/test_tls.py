"""TLS towards clients and brokers, over real sockets: every kind of request, the relay, and who is let in."""

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.net.tls import places
from tests.support.auth.tls import (
    PemFiles,
    Sealer,
    TlsClient,
    authority,
    certificate,
    client_context,
    server_context,
    show_chain,
    tls_broker,
    tls_client,
)
from tests.support.brokers.raw_broker import handshake, raw_broker
from tests.support.clients.async_client import AsyncClient, Closed, connect_frame, schema_frame
from tests.support.patience import in_time
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.proxy_under_test import MIB, TOPIC, TOPICS, Stage, namespace, staged

KIB = 1024


def frame_of(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


NEVER_SECONDS = 3600


async def connected(stage: Stage, context: ssl.SSLContext | None = None) -> TlsClient:
    client = await tls_client(stage, context)
    await client.connect()
    return client


# --- requests -------------------------------------------------------------------------------------


async def test_every_kind_of_request_passes_with_tls_on_both_sides(files: PemFiles) -> None:
    async with staged(broker_tls=server_context(), **files.server_keys, **files.broker_keys) as stage:
        client = await connected(stage)
        assert (await client.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect
        assert len((await client.topics(namespace(0))).topics) == TOPICS
        await client.send(schema_frame(7, TOPIC))
        assert (await client.answer()).type == pb.BaseCommand.GET_SCHEMA_RESPONSE
        await client.ping()
        handshakes = counted_by(stage.proxy.counters, "tls_handshakes")
        assert handshakes["client", "done"] == 1
        assert handshakes["broker", "done"] == stage.proxy.broker_side.pool.size > 0


async def test_a_reader_that_stops_leaves_no_more_than_a_record_in_user_space(files: PemFiles) -> None:
    async with staged(**files.server_keys) as stage:
        slow = await tls_client(stage, rcvbuf=4096)
        await slow.connect()
        await slow.ask_topics(namespace(0))
        session = stage.session_of(slow)
        transport = session.transport
        assert transport is not None
        unsent = transport.get_write_buffer_size
        await stage.until(lambda: session.output.holds_memory and unsent() > 0, "a body that stands still")
        for _ in range(20):
            await asyncio.sleep(0)
            assert unsent() <= 17 * KIB
        answer = await slow.answer()
        assert len(answer.getTopicsOfNamespaceResponse.topics) == TOPICS


# --- relay ----------------------------------------------------------------------------------------


async def greet(peer: AsyncClient) -> None:
    await handshake(peer)
    await asyncio.Event().wait()


@asynccontextmanager
async def joined(
    files: PemFiles, client_tls: bool, broker_tls: bool
) -> AsyncIterator[tuple[Stage, AsyncClient, AsyncClient]]:
    keys: dict[str, Any] = files.server_keys | (files.broker_keys if broker_tls else {})
    async with staged(**keys) as stage, tls_broker(greet) if broker_tls else raw_broker(greet) as broker:
        client = await (tls_client(stage) if client_tls else stage.client())
        await client.connect(target=f"127.0.0.1:{broker.port}")
        yield stage, client, broker.peers[-1]
        broker.peers[-1].close()


sides = pytest.mark.parametrize(("client_tls", "broker_tls"), [(True, True), (True, False), (False, True)])


@sides
async def test_bytes_pass_unchanged_both_ways_at_once(files: PemFiles, client_tls: bool, broker_tls: bool) -> None:
    up, down = os.urandom(3 * MIB), os.urandom(4 * MIB)
    async with joined(files, client_tls, broker_tls) as (stage, client, broker):
        received = asyncio.gather(broker.receive(len(up)), client.receive(len(down)))
        await asyncio.gather(client.send(up), broker.send(down))
        assert tuple(await received) == (up, down)
        counters = stage.proxy.counters
        client.close()
        assert await broker.rest() == b""
        broker.close()
        await stage.until(lambda: not len(stage.proxy.sessions), "no session")
        assert counted_by(counters, "relay_bytes") == {"to_broker": len(up), "to_client": len(down)}


async def test_a_client_that_half_closes_ends_a_pair_whose_broker_cannot_be_told(files: PemFiles) -> None:
    async with joined(files, client_tls=False, broker_tls=True) as (stage, client, broker):
        await client.send(b"last words")
        client.fin()
        assert await broker.receive(10) == b"last words"
        assert await broker.rest() == b""
        await stage.until(lambda: not len(stage.proxy.sessions), "no session")
        assert stage.caused("client_closed") == 1


async def test_a_plain_side_is_told_of_close_notify_and_may_still_answer(files: PemFiles) -> None:
    async with joined(files, client_tls=True, broker_tls=False) as (stage, client, broker):
        assert isinstance(client, TlsClient)
        await AsyncClient.send(client, client.sealer.seal(b"last words") + client.sealer.say_close_notify())
        assert await broker.receive(10) == b"last words"
        with pytest.raises(Closed):
            await broker.receive(1)
        await broker.send(b"an answer")
        assert await client.receive(9) == b"an answer"
        broker.close()
        await stage.until(lambda: not len(stage.proxy.sessions), "no session")


# The second frame is complete or not; the sizes of all frames are known to both sides.
WHOLE = frame_of(b"x" * 10) + frame_of(b"y" * 70_000)
# Whoever is in between can change a record, but seal none.
BAD_RECORD = b"\x17\x03\x03\x00\x40" + bytes(64)
BAD_RECORD_OF = "a record of the {} cannot be decrypted"


@pytest.mark.threat("stream-cut-off")
@pytest.mark.parametrize("client_tls", [True, False])
@pytest.mark.parametrize(
    ("missing", "end", "cause", "truncated"),
    [
        (1, "fin", "truncated", "inside_frame"),
        (3, "fin", "truncated", "inside_frame"),
        (69_990, "fin", "truncated", "inside_frame"),
        (1, "reset", "connection_reset", "inside_frame"),
        (1, "bad_record", "tls_error", "inside_frame"),
        (0, "fin", "", "between_frames"),
        (1, "close_notify", "", ""),
    ],
)
async def test_a_broker_that_is_cut_off_inside_a_frame_is_no_end_of_the_stream(
    files: PemFiles, client_tls: bool, missing: int, end: str, cause: str, truncated: str
) -> None:
    async with joined(files, client_tls, broker_tls=True) as (stage, client, broker):
        assert isinstance(broker, TlsClient)
        came = WHOLE[: len(WHOLE) - missing]
        await broker.send(came)
        assert await client.receive(len(came)) == came
        if end == "close_notify":
            await AsyncClient.send(broker, broker.sealer.say_close_notify())
        if end == "bad_record":
            await AsyncClient.send(broker, BAD_RECORD)
        elif end == "reset":
            broker.reset()
        else:
            broker.fin()
        assert await reset(client.sock) is bool(cause)
        client.close()
        await stage.until(lambda: not len(stage.proxy.sessions), "no session")
        assert stage.details == [BAD_RECORD_OF.format("broker")] * (end == "bad_record")
        found = counted_by(stage.proxy.counters, "relay_truncations")
        assert [name for name, count in found.items() if count] == [truncated] * bool(truncated)
        assert not cause or stage.caused(cause) == 1


@pytest.mark.threat("stream-cut-off")
@pytest.mark.parametrize("broker_tls", [True, False])
@pytest.mark.parametrize("end", ["fin", "reset", "bad_record"])
async def test_a_client_that_is_cut_off_inside_a_frame_is_no_end_for_the_broker(
    files: PemFiles, broker_tls: bool, end: str
) -> None:
    async with joined(files, client_tls=True, broker_tls=broker_tls) as (stage, client, broker):
        await client.send(WHOLE[:-1])
        assert await broker.receive(len(WHOLE) - 1) == WHOLE[:-1]
        if end == "bad_record":
            await AsyncClient.send(client, BAD_RECORD)
        elif end == "reset":
            client.reset()
        else:
            client.fin()
        assert await reset(broker.sock)
        await stage.until(lambda: not len(stage.proxy.sessions), "no session")
        assert stage.details == [BAD_RECORD_OF.format("client")] * (end == "bad_record")


async def test_why_a_client_was_ended_in_lookup_mode_is_told(files: PemFiles) -> None:
    async with staged(**files.server_keys) as stage:
        client = await tls_client(stage)
        await client.connect()
        await AsyncClient.send(client, BAD_RECORD)
        await stage.until(lambda: not len(stage.proxy.sessions), "no session")
        assert stage.details == [BAD_RECORD_OF.format("client")]


async def reset(sock: socket.socket) -> bool:
    """Return whether the stream ends with an RST; a FIN is the other end."""
    async with in_time():
        try:
            while await asyncio.get_running_loop().sock_recv(sock, 64 * KIB):
                pass
        except ConnectionResetError:
            return True
    return False


# --- certificates ---------------------------------------------------------------------------------


@pytest.mark.threat("no-client-certificate")
@pytest.mark.parametrize("own", [None, "second"], ids=["none", "of another authority"])
async def test_a_client_without_a_trusted_certificate_is_refused_where_one_is_demanded(
    files: PemFiles, own: str | None
) -> None:
    demand: dict[str, Any] = {"tlsTrustCertsFilePath": files.trust, "tlsRequireTrustedClientCertOnConnect": "true"}
    async with staged(**files.server_keys, **demand) as stage:
        leaf = authority(own).issue_cert("somebody") if own else None
        client = await tls_client(stage, client_context(own=leaf))
        with pytest.raises((Closed, ssl.SSLError)):
            await client.connect()
        await stage.until(lambda: not len(stage.proxy.sessions), "no session")
        assert stage.caused("tls_handshake_failed") == 1
        assert counted(stage.proxy.counters, "tls_handshakes", "client", "certificate") == 1
        await connected(stage, client_context(own=authority().issue_cert("somebody")))


@pytest.mark.threat("wrong-certificate-name")
@pytest.mark.parametrize("verified", [True, False])
async def test_a_broker_must_have_the_name_that_was_asked_for(files: PemFiles, verified: bool) -> None:
    keys = {**files.broker_keys, "tlsHostnameVerificationEnabled": str(verified).lower()}
    elsewhere = server_context(certificate("first", "elsewhere.example"))
    async with staged(broker_tls=elsewhere, **keys) as stage:
        client = await stage.connected()
        if not verified:
            assert (await client.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect
            return
        answer = await client.lookup(TOPIC)
        assert (answer.response, answer.error) == (pb.CommandLookupTopicResponse.Failed, ServerError.ServiceNotReady)
        assert "TLS handshake: the certificate is refused" in answer.message
        assert "127.0.0.1" in answer.message
        assert counted(stage.proxy.counters, "tls_handshakes", "broker", "certificate") > 0
        direct = await stage.client()
        await direct.send(connect_frame(f"127.0.0.1:{stage.broker.port}"))
        assert (await direct.command()).error.error == ServerError.ServiceNotReady


@pytest.mark.threat("unknown-authority")
async def test_a_broker_of_an_unknown_authority_is_refused(files: PemFiles) -> None:
    async with staged(broker_tls=server_context(certificate("second")), **files.broker_keys) as stage:
        client = await stage.connected()
        assert (await client.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Failed


@pytest.mark.threat("huge-certificate-chain")
@pytest.mark.parametrize(("count", "served"), [(20, True), (200, False)])
async def test_a_broker_with_a_chain_of_hundreds_of_certificates_is_refused(
    files: PemFiles, tmp_path: Path, count: int, served: bool
) -> None:
    context = show_chain(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), tmp_path, count)
    async with staged(broker_tls=context, **files.broker_keys) as stage:
        answer = await (await stage.connected()).lookup(TOPIC)
        assert (answer.response == pb.CommandLookupTopicResponse.Connect) is served
        assert served or "chain of certificates is refused" in answer.message


# --- handshakes -----------------------------------------------------------------------------------


@pytest.mark.threat("plain-to-tls-port")
async def test_a_client_without_tls_on_the_tls_port_is_named(files: PemFiles) -> None:
    async with staged(**files.server_keys) as stage:
        client = await stage.client(port=stage.proxy.tls_port)
        await client.send(connect_frame())
        await client.rest()
        await stage.until(lambda: stage.caused("not_tls") == 1, "its cause")
        assert counted(stage.proxy.counters, "tls_handshakes", "client", "not_tls") == 1


async def test_a_client_with_tls_on_the_plain_port_is_named(files: PemFiles) -> None:
    async with staged() as stage:
        client = await stage.client()
        sealer = Sealer(client_context())
        with pytest.raises((Closed, ssl.SSLError)):
            await sealer.shake(client.sock)
        await stage.until(lambda: stage.caused("tls_on_plain_port") == 1, "its cause")


@pytest.mark.parametrize(
    ("reason", "trusts", "sends"),
    [
        ("version_or_cipher", "first", b""),
        ("peer_refused", "second", b""),
        ("other", "", b"\x16\x03\x01\x00\x20" + bytes(32)),
        ("gone", "", b"\x16\x03\x01"),
    ],
)
async def test_a_handshake_that_fails_is_named(files: PemFiles, reason: str, trusts: str, sends: bytes) -> None:
    async with staged(**files.server_keys, tlsProtocols="TLSv1.3") as stage:
        client = await stage.client(port=stage.proxy.tls_port)
        if sends:
            await client.send(sends)
            client.fin()
        else:
            context = client_context(trusts)
            if reason == "version_or_cipher":
                context.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises(ssl.SSLError):
                await Sealer(context).shake(client.sock)
        await stage.until(lambda: counted(stage.proxy.counters, "tls_handshakes", "client", reason), reason)
        assert stage.caused("tls_handshake_failed") == 1


@pytest.mark.parametrize("first", [b"", b"\x16"])
async def test_a_handshake_that_stands_still_is_ended_by_the_clock(files: PemFiles, first: bytes) -> None:
    async with staged(**files.server_keys, handshakeTimeoutMillis=200) as stage:
        client = await stage.client(port=stage.proxy.tls_port)
        await client.send(first)
        await client.rest()
        await stage.until(lambda: stage.caused("handshake_timeout") == 1, "its cause")
        assert counted(stage.proxy.counters, "tls_handshakes", "client", "timeout") == 1


@pytest.mark.threat("tls-handshake-drips")
async def test_a_client_that_drips_its_handshake_has_no_more_time_than_others(files: PemFiles) -> None:
    async with staged(**files.server_keys, handshakeTimeoutMillis=300) as stage:
        client = await stage.client(port=stage.proxy.tls_port)
        sealer = Sealer(client_context())
        with pytest.raises(ssl.SSLWantReadError):
            sealer.tls.do_handshake()
        hello = sealer.outgoing.read()
        for byte in hello:
            client.send_now(bytes((byte,)))
            await asyncio.sleep(0.01)
            if stage.caused("handshake_timeout"):
                break
        assert stage.caused("handshake_timeout") == 1


@pytest.mark.threat("handshake-storm")
async def test_500_handshakes_at_once_are_all_served_and_stall_nobody(
    files: PemFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last of 500 handshakes waits for all others, as long as the machine takes for them; and the clients run in
    # the proxy's own loop, where a busy machine lets each of them answer late.
    waits = NEVER_SECONDS * 1000
    monkeypatch.setattr(places, "LEAST_SECONDS", NEVER_SECONDS)
    async with staged(**files.server_keys, maxConcurrentTlsHandshakes=8, handshakeTimeoutMillis=waits) as stage:
        before = await connected(stage)
        most = 0

        trusting = client_context()

        async def one() -> None:
            await connected(stage, trusting)

        async def others() -> None:
            nonlocal most
            while not storm.done():
                await before.ping()
                most = max(most, counted(stage.proxy.counters, "tls_handshakes_in_flight"))

        storm = asyncio.gather(*(one() for _ in range(500)))
        await asyncio.gather(storm, others())
        assert 0 < most <= 8
        assert counted(stage.proxy.counters, "tls_handshakes", "client", "done") == 501
        assert len(stage.proxy.sessions) == 501


async def test_a_drain_does_not_wait_for_handshakes(files: PemFiles) -> None:
    async with staged(**files.server_keys, shutdownDrainMillis=NEVER_SECONDS * 1000) as stage:
        client = await stage.client(port=stage.proxy.tls_port)
        await client.send(b"\x16\x03")
        await stage.until(lambda: len(stage.proxy.sessions) == 1, "an arrival")
        async with in_time():
            await stage.proxy.sessions.drain(NEVER_SECONDS)
        assert not len(stage.proxy.sessions)
