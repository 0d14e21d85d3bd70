"""`admin set`: one key of a running proxy changes, for a while or until the next reload, and some keys never do."""

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.app.reload import LiveChanges, apply
from proxy.cli.main import main
from proxy.config.config import Config
from proxy.core.log import open_log
from tests.support.proxies.proxy_under_test import MIB, Stage, staged
from tests.support.web.admin_api import ask

HEAP = "maxTopicListInFlightHeapMemSizeMB"
LIMIT = "maxConcurrentInboundConnections"


@asynccontextmanager
async def changing(tmp_path: Path, **keys: Any) -> AsyncIterator[tuple[Stage, LiveChanges, io.BytesIO]]:
    log = io.BytesIO()
    async with staged(controlSocketPath=tmp_path / "s", **{HEAP: 100, **keys}) as stage:
        changes = LiveChanges(stage.proxy, open_log("info", "json", log))

        def put(name: str, text: str, seconds: float | None) -> Mapping[str, object]:
            change = changes.set(name, text, seconds)
            return {"key": change.key, "old": change.old, "new": change.new, "seconds": seconds}

        stage.proxy.process = cast(Any, SimpleNamespace(set=put))
        try:
            yield stage, changes, log
        finally:
            changes.close()


async def test_a_key_changes_at_once_and_says_so(tmp_path: Path) -> None:
    async with changing(tmp_path) as (stage, _, log):
        answered = await ask(tmp_path / "s", "PUT", "/v1/config", {"key": HEAP, "value": "7"})
        assert (answered.status, answered.document) == (200, {"key": HEAP, "old": "100", "new": "7", "seconds": None})
        assert stage.heap.limit == 7 * MIB
        assert stage.proxy.config.origin(HEAP) == "live"
        assert b'"configuration changed"' in log.getvalue()
        # A reload puts the values of the sources in force.
        apply(stage.proxy, stage.proxy.config.replace({HEAP: "100"}), open_log("error", "json", io.BytesIO()))
        assert stage.heap.limit == 100 * MIB


async def test_a_change_for_a_while_is_taken_back(tmp_path: Path) -> None:
    async with changing(tmp_path) as (stage, changes, log):
        changes.set(LIMIT, "5000", None)
        changes.set(HEAP, "7", 3600)
        # A second change of the same key replaces the first, and its end leads to the value before both.
        changes.set(HEAP, "8", 0.05)
        assert stage.heap.limit == 8 * MIB
        await stage.until(lambda: stage.heap.limit == 100 * MIB, "the value before")
        assert stage.proxy.config.origin(HEAP) == "flag"
        assert stage.proxy.config.max_concurrent_inbound_connections == 5000
        assert b'"a live change has ended"' in log.getvalue()


async def test_the_end_of_a_change_leaves_the_value_of_a_reload(tmp_path: Path) -> None:
    async with changing(tmp_path) as (stage, changes, log):
        original = stage.proxy.config
        changes.set(HEAP, "7", 0.01)
        reloaded = Config.load(None, {}, {**_flags(original), HEAP: "50"})
        apply(stage.proxy, reloaded, open_log("error", "json", io.BytesIO()))
        changes.set(LIMIT, "5000", 0.02)
        await stage.until(lambda: b"a live change has ended" in log.getvalue(), "the end of a later change")
        assert stage.heap.limit == 50 * MIB
        assert log.getvalue().count(b"a live change has ended") == 1


def _flags(config: Config) -> dict[str, str]:
    return {key.name: text for key, text, origin in config.items() if origin == "flag"}


REFUSED = {
    "servicePort": "1",
    "brokerProxyAllowedHostNames": "*",
    "brokerProxyAllowedIPAddresses": "*",
    "brokerProxyAllowedTargetPorts": "*",
    "brokerWebServiceAllowedTargetPorts": "1",
    "webServiceAllowedHosts": "*",
    "webServiceAllowedOrigins": "*",
    "brokerClientAuthenticationParameters": "token:x",
    "tlsCertificateFilePath": "/x",
    "authenticationEnabled": "false",
    "noSuchKey": "1",
    HEAP: "many",
}


@pytest.mark.parametrize("name", REFUSED)
async def test_keys_that_need_the_configuration_are_refused(name: str, tmp_path: Path) -> None:
    async with changing(tmp_path) as (stage, _, _):
        before = stage.proxy.config
        answered = await ask(tmp_path / "s", "PUT", "/v1/config", {"key": name, "value": REFUSED[name]})
        assert answered.status == 400
        assert f"live change: {name}" in answered.document["reason"]
        assert "token:x" not in str(answered.document)
        assert stage.proxy.config is before


async def test_what_waits_for_a_restart_still_waits_after_a_change(tmp_path: Path) -> None:
    async with changing(tmp_path) as (stage, changes, _):
        stage.proxy.core.take(stage.proxy.config, {"servicePort": "7000"})
        changes.set(HEAP, "7", None)
        assert stage.proxy.core.pending == {"servicePort": "7000"}


async def test_the_command_sets_a_key_and_shows_stacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with changing(tmp_path) as (stage, _, _):
        where = ["--socket", str(tmp_path / "s")]
        assert await asyncio.to_thread(main, ["admin", "set", f"{HEAP}=9", "--for", "10m", *where]) == 0
        assert capsys.readouterr().out.startswith(f"{HEAP}: 100 -> 9, for ")
        assert stage.heap.limit == 9 * MIB
        assert await asyncio.to_thread(main, ["admin", "set", "servicePort=1", *where]) == 1
        assert await asyncio.to_thread(main, ["admin", "set", "nothing", *where]) == 2
        capsys.readouterr()
        assert await asyncio.to_thread(main, ["admin", "stacks", *where]) == 0
        assert "thread MainThread" in capsys.readouterr().out
