"""A running proxy whose brokers tell anything of themselves, on both engines: what is not known holds nobody."""

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from proxy.overload.bounds import LARGEST_METRICS_BYTES
from tests.integration.test_direct_mode import greet
from tests.integration.test_overload_joined import LONG, OPENED, SMALL, THRESHOLD, held, joined, passed, released
from tests.support.brokers.raw_broker import raw_broker
from tests.support.patience import patient
from tests.support.proxies.proxy_under_test import staged
from tests.support.web.fake_web_broker import fake_web_broker

pytestmark = pytest.mark.usefixtures("relay_engine")

FULL = json.dumps([{"metrics": {"jvm_heap_used": 95, "jvm_max_memory": 100}}]).encode()
Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def answers(body: bytes = b"", status: int = 200, **headers: str) -> Answer:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(
            body=body, status=status, headers={name.replace("_", "-"): headers[name] for name in headers}
        )

    return answer


async def silent(_: web.BaseRequest) -> web.StreamResponse:
    await asyncio.sleep(patient(60))
    return web.Response()


async def dripping(request: web.BaseRequest) -> web.StreamResponse:
    """Answer with a byte at a time, for ever."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.01)


BAD: dict[str, Answer] = {
    "garbage": answers(b"garbage"),
    "another document": answers(b'{"metrics": 7}'),
    "numbers that are none": answers(b'[{"metrics": {"jvm_heap_used": NaN, "jvm_max_memory": Infinity}}]'),
    "a limit of nothing": answers(b'{"memory": {"usage": 1, "limit": 1e-300}}'),
    "huge": answers(b"[" + b" " * LARGEST_METRICS_BYTES),
    "deep": answers(b"[" * 1_000_000),
    "compressed": answers(gzip.compress(FULL), Content_Encoding="gzip"),
    "an error": answers(status=500),
    "elsewhere": answers(status=307, Location="http://127.0.0.1:1/"),
    "silent": silent,
    "dripping": dripping,
    "forbidden": answers(status=403),
}


@pytest.mark.threat("garbage-load-statistics")
@pytest.mark.parametrize("bad", BAD)
async def test_producers_are_released_while_brokers_tell_nothing_that_can_be_used(
    bad: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.overload.signal_watch.BROKER_SECONDS", 0.02)
    monkeypatch.setattr("proxy.overload.broker_questions.ANSWER_SECONDS", patient(0.2))
    async with fake_web_broker(answers(FULL)) as brokers:
        keys: dict[str, Any] = THRESHOLD | LONG | {"overloadSignals": "brokers", "brokerWebServiceURL": brokers.url}
        async with staged(**keys) as stage, raw_broker(greet) as broker:
            overload = stage.proxy.counters.overload
            pair = await joined(stage, broker, OPENED + SMALL)
            await held(stage)
            await pair.client.send(SMALL)
            brokers.answer = BAD[bad]
            assert await pair.broker.receive(len(SMALL)) == SMALL
            await released(stage)
            # Who has no rights is no failure of the brokers.
            assert (overload.signal_failures["brokers"] > 5) is (bad != "forbidden")
            await passed(pair, SMALL)
            assert overload.threshold.failures == 0
            # And held again for what is known.
            brokers.answer = answers(FULL)
            await held(stage)
            pair.client.reset()
            pair.broker.reset()
            await stage.until(lambda: not len(stage.proxy.sessions), "no session")
