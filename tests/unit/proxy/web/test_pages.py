import asyncio
import math
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.core.errors import DisconnectCause
from proxy.web import server as web_server
from proxy.web.http.documents import refusal
from proxy.web.ui.minutes import KEPT, Minutes
from proxy.web.ui.page import MOST_VIEWS, _SharedDocument
from tests.support.clients.async_client import AsyncClient
from tests.support.proxies.counted import counted
from tests.support.web.web_parts import config, running

ROOT = Path(__file__).resolve().parents[4]


async def test_readiness_follows_the_proxy_and_health_does_not() -> None:
    async with running() as server:
        ready = await server.get("/readyz")
        assert (ready.status, ready.headers["server"]) == (200, "pulsar-proxy")
        server.readiness.drains(True)
        assert (await server.get("/readyz"))[::2] == (503, "draining\n")
        for page in ("/status.html", "/readyz"):
            asked = await server.get(page, "OPTIONS")
            assert (asked.status, asked.text, asked.headers["allow"]) == (503, "", "GET, HEAD, OPTIONS")
        server.readiness.drains(False)
        assert (await server.get("/readyz")).status == 200
    async with running(ready=False) as server:
        assert (await server.get("/readyz"))[::2] == (503, "not listening yet\n")
        assert (await server.get("/healthz"))[::2] == (200, "OK\n")


@pytest.mark.threat("pages-for-anybody")
def test_documents_are_for_nobody_before_anybody_can_be_recognised() -> None:
    refused = refusal(config(authenticationEnabled="true"), None)
    assert refused is not None
    assert refused.status == 401


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: %s\r\n" % (n, b"y" * 200) for n in range(100)), 431),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X%d: %s\r\n" % (n, b"y" * 200) for n in range(60)) + b"\r\n",
            431,
        ),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % n for n in range(200)) + b"\r\n", 400),
        (b"\x00\x00\x00\x10\x00\x00\x00\x0c\x08\x12\x92\x01\x00\r\n\r\n", 400),
    ],
)
async def test_a_request_too_large_or_not_http_is_refused_and_the_connection_ends(
    request_head: bytes, status: int
) -> None:
    async with running() as server:
        assert (await server.raw(request_head)).split()[1] == str(status).encode()
        assert (await server.get("/healthz")).status == 200


@pytest.mark.parametrize("first_bytes", [b"", b"GET /metr"])
async def test_a_peer_that_does_not_finish_its_request_is_closed_and_counted_as_idle(
    first_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_server, "IDLE_SECONDS", 0.01)
    async with running() as server:
        assert server.port.port is not None
        client = await AsyncClient.open(server.port.port)
        # What comes behind the end is answered with a reset.
        await client.send(first_bytes)
        assert await client.rest() == b""
        client.close()
        assert counted(server.counters, "disconnects", DisconnectCause.IDLE) == 1


async def test_closing_ends_idle_connections_too() -> None:
    async with running() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"OK\n")
        await server.port.close()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port.port)


def test_importing_the_module_does_not_load_aiohttp() -> None:
    program = "import sys, proxy.web.port; print([m for m in ('aiohttp', 'prometheus_client') if m in sys.modules])"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert finished.stdout == "[]\n"


# --- numbers of the page for people ---------------------------------------------------------------


def test_counters_become_rates_and_other_numbers_stay() -> None:
    counts, gauges = {"lists": 0.0}, {"waiting": 7.0, "wait": math.nan}
    minutes = Minutes(lambda: dict(counts), lambda: gauges)
    minutes.tick(10.0)
    assert minutes.shown() == {}
    counts["lists"] = 30.0
    for _ in range(2):
        minutes.tick(12.0)
    assert minutes.shown() == {"lists": [15.0], "waiting": [7.0], "wait": [0.0]}


def test_only_the_last_samples_are_kept() -> None:
    seen = [0.0]
    minutes = Minutes(lambda: {"lists": seen[0]}, dict)
    for second in range(3 * KEPT):
        seen[0] += second
        minutes.tick(float(second))
    assert minutes.shown()["lists"] == [float(second) for second in range(2 * KEPT, 3 * KEPT)]


def test_viewers_of_a_second_share_one_document_and_are_bounded() -> None:
    made: list[int] = []
    document = _SharedDocument(lambda: {"made": made.append(1) or len(made)})  # type: ignore[func-returns-value]
    found = [document.get(5.0 + view / 1000) for view in range(MOST_VIEWS + 1)]
    assert found == [b'{"made":1}'] * MOST_VIEWS + [None]
    assert document.get(6.5) == b'{"made":2}'
