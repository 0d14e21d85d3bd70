"""The reload itself: all or nothing, one at a time, never in the way, and by a real SIGHUP."""

import asyncio
import io
import os
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from protocol.command_type import CommandType
from proxy.app import reload
from proxy.app.lifecycle import Phase
from proxy.app.memory.budget import worst_case
from proxy.app.proxy import Proxy
from proxy.app.reload import Reloader, apply
from proxy.config.config import Config
from proxy.core.log import open_log
from proxy.core.log_level import LogLevels
from tests.support.clients.async_client import Closed, eventually
from tests.support.log_lines import LogLines
from tests.support.patience import in_time, patient_clocks
from tests.support.proxies.counted import counted_by
from tests.support.proxies.proxy_under_test import Stage, config_for, namespace, staged
from tests.support.proxies.running_proxy import Running, proxy_and_broker
from tests.support.web.web_pages import scrape

LISTS: Final = CommandType.GET_TOPICS_OF_NAMESPACE


class Sources:
    """What a reload finds: a configuration or an exception, and a gate in front of it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        # Clocks that were scaled again would be changes of their own.
        self._clocks = {key.name: text for key, text, _ in stage.proxy.config.items() if key.name in patient_clocks()}
        self.keys: dict[str, object] = {}
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.reads = 0

    def __call__(self) -> Config:
        self.reads += 1
        assert self.gate.wait(20)
        if self.error is not None:
            raise self.error
        found = self._stage.proxy.config
        keys = {"brokerServiceURLTLS": found.broker_service_url_tls, **self._clocks, **self.keys}
        return config_for(found.broker_service_url, **keys)


class Reloading(NamedTuple):
    stage: Stage
    sources: Sources
    reloader: Reloader
    log: LogLines

    def results(self) -> dict[str, int]:
        return {name: count for name, count in counted_by(self.stage.proxy.counters, "config_reloads").items() if count}


@asynccontextmanager
async def reloading() -> AsyncIterator[Reloading]:
    async with staged() as stage:
        log, sources = LogLines(), Sources(stage)
        reloader = Reloader(stage.proxy, sources, log.log)
        yield Reloading(stage, sources, reloader, log)
        sources.gate.set()
        await reloader.close()


async def test_who_asks_for_a_report_gets_that_of_a_reload_that_began_afterwards() -> None:
    async with reloading() as running, asyncio.TaskGroup() as asking:
        running.sources.gate.clear()
        running.sources.keys = {"maxConcurrentLookupRequests": 7}
        first = asking.create_task(running.reloader.reload())
        await running.stage.until(lambda: running.sources.reads == 1, "a reload under way")
        second = asking.create_task(running.reloader.reload())
        third = asking.create_task(running.reloader.reload())
        await asyncio.sleep(0)
        running.sources.keys = {"maxConcurrentLookupRequests": 7, "tcpUserTimeoutMillis": 9}
        running.sources.gate.set()
        assert [change.key for change in (await first).changed] == ["maxConcurrentLookupRequests"]
        report = await second
        assert (report.result, report.changed) == ("applied", ())
        assert [(each.key, each.old, each.new) for each in report.needs_restart] == [("tcpUserTimeoutMillis", "0", "9")]
        assert await third is report
        assert running.sources.reads == 2


async def test_clients_are_served_while_the_sources_hang_and_the_reload_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reload, "READ_SECONDS", 0.1)
    async with reloading() as running:
        running.sources.gate.clear()
        running.reloader.ask()
        client = await running.stage.connected()
        await client.topics(namespace(0))
        await running.stage.until(lambda: running.results() == {"refused": 1}, "a reload given up")
        assert "not read within" in running.log.of(reload.REFUSED)[0]["detail"]
        monkeypatch.setattr(reload, "READ_SECONDS", 20.0)
        running.sources.gate.set()
        await running.reloader.reload()
        assert running.results() == {"refused": 1, "applied": 1}


async def test_a_reload_that_crashes_is_counted_and_the_next_one_works() -> None:
    async with reloading() as running:
        running.sources.error = RuntimeError("no")
        await running.reloader.reload()
        assert running.results() == {"refused": 1}
        running.sources.error = None
        await running.reloader.reload()
        assert running.results() == {"refused": 1, "applied": 1}
        running.stage.expected_internal_errors = {"reload": 1}


async def test_a_part_that_fails_keeps_no_other_from_its_change(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no")

    async with staged() as stage:
        monkeypatch.setattr(LogLevels, "configure", broken)
        newer = stage.proxy.config.replace({"logLevel": "debug", "maxConcurrentLookupRequests": "7"})
        apply(stage.proxy, newer, open_log("error", "json", io.BytesIO()))
        assert stage.lookups.limit == 7
        stage.expected_internal_errors = {"reload": 1}


async def test_what_changes_while_the_proxy_starts_is_in_force_afterwards() -> None:
    log = open_log("error", "json", io.BytesIO())
    proxy = Proxy(config_for("pulsar://127.0.0.1:1"), log)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(proxy.start())
            # Until the ports are open, and the start waits for a thread.
            await asyncio.sleep(0)
            assert proxy.port
            apply(proxy, proxy.config.replace({"overloadThrottleEnabled": "true", "proxyLogLevel": "2"}), log)
        metrics = await scrape(proxy.web_port)
        assert metrics("overload_state", state="normal") == 1
        assert [*proxy.budget.lines] == [*worst_case(proxy.config)]
    finally:
        await proxy.stop()


@pytest.mark.parametrize("moment", ["before", "during"])
async def test_a_proxy_that_stops_ignores_a_reload(moment: str) -> None:
    async with reloading() as running:
        running.sources.keys = {"maxConcurrentLookupRequests": 7}
        running.sources.gate.clear()
        if moment == "during":
            running.reloader.ask()
            await running.stage.until(lambda: running.sources.reads == 1, "a read")
        running.stage.proxy.enter(Phase.LEAVING, ready=True)
        if moment == "before":
            running.reloader.ask()
        running.sources.gate.set()
        await running.stage.until(lambda: running.results() == {"ignored": 1}, "the end of the reload")
        assert running.stage.lookups.limit == 50_000


# --- a proxy of its own ---------------------------------------------------------------------------


def set_keys(proxy: Running, **keys: object) -> None:
    """Write `keys` behind what is in the file: the last line of a key wins."""
    with proxy.config.open("a") as file:
        file.writelines(f"{key}={value}\n" for key, value in keys.items())


async def hang_up(proxy: Running, event: str) -> list[dict[str, Any]]:
    """Send SIGHUP, wait for one more line of `event`, and give all of them."""
    before = len(proxy.lines(event))
    os.kill(proxy.child.pid, signal.SIGHUP)
    await eventually(lambda: len(proxy.lines(event)) > before, event)
    return proxy.lines(event)


async def test_sighup_changes_a_running_proxy_and_a_wrong_file_does_not(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path) as (proxy, _):
        client = await proxy.connected()
        set_keys(proxy, maxTopicListInFlightHeapMemSizeMB=7, webServicePort=1)
        await hang_up(proxy, "configuration reloaded")
        metrics = (await proxy.get("/metrics")).decode()
        assert 'topic_list_heap_memory_limit_bytes{cluster="test"} 7.340032e+06' in metrics
        assert 'config_reloads_total{cluster="test",result="applied"} 1.0' in metrics
        assert 'config_reload_success{cluster="test"} 1.0' in metrics
        assert [line["key"] for line in proxy.lines("a change needs a restart")] == ["webServicePort"]
        (applied_at,) = re.findall(r"config_last_success_timestamp_seconds\{.*", metrics)
        set_keys(proxy, maxTopicListInFlightHeapMemSizeMB=9, logLevel="loud", tcpUserTimeoutMillis=-1)
        await hang_up(proxy, reload.REFUSED)
        last = len(proxy.config.read_text().splitlines())
        told = [
            (fault["file"], fault["line"], fault["key"], fault["got"]) for fault in proxy.lines("configuration fault")
        ]
        file = str(proxy.config)
        assert told == [(file, last - 1, "logLevel", "'loud'"), (file, last, "tcpUserTimeoutMillis", "'-1'")]
        metrics = (await proxy.get("/metrics")).decode()
        assert 'topic_list_heap_memory_limit_bytes{cluster="test"} 7.340032e+06' in metrics
        assert 'config_reloads_total{cluster="test",result="refused"} 1.0' in metrics
        assert 'config_reload_success{cluster="test"} 0.0' in metrics
        assert applied_at in metrics
        assert len((await client.topics("demo/ns-0")).topics) == 100


async def test_a_storm_of_sighups_and_one_in_the_drain_harm_nobody(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path) as (proxy, broker):
        client = await proxy.connected()
        for number in range(50):
            set_keys(proxy, maxConcurrentLookupRequests=100 + number)
            os.kill(proxy.child.pid, signal.SIGHUP)
        await client.topics("demo/ns-0")
        await eventually(lambda: any(line["new"] == "149" for line in proxy.lines("configuration changed")), "the last")
        gate = broker.script.hold(LISTS)
        request = asyncio.gather(client.topics("demo/ns-0"))
        async with in_time():
            await broker.record.seen(LISTS, 2)
        await proxy.draining()
        await hang_up(proxy, "reload ignored: the proxy is stopping")
        gate.set()
        assert len((await request)[0].topics) == 100
        assert await proxy.exit_code() == 0
        with pytest.raises((Closed, ConnectionError)):
            await client.command()


async def test_a_proxy_started_in_a_terminal_leaves_with_it(tmp_path: Path) -> None:
    master, slave = os.openpty()
    config = tmp_path / "proxy.conf"
    keys = {
        "servicePort": 0,
        "webServicePort": 0,
        "brokerServiceURL": "pulsar://127.0.0.1:1",
        "controlSocketPath": "none",
        "shutdownPreDrainMillis": 3_600_000,
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    command = [sys.executable, "-m", "proxy", "serve", "--config", str(config)]
    process = await asyncio.create_subprocess_exec(*command, stderr=slave, stdin=slave, start_new_session=True)
    os.close(slave)
    try:
        lines = b""
        async with in_time():
            while b"listening for http" not in lines:
                lines += await asyncio.to_thread(os.read, master, 4096)
            # Its terminal, but no controlling one: the signal that the kernel would send comes from here.
            process.send_signal(signal.SIGHUP)
            while b"configuration reloaded" not in lines:
                lines += await asyncio.to_thread(os.read, master, 4096)
            os.close(master)
            process.send_signal(signal.SIGHUP)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
