"""Send readings as OpenTelemetry metrics by OTLP over HTTP: the only module that imports the OpenTelemetry library.

Rule: the sending thread imports this module at the first export. This module reads no counter of the proxy: its
readings were taken on the event loop, in one step. The SDK's own instruments are not used: their calls on hot paths
cost five times as much as ours and more (ADR 18), and they are observed one after the other.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import uuid4

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from proxy.app.metrics.otel_settings import Temporality
from proxy.app.metrics.reading import Distribution, Reading
from proxy.core.instrument import Instrument
from proxy.core.version import VERSION
from proxy.telemetry.durations import BOUNDS_SECONDS

# Names of upstream's proxy.
SCOPE: Final = "org.apache.pulsar.proxy"
SERVICE: Final = "pulsar-proxy"
CLUSTER: Final = "pulsar.cluster"

_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
_DELTA: Final = AggregationTemporality.DELTA
_DELTA_OF: Final[Mapping[Temporality, frozenset[str]]] = {
    "cumulative": frozenset(),
    "delta": frozenset({"counter", "histogram"}),
    # Differences of observed counters cost memory, differences of histograms do not (OTLP exporter specification,
    # section "Additional Environment Variable Configuration").
    "lowmemory": frozenset({"histogram"}),
}


class OtlpSender:
    """Sends readings to the collector that the environment names; `created_ns` is the time at which counting began."""

    def __init__(self, cluster: str, created_ns: int, temporality: Temporality) -> None:
        self._words = _FirstWords()
        self._exporter = OTLPMetricExporter()
        self._resource = _resource(cluster)
        self._scope = InstrumentationScope(SCOPE, VERSION)
        self._created_ns = created_ns
        self._delta = _DELTA_OF[temporality]
        # The readings that the collector got last, to which differences are sent.
        self._sent: dict[str, Reading] = {}
        self._sent_ns = created_ns

    def send(self, readings: Sequence[Reading], at_ns: int) -> str | None:
        """Send the readings of the moment `at_ns`; return the reason if that failed."""
        self._words.text = ""
        if self._exporter.export(self.data(readings, at_ns)) is not MetricExportResult.SUCCESS:
            return self._words.text or "no reason given"
        if self._delta:
            self._sent = {reading.instrument.name: reading for reading in readings}
            self._sent_ns = at_ns
        return None

    def close(self) -> None:
        """Stop a send under way, and send no more."""
        self._exporter.shutdown()

    def data(self, readings: Sequence[Reading], at_ns: int) -> MetricsData:
        """Return the readings as objects of the library."""
        metrics = [metric for reading in readings if (metric := self._metric(reading, at_ns)) is not None]
        scope = ScopeMetrics(self._scope, metrics, schema_url="")
        return MetricsData([ResourceMetrics(self._resource, [scope], schema_url="")])

    def _metric(self, reading: Reading, at_ns: int) -> Metric | None:
        instrument = reading.instrument
        data: Gauge | Sum | Histogram
        if reading.distribution is not None:
            data = self._histogram(reading.distribution, instrument, at_ns)
        elif not reading.numbers:
            return None
        elif instrument.otel_kind == "gauge":
            data = Gauge(list(_points(instrument, reading.numbers, 0, at_ns)))
        else:
            data = self._sum(instrument, reading.numbers, at_ns)
        return Metric(instrument.otel_name, instrument.help, instrument.otel_unit, data)

    def _sum(self, instrument: Instrument, numbers: Mapping[tuple[str, ...], float], at_ns: int) -> Sum:
        monotonic = instrument.otel_kind == "counter"
        if not monotonic or "counter" not in self._delta:
            return Sum(list(_points(instrument, numbers, self._created_ns, at_ns)), _CUMULATIVE, monotonic)
        before = self._sent.get(instrument.name)
        differences = {
            # A tenant that lost its place and came back starts at 0 again.
            labels: number - old
            if (old := 0 if before is None else before.numbers.get(labels, 0)) <= number
            else number
            for labels, number in numbers.items()
        }
        return Sum(list(_points(instrument, differences, self._sent_ns, at_ns)), _DELTA, monotonic)

    def _histogram(self, found: Distribution, instrument: Instrument, at_ns: int) -> Histogram:
        delta, since = "histogram" in self._delta, self._created_ns
        before = self._sent.get(instrument.name)
        if delta and before is not None and before.distribution is not None:
            found, since = _less(found, before.distribution), self._sent_ns
        point = HistogramDataPoint(
            {}, since, at_ns, found.samples, found.total / 1000, found.buckets, BOUNDS_SECONDS,
            # Minimum and maximum are optional and not known (opentelemetry.proto.metrics.v1.HistogramDataPoint).
            min=None, max=None,  # type: ignore[arg-type]
        )  # fmt: skip
        return Histogram([point], _DELTA if delta else _CUMULATIVE)


def _less(found: Distribution, before: Distribution) -> Distribution:
    buckets = tuple(now - then for now, then in zip(found.buckets, before.buckets, strict=True))
    return Distribution(found.quantiles, found.samples - before.samples, found.total - before.total, buckets)


def _points(
    instrument: Instrument, numbers: Mapping[tuple[str, ...], float], since_ns: int, at_ns: int
) -> Iterator[NumberDataPoint]:
    for values, number in numbers.items():
        yield NumberDataPoint(dict(zip(instrument.labels, values, strict=True)), since_ns, at_ns, number)


def _resource(cluster: str) -> Resource:
    """Return the attributes of this process; `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` override them."""
    ours = {
        "service.name": SERVICE, "service.version": VERSION, "service.instance.id": str(uuid4()), CLUSTER: cluster,
    }  # fmt: skip
    return Resource.create(ours).merge(OTELResourceDetector().detect())


class _FirstWords(logging.Handler):
    """Keep the library's first log line of a send, which is the reason of a failure; `send` returns it.

    The library would write a line for each attempt, as long as a collector is down.
    """

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        logger = logging.getLogger("opentelemetry")
        logger.handlers[:] = [self]
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.text = self.text or record.getMessage()
