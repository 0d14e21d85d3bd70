"""A proxy that exports its metrics to a collector, over real HTTP."""

import os
import signal
from pathlib import Path

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics

from tests.support.proxies.running_proxy import Running, proxy_and_broker
from tests.support.sockets.ports import free_port
from tests.support.web.otlp_collector import Collector, attributes_of, collector, metrics_of
from tests.support.web.web_pages import scrape


def export_to(endpoint: str, monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
    settings = {
        "OTEL_SDK_DISABLED": "false",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_METRIC_EXPORT_INTERVAL": "100",
        **more,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


def numbers_of(metric: Metric) -> dict[frozenset[tuple[str, str]], float]:
    points = metric.gauge.data_points or metric.sum.data_points
    return {
        frozenset((attribute.key, attribute.value.string_value) for attribute in point.attributes): (
            point.as_double if point.WhichOneof("value") == "as_double" else point.as_int
        )
        for point in points
    }


async def last(own: Collector) -> ResourceMetrics:
    """Give the newest of the exports that have come."""
    export = await own.next()
    while own.waiting:
        export = await own.next()
    return export


async def test_a_collector_hears_who_sends_and_at_last_everything_that_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collector() as own:
        export_to(own.endpoint, monkeypatch, OTEL_EXPORTER_OTLP_HEADERS="tenant=blue")
        async with proxy_and_broker(tmp_path) as (proxy, _):
            await lists_are_served(proxy)
            # The first export loads the exporter; the time at the end is too short for that on a busy machine.
            await own.next()
            page = await scrape(proxy.web_port)
            assert page("memory_budget_part_bytes", owner="metrics_export") > 0
            os.kill(proxy.child.pid, signal.SIGTERM)
            assert await proxy.exit_code() == 0
            export = await last(own)
        assert attributes_of(export)["pulsar.cluster"] == "test"
        assert own.headers[0]["tenant"] == "blue"
        metrics = metrics_of(export)
        answers = numbers_of(metrics["pulsar.proxy.lists_answers"])
        assert answers[frozenset({("outcome", "answered")})] == 1
        assert numbers_of(metrics["pulsar.proxy.active_connections"]) == {frozenset(): 0}


async def lists_are_served(proxy: Running) -> None:
    client = await proxy.connected()
    await client.topics("demo/ns-0")


async def test_a_collector_that_is_away_costs_a_line_and_a_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_to(f"http://127.0.0.1:{free_port()}", monkeypatch, OTEL_EXPORTER_OTLP_TIMEOUT="0.5")
    async with proxy_and_broker(tmp_path) as (proxy, _):
        await lists_are_served(proxy)
        failed: float = 0
        while failed < 3:
            failed = (await scrape(proxy.web_port))("otlp_exports_total", result="failed")
        (line,) = proxy.lines("metrics not exported")
        assert "Failed to export" in line["detail"]
        os.kill(proxy.child.pid, signal.SIGTERM)
        assert await proxy.exit_code() == 0
        # Not one line of the library itself, which writes one for every attempt.
        assert not [line for line in proxy.log.read_text().splitlines() if "opentelemetry" in line]


async def test_a_collector_that_never_answers_holds_up_neither_clients_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collector() as own:
        own.answering.clear()
        export_to(own.endpoint, monkeypatch)
        async with proxy_and_broker(tmp_path) as (proxy, _):
            await own.next()
            await lists_are_served(proxy)
            os.kill(proxy.child.pid, signal.SIGTERM)
            assert await proxy.exit_code() == 0
