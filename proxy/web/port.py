"""The web port: metrics for a scraper, health and readiness for an orchestrator.

Rule: a request here never costs Pulsar traffic more than a few milliseconds, and no peer can hold memory or
connections without bound. aiohttp and prometheus_client are imported by `start_web`, off the loop, because
importing them takes longer than the rest of the start. It knows no Pulsar connection.
"""

import asyncio
import importlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from proxy.web.documents import Document, GuardSettings, RoleOf, add_documents, nobody

if TYPE_CHECKING:
    from aiohttp import web

IDLE_SECONDS = 75.0  # above the usual scrape interval of 60 s; also the time for a request's headers
LONGEST_LINE_BYTES = 8190
MOST_HEADERS = 64
MOST_CONNECTIONS = 256
_SLOW_IMPORTS = ("aiohttp.web", "prometheus_client")
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class WebSettings(GuardSettings, Protocol):
    """The part of the configuration that the web port reads (`proxy.config.Config` has it)."""

    @property
    def bind_address(self) -> str:
        """Address to listen on."""

    @property
    def web_service_port(self) -> int:
        """Port to listen on; 0 takes any free one."""

    @property
    def status_file_path(self) -> str:
        """File that must exist for /status.html, or nothing."""


class Readiness:
    """Whether this proxy should get new clients; set by the server, read by the probes."""

    __slots__ = ("draining", "listening")

    def __init__(self) -> None:
        self.listening = False
        self.draining = False

    @property
    def obstacle(self) -> str | None:
        """Why not, or None when ready."""
        if self.draining:
            return "draining"
        return None if self.listening else "not listening yet"


class WebPort:
    """The running web server."""

    def __init__(self, server: asyncio.Server, runner: "web.AppRunner") -> None:
        self._server = server
        self._runner = runner
        self.port: int = server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and end all its connections, at most two seconds later."""
        self._server.close()
        await self._runner.cleanup()


async def start_web(
    settings: WebSettings,
    render_metrics: Callable[[], bytes],
    readiness: Readiness,
    documents: Sequence[Document] = (),
    role_of: RoleOf = nobody,
) -> WebPort:
    """Listen on `webServicePort`; raises OSError if the port cannot be had.

    `documents` are shown to whom `role_of` a request says that they may be.
    """
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as importer:
        for name in _SLOW_IMPORTS:
            await loop.run_in_executor(importer, importlib.import_module, name)
    runner = _runner(
        settings.status_file_path,
        render_metrics,
        readiness,
        lambda app: add_documents(app, documents, settings, role_of),
    )
    await runner.setup()
    try:
        server = await loop.create_server(
            _bounded(runner.server), settings.bind_address, settings.web_service_port, backlog=128
        )
    except BaseException:
        await runner.cleanup()
        raise
    return WebPort(server, runner)


def _runner(
    status_file: str,
    render_metrics: Callable[[], bytes],
    readiness: Readiness,
    add_more: "Callable[[web.Application], None]",
) -> "web.AppRunner":
    from aiohttp import web

    def reply(text: str, status: int = 200) -> web.Response:
        return web.Response(text=f"{text}\n", status=status)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=render_metrics(), headers={"Content-Type": _METRICS_TYPE})

    async def health(_: web.Request) -> web.Response:
        return reply("OK")

    async def ready(_: web.Request) -> web.Response:
        obstacle = readiness.obstacle
        return reply("OK") if obstacle is None else reply(obstacle, 503)

    async def status(_: web.Request) -> web.Response:
        # Upstream's proxy: 503 while it is not ready, 404 when the file is taken away to drain by hand.
        if readiness.obstacle is not None:
            return reply(readiness.obstacle, 503)
        if not _stands(status_file):
            return reply("statusFilePath: no such file", 404)
        return reply("OK")

    async def hide_versions(_: web.Request, response: web.StreamResponse) -> None:
        response.headers["Server"] = "pulsar-proxy"

    app = web.Application(client_max_size=LONGEST_LINE_BYTES)
    app.on_response_prepare.append(hide_versions)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", health)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/status.html", status)
    add_more(app)
    return web.AppRunner(
        app, access_log=None, handle_signals=False, keepalive_timeout=IDLE_SECONDS, lingering_time=1.0,
        shutdown_timeout=1.0, max_line_size=LONGEST_LINE_BYTES, max_field_size=LONGEST_LINE_BYTES,
        max_headers=MOST_HEADERS, read_bufsize=16_384,
    )  # fmt: skip


def _stands(status_file: str) -> bool:
    return not status_file or os.path.isfile(status_file)


class _Refusal(asyncio.Protocol):
    """End a connection at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _bounded(server: "web.Server | None") -> Callable[[], asyncio.Protocol]:
    assert server is not None  # the runner is set up

    def protocol() -> asyncio.Protocol:
        return server() if len(server.connections) < MOST_CONNECTIONS else _Refusal()

    return protocol
