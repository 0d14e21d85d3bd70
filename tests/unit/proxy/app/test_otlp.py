"""The table in OpenTelemetry's words, against what Prometheus gets from the same readings."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, ResourceMetrics
from opentelemetry.sdk.metrics.export import MetricExportResult

from proxy.app.metrics.otel_settings import Temporality
from proxy.app.metrics.otlp import OtlpSender
from proxy.app.metrics.prometheus import ProxyMetrics
from proxy.app.metrics.reading import Reading, take
from proxy.app.metrics.table import INSTRUMENTS
from proxy.clients.sessions import ACCEPTED
from proxy.core.instrument import Instrument
from proxy.telemetry.durations import BOUNDS_SECONDS
from proxy.telemetry.events.log import EVENTS
from tests.support.each import each
from tests.support.proxies.counted import counted
from tests.support.proxies.metric_sources import CREATED, full_sources, known_process
from tests.support.web.web_pages import Scrape

AT = 1_800_000_000_000_000_000
CUMULATIVE, DELTA = (
    AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE,
    AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA,
)
rows = each("instrument", INSTRUMENTS, ids=lambda instrument: instrument.name)


class Scene:
    """Own books, told to both."""

    def __init__(self, directory: Path) -> None:
        self.sources = full_sources(known_process(directory))
        self.readings = take(INSTRUMENTS, self.sources.counters)
        page = ProxyMetrics("blue", self.sources.counters).render().decode()
        self.samples = defaultdict[str, dict[frozenset[tuple[str, str]], float]](dict)
        for (name, labels), value in Scrape(page, "blue").samples.items():
            self.samples[name][labels] = value
        self.whole = encode(sender("cumulative"), self.readings)
        self.metrics = {metric.name: metric for metric in self.whole.scope_metrics[0].metrics}


def sender(temporality: Temporality) -> OtlpSender:
    return OtlpSender("blue", round(CREATED * 1e9), temporality)


def encode(by: OtlpSender, readings: list[Reading]) -> ResourceMetrics:
    return encode_metrics(by.data(readings, AT)).resource_metrics[0]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("kernel"))


def numbers_of(metric: Metric) -> dict[frozenset[tuple[str, str]], float]:
    points = getattr(metric, metric.WhichOneof("data") or "").data_points
    return {
        frozenset((attribute.key, attribute.value.string_value) for attribute in point.attributes): (
            point.as_double if point.WhichOneof("value") == "as_double" else point.as_int
        )
        for point in points
    }


def as_prometheus_writes(metric: Metric) -> str:
    """Give the name that a collector makes of it (OpenTelemetry: Prometheus compatibility)."""
    kind = metric.WhichOneof("data")
    unit = {"By": "_bytes", "s": "_seconds", "1": "_ratio" if kind == "gauge" else "", "": ""}[metric.unit]
    total = "_total" if kind == "sum" and metric.sum.is_monotonic else ""
    bare = metric.name.replace(".", "_")
    # A unit that is in the name is not written twice.
    return bare.removesuffix(unit) + unit + total


@rows
def test_a_row_has_the_same_numbers_in_both(scene: Scene, instrument: Instrument) -> None:
    metric = scene.metrics[instrument.otel_name]
    if instrument.kind != "summary":
        # Between the two readings a clock may go on.
        assert numbers_of(metric) == pytest.approx(scene.samples[instrument.exposed_name], abs=0.4)
        return
    found = {end: scene.samples[instrument.name + end][frozenset()] for end in ("_count", "_sum")}
    (point,) = metric.histogram.data_points
    per_second = {"milliseconds": 1000.0, "seconds": 1.0}[instrument.unit]
    assert point.count == found["_count"] == sum(point.bucket_counts) == 8
    assert point.sum * per_second == pytest.approx(found["_sum"])
    assert tuple(point.explicit_bounds) == BOUNDS_SECONDS
    assert not point.HasField("min")
    assert not point.HasField("max")


@rows
def test_a_row_has_its_kind_and_its_unit(scene: Scene, instrument: Instrument) -> None:
    metric = scene.metrics[instrument.otel_name]
    kind = {"gauge": "gauge", "counter": "sum", "up-down counter": "sum", "histogram": "histogram"}
    assert metric.WhichOneof("data") == kind[instrument.otel_kind]
    assert metric.unit == instrument.otel_unit
    assert metric.description == instrument.help
    if metric.HasField("sum"):
        assert metric.sum.is_monotonic == (instrument.kind == "counter")
        assert metric.sum.aggregation_temporality == CUMULATIVE
        assert {point.start_time_unix_nano for point in metric.sum.data_points} == {round(CREATED * 1e9)}


@rows
def test_a_collector_makes_the_name_of_metrics_of_it(scene: Scene, instrument: Instrument) -> None:
    if instrument.origin in ("pulsar", "ours"):
        name = as_prometheus_writes(scene.metrics[instrument.otel_name])
        assert name == instrument.exposed_name


def test_the_twelve_of_pip_442_have_the_names_kinds_and_units_of_upstream() -> None:
    def expected() -> Iterator[tuple[str, str, str]]:
        for memory in ("heap", "direct"):
            yield f"topic.list.{memory}.memory.used", "gauge", "By"
            yield f"topic.list.{memory}.memory.limit", "gauge", "By"
            yield f"topic.list.{memory}.queue.size", "up-down counter", "1"
            yield f"topic.list.{memory}.queue.max.size", "gauge", "1"
            yield f"topic.list.{memory}.wait.time", "histogram", "s"
            yield f"topic.list.{memory}.timeout.total", "counter", "1"

    found = {(i.otel_name, i.otel_kind, i.otel_unit) for i in INSTRUMENTS if i.origin == "PIP-442"}
    assert found == set(expected())


def test_who_sends_is_named_as_upstream_does(scene: Scene) -> None:
    attributes = {a.key: a.value.string_value for a in scene.whole.resource.attributes}
    assert attributes["service.name"] == "pulsar-proxy"
    assert attributes["pulsar.cluster"] == "blue"
    assert scene.whole.scope_metrics[0].scope.name == "org.apache.pulsar.proxy"


def test_a_wait_is_in_the_bucket_whose_bound_it_does_not_pass() -> None:
    sources = full_sources()
    before = list(sources.heap_waits.wait_millis.buckets)
    for seconds in (0.001, 0.0010001, 60.0, 60.1):
        sources.heap_waits.waited(seconds, True)
    grown = [now - then for now, then in zip(sources.heap_waits.wait_millis.buckets, before, strict=True)]
    assert grown == [1, 1, *([0] * 13), 1, 1]


@pytest.mark.parametrize(
    ("temporality", "of_counters", "of_histograms"),
    [("cumulative", CUMULATIVE, CUMULATIVE), ("delta", DELTA, DELTA), ("lowmemory", CUMULATIVE, DELTA)],
)
def test_counts_are_those_since_the_last_export_only_if_asked_for(
    temporality: Temporality, of_counters: int, of_histograms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, by = full_sources(), sender(temporality)

    def export(result: MetricExportResult) -> dict[str, Metric]:
        monkeypatch.setattr(OTLPMetricExporter, "export", lambda *_: result)
        readings = take(INSTRUMENTS, sources.counters)
        found = {metric.name: metric for metric in encode(by, readings).scope_metrics[0].metrics}
        by.send(readings, AT)
        return found

    export(MetricExportResult.SUCCESS)
    sources.counters[ACCEPTED].value += 5
    sources.heap_waits.waited(0.2, True)
    export(MetricExportResult.FAILURE)
    last = export(MetricExportResult.SUCCESS)
    connections, waits = last["pulsar.proxy.new_connections"].sum, last["topic.list.heap.wait.time"].histogram
    assert (connections.aggregation_temporality, waits.aggregation_temporality) == (of_counters, of_histograms)
    whole = counted(sources.counters, "new_connections")
    assert connections.data_points[0].as_int == (5 if of_counters == DELTA else whole)
    assert waits.data_points[0].count == sum(waits.data_points[0].bucket_counts) == (1 if of_histograms == DELTA else 9)
    assert waits.data_points[0].sum == pytest.approx(0.2 if of_histograms == DELTA else 122.6044)
    assert last["topic.list.heap.queue.size"].sum.aggregation_temporality == CUMULATIVE


def test_a_number_that_nobody_knows_is_not_there() -> None:
    sources = full_sources()
    sources.counters.derive(EVENTS, lambda: None)
    readings = take(INSTRUMENTS, sources.counters)
    found = {metric.name for metric in encode(sender("cumulative"), readings).scope_metrics[0].metrics}
    assert "pulsar.proxy.event_log_topic_keeps" not in found
