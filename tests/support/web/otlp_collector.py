"""Own a stand-in for an OpenTelemetry collector: OTLP over HTTP on 127.0.0.1, parsed with its own protobuf.

Rule: it takes what is sent, answers with the status that the test says, or with nothing at all, and knows no proxy.
"""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics

from tests.support.patience import in_time


class Collector:
    """What arrived, oldest first."""

    def __init__(self) -> None:
        self.status = 200
        self.answering = asyncio.Event()
        self.answering.set()
        self.headers: list[dict[str, str]] = []
        self._arrived: asyncio.Queue[ResourceMetrics] = asyncio.Queue()
        self.endpoint = ""

    async def next(self) -> ResourceMetrics:
        """Wait for an export."""
        async with in_time():
            return await self._arrived.get()

    @property
    def waiting(self) -> int:
        """Count exports that nobody has taken yet."""
        return self._arrived.qsize()

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip" and body.startswith(b"\x1f\x8b"):
            body = gzip.decompress(body)
        self.headers.append(dict(request.headers))
        (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
        self._arrived.put_nowait(resource)
        await self.answering.wait()
        return web.Response(status=self.status)


def metrics_of(export: ResourceMetrics) -> dict[str, Metric]:
    """Give the metrics of an export by name."""
    (scope,) = export.scope_metrics
    return {metric.name: metric for metric in scope.metrics}


def attributes_of(export: ResourceMetrics) -> dict[str, str]:
    """Give who sent it."""
    return {attribute.key: attribute.value.string_value for attribute in export.resource.attributes}


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    """Listen on a free port."""
    own = Collector()
    application = web.Application(client_max_size=16 * 1024 * 1024)
    application.router.add_post("/v1/metrics", own.take)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        own.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield own
    finally:
        own.answering.set()
        await runner.cleanup()
