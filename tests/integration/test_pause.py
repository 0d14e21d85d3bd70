"""A pause of accepting: who is turned away and how, who notices nothing, and who learns of it."""

import asyncio
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ServerError
from proxy.cli.main import main
from proxy.core.log import open_log
from proxy.core.public_causes import PAUSED_TEXT
from tests.support.auth.credentials import refused
from tests.support.auth.tls import PemFiles
from tests.support.clients.async_client import AsyncClient, connect_frame
from tests.support.proxies import proxy_under_test
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import TOPIC, Stage, namespace, staged
from tests.support.web.admin_api import ask
from tests.support.web.web_pages import get

SOCKET = "control.sock"


async def pause(directory: Path, **body: object) -> Any:
    answered = await ask(directory / SOCKET, "POST", "/v1/pause", body or None)
    assert answered.status == 200
    return answered.document


async def resume(directory: Path) -> Any:
    return (await ask(directory / SOCKET, "POST", "/v1/resume")).document


async def ready(stage: Stage) -> tuple[int, str]:
    page = await get(stage.proxy.web_port, "/readyz?verbose")
    return page.status, page.text


async def test_new_clients_are_told_to_come_again_and_those_who_are_there_notice_nothing(tmp_path: Path) -> None:
    async with staged(controlSocketPath=tmp_path / SOCKET) as stage:
        lookup, relayed = await stage.connected(), await stage.relayed()
        assert await pause(tmp_path) == {"accepting": False, "seconds_left": None, "connections": 2}
        for _ in range(3):
            newcomer = await stage.client()
            await newcomer.send(connect_frame())
            error = await refused(newcomer)
            assert (error.error, error.message) == (ServerError.ServiceNotReady, PAUSED_TEXT)
        assert stage.caused("paused") == 3
        # The counter of upstream is about limits.
        assert counted(stage.proxy.counters, "rejected_connections") == stage.caused("connection_limit") == 0
        await lookup.lookup(TOPIC)
        assert len((await lookup.topics(namespace(0))).topics)
        await relayed.ping()
        assert await resume(tmp_path) == {"accepting": True, "seconds_left": None, "connections": 2}
        await (await stage.connected()).ping()


async def test_readiness_metric_and_top_say_so_and_who_paused_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = BytesIO()
    monkeypatch.setattr(proxy_under_test, "_log", lambda: open_log("info", "json", log))
    async with staged(controlSocketPath=tmp_path / SOCKET) as stage:
        assert (await ready(stage))[0] == 200
        await pause(tmp_path, seconds=600)
        status, text = await ready(stage)
        assert (status, "paused by an operator (pulsar-proxy admin resume)" in text) == (503, True)
        # Nobody should restart a proxy because it is paused.
        assert (await get(stage.proxy.web_port, "/healthz")).status == 200
        metrics = (await get(stage.proxy.web_port, "/metrics")).text
        assert 'pulsar_proxy_accepting_paused{cluster="test"} 1.0' in metrics
        top = (await ask(tmp_path / SOCKET, "GET", "/v1/top")).document
        assert (top["proxy"]["state"], top["proxy"]["accepting"]) == ("serving", False)
        await resume(tmp_path)
        assert (await ready(stage))[0] == 200
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    changes = [line for line in lines if line["event"] == "admin change"]
    assert [(line["action"], line.get("seconds")) for line in changes] == [("pause", 600), ("resume", None)]
    assert all(line["who"].startswith("uid ") for line in changes)


async def test_a_pause_for_a_while_ends_by_itself(tmp_path: Path) -> None:
    async with staged(controlSocketPath=tmp_path / SOCKET) as stage:
        document = await pause(tmp_path, seconds=0.2)
        assert 0 < document["seconds_left"] < 0.3
        await stage.until(lambda: not stage.proxy.sessions.accepting.paused, "the end of the pause")
        await (await stage.connected()).ping()


async def test_a_full_proxy_that_is_paused_ends_nobody_for_a_newcomer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from proxy.clients import crowds

    monkeypatch.setattr(crowds, "CONNECT_SECONDS", 0.0)
    monkeypatch.setattr(crowds, "IDLE_SECONDS", 0.0)
    async with staged(controlSocketPath=tmp_path / SOCKET, maxConcurrentInboundConnections=5) as stage:
        for _ in range(5):
            await stage.connected()
        await pause(tmp_path)
        newcomer = await stage.client(source="127.0.0.2")
        await newcomer.send(connect_frame())
        assert (await refused(newcomer)).message == PAUSED_TEXT
        assert len(stage.proxy.sessions) == 5


async def test_a_client_with_tls_is_closed_and_counted(tmp_path: Path) -> None:
    keys: dict[str, Any] = PemFiles.write(tmp_path / "tls").server_keys
    async with staged(controlSocketPath=tmp_path / SOCKET, **keys) as stage:
        await pause(tmp_path)
        client = await AsyncClient.open(stage.proxy.tls_port)
        assert await client.rest() == b""
        client.close()
        assert stage.caused("paused") == 1


async def test_the_commands_print_what_is_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--socket", str(tmp_path / SOCKET)]
    async with staged(controlSocketPath=tmp_path / SOCKET) as stage:
        assert await asyncio.to_thread(main, ["admin", "pause", "--for", "10m", *where]) == 0
        assert capsys.readouterr().out.startswith("paused for ")
        assert stage.proxy.sessions.accepting.paused
        assert await asyncio.to_thread(main, ["admin", "pause", *where]) == 0
        assert capsys.readouterr().out == "paused until resume: 0 connections\n"
        assert await asyncio.to_thread(main, ["admin", "resume", *where]) == 0
        assert capsys.readouterr().out == "accepting: 0 connections\n"
        # A drain of a proxy that `serve` does not run cannot be undone either.
        assert await asyncio.to_thread(main, ["admin", "undrain", *where]) == 1
