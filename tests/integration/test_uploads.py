"""Uploads over HTTP that drip, stop or vanish: the memory, the tasks and the sockets that they may keep."""

import asyncio
import os
from typing import Final

import pytest
from aiohttp import web

from tests.support.clients.async_client import AsyncClient
from tests.support.patience import patient_millis
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.proxy_under_test import MIB, namespace
from tests.support.web.fake_web_broker import fake_web_broker, redirect_to, swallowed
from tests.support.web.web_stage import ADMIN, WebStage, web_staged
from tests.unit.limiter.harness import start

DIRECT: Final = "maxTopicListInFlightDirectMemSize{}"
# Whoever waits for direct memory has to get it, long before this.
IMPATIENT: Final = {DIRECT.format("PermitsAcquireTimeoutMillis"): patient_millis(3000)}
BODY: Final = bytes(85_000)


async def uploading(at: WebStage, announced: int, body: bytes = BODY) -> AsyncClient:
    """Have a client send the beginning of a body."""
    client = await at.stage.client(port=at.stage.proxy.web_port)
    await client.send(
        f"PUT {ADMIN} HTTP/1.1\r\nHost: p\r\nConnection: close\r\nContent-Length: {announced}\r\n\r\n".encode() + body
    )
    return client


@pytest.mark.threat("uploads-drip")
async def test_uploads_that_drip_keep_no_list_from_its_memory() -> None:
    # A tenth of the attack that took all of 100 MB: there 82 uploads of 0.85 MB.
    async with web_staged(**{DIRECT.format("MB"): 10}, **IMPATIENT) as at:
        at.broker.answer = swallowed
        drips = [await uploading(at, 1_000_000, bytes(850_000)) for _ in range(8)]
        sent = 8 * 850_000
        await at.stage.until(
            lambda: counted(at.stage.proxy.counters, "http_bytes", "to_broker") == sent,
            "all bytes that came at the broker",
        )
        assert 0 < at.stage.direct.held <= 10 * MIB // 4
        victims = [await at.stage.connected() for _ in range(3)]
        for number, victim in enumerate(victims):
            assert len((await victim.topics(namespace(number))).topics) == 7_000
        assert counted(at.stage.proxy.counters, "lists_answers", "refused_direct") == 0
        assert at.stage.direct.statistics().timed_out == 0
        for drip in drips:
            await drip.send(bytes(150_000))
            assert (await drip.receive(12)) == b"HTTP/1.1 204"


async def test_a_copy_given_up_while_it_is_sent_again_leaves_the_redirect_to_the_client() -> None:
    reading = asyncio.Event()

    async def stalled(request: web.BaseRequest) -> web.StreamResponse:
        await reading.wait()
        return await swallowed(request)

    async with (
        fake_web_broker(stalled) as other,
        web_staged(brokerWebServiceAllowedTargetPorts=other.port, **{DIRECT.format("MB"): 40}) as at,
    ):
        at.broker.answer = redirect_to(f"{other.url}/owner")
        client = await uploading(at, 4_000_000, bytes(4_000_000))
        await at.stage.until(lambda: other.asked and at.stage.direct.held, "the second broker, which reads nothing yet")
        taken = await at.stage.direct.acquire(at.stage.direct.available)
        waiting = await start(at.stage.direct.acquire(1))
        await at.stage.until(lambda: counted(at.stage.proxy.counters, "http_copies_dropped"), "the end of the copy")
        reading.set()
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 307 ")
        assert f"Location: {other.url}/owner\r\n".encode() in answer
        taken.release()
        (await waiting).release()


@pytest.mark.threat("uploads-broken-off")
@pytest.mark.parametrize("framing", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
async def test_aborted_uploads_leave_nothing_behind(framing: str) -> None:
    # A tenth of the attack that leaked permits until none was left: a few of each hundred uploads lost theirs.
    async with web_staged(httpInputMaxReplayBufferSize=MIB) as at:
        at.broker.answer = swallowed
        head = f"POST {ADMIN} HTTP/1.1\r\nHost: p\r\n{framing}\r\n\r\n".encode()
        body = (b"%x\r\n" % len(BODY) if "chunked" in framing else b"") + BODY
        tasks, descriptors = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))
        for round_ in range(60):
            clients = [await AsyncClient.open(at.stage.proxy.web_port) for _ in range(10)]
            for client in clients:
                await client.send(head + body)
            # Each round cuts at another moment: at once, or after some turns of the loop.
            for _ in range(round_ % 20):
                await asyncio.sleep(0)
            for number, client in enumerate(clients):
                if (number + round_) % 3:
                    client.reset()
                else:
                    client.close()
        await at.stage.until(
            lambda: not counted(at.stage.proxy.counters, "http_requests_in_work"), "the end of all uploads"
        )
        await at.stage.until(lambda: at.stage.direct.held == 0, "no permit held")
        await at.stage.until(lambda: len(asyncio.all_tasks()) <= tasks, "no task left")
        await at.stage.until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors, "no socket left")
        assert counted_by(at.stage.proxy.counters, "internal_errors") == {}
