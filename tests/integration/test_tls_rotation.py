"""Certificates change while clients are connected: new ones for new connections, nothing for those that are there."""

import asyncio
import os
import ssl
from pathlib import Path

import pytest

from proxy.net.tls import contexts
from proxy.net.tls import files as tls_files
from proxy.net.tls.pem import CERTIFICATES, block, of_kind
from tests.support.auth.tls import (
    PemFiles,
    authority,
    certificate,
    client_context,
    server_context,
    tls_broker,
    tls_client,
)
from tests.support.brokers.raw_broker import handshake
from tests.support.clients.async_client import AsyncClient, Closed
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import Stage, staged

pytestmark = pytest.mark.usefixtures("quick_retries")


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_files, "RETRY_SECONDS", 0.02)


class Mounted:
    """A directory as Kubernetes mounts a secret: files are links into `..data`, which is a link that is swapped."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._versions = 0
        self.files = PemFiles(*(directory / name for name in ("cert.pem", "key.pem", "ca.pem")))

    def put(self, of: str, trusted: str) -> None:
        """Put the certificate of one authority and the trust of another in place, in one step."""
        self._versions += 1
        version = f"..version-{self._versions}"
        PemFiles.write(self._directory / version, certificate(of), trusted)
        new = self._directory / "..new"
        new.symlink_to(version)
        os.replace(new, self._directory / "..data")
        for name in ("cert.pem", "key.pem", "ca.pem"):
            if not (self._directory / name).is_symlink():
                (self._directory / name).symlink_to(f"..data/{name}")


def dateless(pem: bytes) -> bytes:
    """Return a certificate of trustme whose end, in the year 3000, is no date, but as long."""
    (leaf,) = of_kind(pem, CERTIFICATES)
    return block(b"CERTIFICATE", leaf.replace(b"30000101000000Z", b"once upon a day"))


def reloads(stage: Stage, result: str) -> int:
    return counted(stage.proxy.counters, "tls_reloads", result)


async def test_a_swapped_directory_is_in_force_for_new_connections_and_drops_none(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path)
    mounted.put("first", "first")
    keys = mounted.files.server_keys | {
        "tlsTrustCertsFilePath": mounted.files.trust,
        "tlsRequireTrustedClientCertOnConnect": "true",
    }
    first = client_context("first", authority("first").issue_cert("somebody"))
    second = client_context("second", authority("second").issue_cert("somebody"))
    async with staged(**keys) as stage:
        before = await tls_client(stage, first)
        await before.connect()
        mounted.put("second", "second")
        stage.proxy.files_may_have_changed()
        await stage.until(lambda: reloads(stage, "applied") == 1, "the new files")
        after = await tls_client(stage, second)
        await after.connect()
        # Neither the old authority nor a ticket of the old context opens the door any more.
        with pytest.raises(ssl.SSLCertVerificationError):
            await tls_client(stage, first)
        mixed = client_context("second", authority("first").issue_cert("somebody"))
        refused = await tls_client(stage, mixed)
        with pytest.raises((Closed, ssl.SSLError)):
            await refused.connect()
        for client in (before, after):
            await client.ping()


async def test_a_relay_under_traffic_outlives_many_rotations_on_both_sides(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path)
    mounted.put("first", "first")
    sent, received = bytearray(), bytearray()

    async def greet(peer: AsyncClient) -> None:
        await handshake(peer)
        await asyncio.Event().wait()

    keys = mounted.files.server_keys | mounted.files.broker_keys
    async with staged(**keys) as stage, tls_broker(greet) as broker:
        client = await tls_client(stage)
        await client.connect(target=f"127.0.0.1:{broker.port}")
        for number in range(6):
            mounted.put(*(("second", "second"), ("first", "first"))[number % 2])
            stage.proxy.files_may_have_changed()
            data = os.urandom(200_000)
            got = asyncio.gather(broker.peers[0].receive(len(data)))
            await client.send(data)
            sent += data
            received += (await got)[0]
            await stage.until(lambda done=number + 1: reloads(stage, "applied") == done, "the new files")  # type: ignore[misc]
        assert sent == received
        assert stage.proxy.sessions.relays == 1
        broker.peers[0].close()


@pytest.mark.threat("damaged-certificate-file")
async def test_a_key_that_does_not_fit_yet_leaves_the_old_certificate_in_force(tmp_path: Path) -> None:
    files = PemFiles.write(tmp_path)
    whole = PemFiles.write(tmp_path / "new", certificate("second"), "second")
    async with staged(**files.server_keys) as stage:
        files.certificate.write_bytes(whole.certificate.read_bytes())
        stage.proxy.files_may_have_changed()
        await stage.until(lambda: reloads(stage, "refused") == 1, "a refusal")
        await (await tls_client(stage, client_context("first"))).connect()
        # Nobody asks again: it is looked at again soon, and must not be seen half written.
        whole.key.replace(files.key)
        await stage.until(lambda: reloads(stage, "applied") == 1, "the new files")
        await (await tls_client(stage, client_context("second"))).connect()
        # Half a pair is one fault, however often it was looked at.
        assert reloads(stage, "refused") == 1


@pytest.mark.threat("damaged-certificate-file")
@pytest.mark.parametrize("damage", ["gone", "empty", "garbage", "a date without digits"])
async def test_a_damaged_file_leaves_the_old_certificate_in_force_until_it_is_whole(
    tmp_path: Path, damage: str
) -> None:
    files = PemFiles.write(tmp_path)
    async with staged(**files.server_keys) as stage:
        if damage == "gone":
            files.key.unlink()
        elif damage == "a date without digits":
            files.certificate.write_bytes(dateless(files.certificate.read_bytes()))
        else:
            files.key.write_bytes(b"" if damage == "empty" else b"-----BEGIN PRIVATE KEY-----\n")
        stage.proxy.files_may_have_changed()
        await stage.until(lambda: reloads(stage, "refused") == 1, "a refusal")
        await (await tls_client(stage)).connect()
        PemFiles.write(tmp_path, certificate("second"))
        await stage.until(lambda: reloads(stage, "applied") == 1, "the new files")
        await (await tls_client(stage, client_context("second"))).connect()


async def test_an_error_that_nobody_foresaw_leaves_the_old_certificate_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = PemFiles.write(tmp_path)
    async with staged(**files.server_keys) as stage:
        with monkeypatch.context() as changed:
            changed.setattr(contexts, "load", lambda *_: 1 // 0)
            PemFiles.write(tmp_path, certificate("second"))
            stage.proxy.files_may_have_changed()
            await stage.until(lambda: reloads(stage, "refused") == 1, "a refusal")
            await (await tls_client(stage)).connect()
        await stage.until(lambda: reloads(stage, "applied") == 1, "the new files")
        stage.expected_internal_errors = {"tls_files": 1}


async def test_files_are_looked_at_without_being_asked(tmp_path: Path) -> None:
    files = PemFiles.write(tmp_path)
    async with staged(**files.server_keys, tlsCertRefreshCheckDurationSec=1) as stage:
        PemFiles.write(tmp_path, certificate("second"))
        await stage.until(lambda: reloads(stage, "applied") == 1, "the new files")
        await (await tls_client(stage, client_context("second"))).connect()


async def test_a_broker_with_a_new_authority_is_reached_once_it_is_trusted(tmp_path: Path) -> None:
    files = PemFiles.write(tmp_path)
    topic = "persistent://demo/ns-00/topic"
    async with staged(broker_tls=server_context(certificate("second")), **files.broker_keys) as stage:
        client = await stage.connected()
        assert (await client.lookup(topic)).message
        PemFiles.write(tmp_path, trusted="second")
        stage.proxy.files_may_have_changed()
        await stage.until(lambda: reloads(stage, "applied") == 1, "the new files")
        assert not (await client.lookup(topic)).message
