"""Own a whole proxy with a fake web service behind it and an HTTP client in front of it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from tests.support.patience import in_time
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.web.fake_web_broker import FakeWebBroker, fake_web_broker
from tests.support.web.web_pages import raw

ADMIN: Final = "/admin/v2/clusters"


class Answered(NamedTuple):
    """What came back, whole."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class WebStage:
    """A proxy, a broker's web service behind it, and a client in front of it."""

    stage: Stage
    broker: FakeWebBroker
    client: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.stage.proxy.web_port}"

    async def ask(
        self, path: str = ADMIN, method: str = "GET", client: aiohttp.ClientSession | None = None, **keys: Any
    ) -> Answered:
        """Ask once, for a path as it is, and follow no redirect."""
        url = URL(self.url + path, encoded=True)
        async with in_time(), (client or self.client).request(method, url, allow_redirects=False, **keys) as answer:
            return Answered(answer.status, answer.headers, await answer.read())

    @property
    def waiting(self) -> int:
        """Count the requests that wait for a place."""
        assert self.stage.proxy.web is not None
        return self.stage.proxy.web.waiting

    async def raw(self, request: bytes) -> bytes:
        return await raw(self.stage.proxy.web_port, request)

    async def status_of(self, request: str) -> int:
        return int((await self.raw(request.encode())).split()[1])


@asynccontextmanager
async def web_staged(**keys: Any) -> AsyncIterator[WebStage]:
    """Stage all three; the key `base` is the path in the proxy's URL of the web service."""
    base: str = keys.pop("base", "")
    async with fake_web_broker() as broker, staged(brokerWebServiceURL=broker.url + base, **keys) as stage:
        async with aiohttp.ClientSession(auto_decompress=False) as client:
            yield WebStage(stage, broker, client)
        for raw in stage.clients:
            raw.close()
        await stage.until(lambda: not counted(stage.proxy.counters, "http_requests_in_work"), "no request in work")
