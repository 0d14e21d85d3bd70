"""openssl s_client on the TLS port: whatever its options make of a client, it is served, or is told why not."""

import asyncio
import re
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from protocol.commands import PONG_FRAME
from tests.support.auth.tls import HOST, PemFiles, authority
from tests.support.clients.async_client import PING, connect_frame
from tests.support.patience import in_time
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.tools import tool

versions = pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])


class Client:
    """An s_client that runs, and what it has said: its own words, and what it was sent."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self.stdin, self._stdout = process, process.stdin, process.stdout
        self.said = b""

    async def until(self, word: bytes, count: int = 1) -> None:
        """Wait until it has said a word so often."""
        async with in_time():
            while self.said.count(word) < count:
                piece = await self._stdout.read(65536)
                self.said += piece
                assert piece, self.said.decode(errors="replace")

    async def ping(self) -> None:
        """Wait for an answer that only this PING has."""
        self.stdin.write(PING)
        await self.until(PONG_FRAME, self.said.count(PONG_FRAME) + 1)

    async def connect(self) -> None:
        self.stdin.write(connect_frame())
        await self.until(b"Pulsar Server")
        await self.ping()

    async def end(self) -> str:
        """Say that no more comes, and return all that it has said when it has ended."""
        self.stdin.close()
        async with in_time():
            self.said += await self._stdout.read()
            await self.process.wait()
        return self.said.decode(errors="replace")


@asynccontextmanager
async def s_client(stage: Stage, files: PemFiles, *options: object) -> AsyncIterator[Client]:
    """Run an s_client that checks the proxy's certificate and names each message of a handshake."""
    words = ["-connect", f"{HOST}:{stage.proxy.tls_port}", "-CAfile", files.trust, "-verify_return_error", "-msg"]
    command = [tool("openssl"), "s_client", *map(str, [*words, *options])]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=STDOUT)
    try:
        yield Client(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def served(stage: Stage, files: PemFiles, *options: object) -> str:
    """Return what a client says that connects, is served, and leaves."""
    async with s_client(stage, files, *options) as client:
        await client.connect()
        return await client.end()


async def refused(stage: Stage, files: PemFiles, *options: object) -> str:
    """Return what a client says that fails."""
    async with s_client(stage, files, *options) as client:
        said = await client.end()
        assert client.process.returncode == 1
        return said


def demanding(files: PemFiles, tmp_path: Path) -> tuple[dict[str, Any], tuple[object, ...]]:
    """Give the keys of a port that demands certificates, and the options that show one."""
    own = PemFiles.write(tmp_path / "own", authority().issue_cert("somebody"))
    keys = {"tlsTrustCertsFilePath": files.trust, "tlsRequireTrustedClientCertOnConnect": "true"}
    return files.server_keys | keys, ("-cert", own.certificate, "-key", own.key)


@versions
async def test_a_client_is_served_whatever_it_offers_beside(files: PemFiles, version: str) -> None:
    async with staged(**files.server_keys) as stage:
        for offer in (
            "-noservername", "-servername elsewhere.example", "-servername localhost -alpn h2,http/1.1", "-status",
            "-maxfraglen 512", "-no_ticket", "-legacy_renegotiation",
        ):  # fmt: skip
            said = await served(stage, files, version, *offer.split())
            assert f"New, TLSv{version[-3:].replace('_', '.')}," in said, offer
            assert "No ALPN negotiated" in said, offer


@pytest.mark.parametrize("group", ["X25519", "P-256", "P-384"])
async def test_a_client_that_guesses_a_group_that_is_not_spoken_is_asked_again(files: PemFiles, group: str) -> None:
    async with staged(**files.server_keys) as stage:
        said = await served(stage, files, "-tls1_3", "-groups", f"P-521:{group}")
        assert (said.count("ClientHello"), said.count("ServerHello")) == (2, 2)


@pytest.mark.parametrize("kind", trustme.KeyType)
async def test_each_suite_serves(tmp_path: Path, kind: trustme.KeyType) -> None:
    files = PemFiles.write(tmp_path, authority().issue_cert(HOST, key_type=kind))
    old = [f"ECDHE-{kind.name}-{end}" for end in ("AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305")]
    new = [f"TLS_{name}" for name in ("AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256")]
    async with staged(**files.server_keys) as stage:
        for suite in old:
            said = await served(stage, files, "-tls1_2", "-cipher", suite)
            assert f"New, TLSv1.2, Cipher is {suite}" in said
        for suite in new:
            said = await served(stage, files, "-tls1_3", "-ciphersuites", suite)
            assert f"New, TLSv1.3, Cipher is {suite}" in said


@pytest.mark.threat("old-tls-version")
@pytest.mark.parametrize("kind", trustme.KeyType)
async def test_what_is_not_spoken_is_refused(tmp_path: Path, kind: trustme.KeyType) -> None:
    files = PemFiles.write(tmp_path, authority().issue_cert(HOST, key_type=kind))
    # CBC, exchange of keys by RSA, DHE, no exchange at all; versions and groups of old.
    suites = (f"ECDHE-{kind.name}-AES128-SHA256", f"ECDHE-{kind.name}-AES256-SHA", "AES256-GCM-SHA384", "DHE", "ADH")
    offers = [f"-tls1_2 -cipher {suite}:@SECLEVEL=0" for suite in suites]
    offers += [f"{old} -cipher DEFAULT:@SECLEVEL=0" for old in ("-tls1", "-tls1_1")] + ["-tls1_3 -groups P-521"]
    async with staged(**files.server_keys) as stage:
        for offer in offers:
            said = await refused(stage, files, *offer.split())
            assert "alert handshake failure" in said or "alert protocol version" in said, offer
        assert counted(stage.proxy.counters, "tls_handshakes", "client", "version_or_cipher") == len(offers)
        assert "inappropriate fallback" in await refused(stage, files, "-tls1_2", "-fallback_scsv"), "forced down"


@versions
@pytest.mark.threat("session-outlives-certificate")
async def test_a_session_is_resumed_only_where_nobody_shows_a_certificate(
    files: PemFiles, tmp_path: Path, version: str
) -> None:
    kept = tmp_path / "session"
    keys, own = demanding(files, tmp_path)
    async with staged(**files.server_keys) as stage:
        await served(stage, files, version, "-sess_out", kept)
        assert "Reused, TLSv1" in await served(stage, files, version, "-sess_in", kept)
    async with staged(**keys) as stage:
        # A session of another port's is none here.
        assert "New, TLSv1" in await served(stage, files, version, *own, "-sess_in", kept)
        kept.unlink()
        await served(stage, files, version, *own, "-sess_out", kept)
        assert not kept.exists(), "nothing to come back with"


async def test_who_asks_for_another_handshake_is_refused_and_harms_nobody(files: PemFiles) -> None:
    async with (
        staged(**files.server_keys) as stage,
        s_client(stage, files) as neighbour,
        s_client(stage, files, "-tls1_2", "-legacy_renegotiation") as client,
    ):
        await neighbour.connect()
        await client.connect()
        client.stdin.write(b"R\n")
        await client.until(b"warning no_renegotiation")
        await client.end()
        await neighbour.ping()


async def test_an_update_of_keys_is_answered_and_data_go_on(files: PemFiles) -> None:
    async with staged(**files.server_keys) as stage, s_client(stage, files, "-tls1_3") as client:
        await client.connect()
        for asks, answers in ((b"K\n", 1), (b"k\n", 1), (b"K\n", 2)):
            sent = client.said.count(b"KEYUPDATE")
            client.stdin.write(asks)
            await client.until(b"KEYUPDATE", sent + 1)
            await client.ping()
            assert client.said.count(b"<<< TLS 1.3, Handshake [length 0005], KeyUpdate") == answers


@versions
@pytest.mark.parametrize("says", [True, False], ids=["close_notify", "cut off"])
async def test_a_client_that_has_left_is_gone_said_or_not(files: PemFiles, version: str, says: bool) -> None:
    async with staged(**files.server_keys) as stage, s_client(stage, files, version) as client:
        await client.connect()
        if says:
            assert "warning close_notify" in await client.end()
        else:
            client.process.kill()
        await stage.until(lambda: stage.caused("client_closed"), "the end of the client")


@versions
async def test_a_client_that_is_shown_out_is_told_that_no_more_comes(files: PemFiles, version: str) -> None:
    async with staged(**files.server_keys) as stage, s_client(stage, files, version) as client:
        await client.connect()
        client.stdin.write(connect_frame())
        async with in_time():
            assert await client.process.wait() == 0
        said = await client.end()
        assert re.search("<<< TLS 1.[23], Alert .*close_notify", said)
