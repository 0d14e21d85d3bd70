"""What a broker answers and no client may get, and what a client must hear although the broker went on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.web.fake_web_broker import raw_web_broker
from tests.support.web.web_stage import ADMIN

FINE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
UPGRADED = b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


@asynccontextmanager
async def answering(answer: bytes, **keys: Any) -> AsyncIterator[tuple[Stage, list[int]]]:
    """Have a proxy whose broker answers with some bytes; gives how many requests each connection to it has brought."""
    requests: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(requests)
        requests.append(0)
        while await reader.readuntil(b"\r\n\r\n"):
            requests[number] += 1
            writer.write(answer)

    async with raw_web_broker(serve) as url, staged(brokerWebServiceURL=url, **keys) as stage:
        yield stage, requests


@pytest.mark.threat("malformed-answer")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 099 Low\r\nContent-Length: 2\r\n\r\nok", "status 99"),
        (UPGRADED, "status 101"),
        (UPGRADED + FINE, "status 101"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "transfer-encoding"),
    ],
)
async def test_an_answer_to_no_request_is_the_broker_s_fault(answer: bytes, reason: str) -> None:
    async with answering(answer) as (stage, requests), aiohttp.ClientSession() as client:
        for _ in range(2):
            async with client.get(f"http://127.0.0.1:{stage.proxy.web_port}{ADMIN}") as found:
                assert (found.status, reason in await found.text()) == (502, True)
        assert requests == [1, 1]


@pytest.mark.threat("body-where-none-belongs")
@pytest.mark.parametrize(("method", "status"), [("DELETE", 204), ("GET", 304), ("HEAD", 200)])
async def test_a_change_that_is_done_is_told_although_a_body_follows(method: str, status: int) -> None:
    answer = b"HTTP/1.1 %d Done\r\nContent-Length: 4\r\n\r\nevil" % status
    async with answering(answer) as (stage, requests), aiohttp.ClientSession() as client:
        for _ in range(2):
            async with client.request(method, f"http://127.0.0.1:{stage.proxy.web_port}{ADMIN}") as found:
                assert (found.status, await found.read()) == (status, b"")
                assert status != 204 or "Content-Length" not in found.headers
        assert requests == [1, 1]


def with_header_of(size: int, fields: int) -> bytes:
    """Return an answer whose header, with status line and empty line, has so many bytes in about so many fields."""
    start = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
    left = size - len(start) - 2
    parts = [left // fields] * (fields - 1)
    lines = [b"X-Pulsar-%02d: %s\r\n" % (at, b"p" * (part - 15)) for at, part in enumerate([*parts, left - sum(parts)])]
    return start + b"".join(lines) + b"\r\nok"


@pytest.mark.threat("endless-answer-header")
@pytest.mark.parametrize(
    ("keys", "size", "status"),
    [
        # The default of the Java proxy 5.0, and of its brokers, which put the properties of a message into headers.
        ({}, 8192, 200),
        ({}, 8193, 502),
        ({}, 64 * 1024, 502),
        ({"httpMaxResponseHeaderSize": 32_768}, 32_768, 200),
        ({"httpMaxResponseHeaderSize": 32_768}, 32_769, 502),
        ({"httpMaxResponseHeaderSize": 1024}, 1025, 502),
        # The key of requests says nothing about answers.
        ({"httpMaxRequestHeaderSize": 32_768}, 8193, 502),
    ],
)
@pytest.mark.parametrize("fields", [1, 40])
async def test_a_broker_s_header_is_as_large_as_its_key_says_and_not_larger(
    keys: dict[str, object], size: int, status: int, fields: int
) -> None:
    lenient = aiohttp.ClientSession(max_line_size=1 << 17, max_field_size=1 << 17)
    async with answering(with_header_of(size, fields), **keys) as (stage, _), lenient as client:
        found = await client.get(f"http://127.0.0.1:{stage.proxy.web_port}{ADMIN}")
        assert (found.status, "httpMaxResponseHeaderSize" in await found.text()) == (status, status == 502)
