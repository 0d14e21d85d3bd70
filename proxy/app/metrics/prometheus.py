"""Render the table of instruments as Prometheus text.

Rule: numbers are read at scrape time, and prometheus_client is imported at the first scrape. This module opens no
socket.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from proxy.app.metrics.reading import QUANTILES, Reading, take
from proxy.app.metrics.table import INSTRUMENTS
from proxy.core.counters import Counters

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class _Family:
    """A registry of a single family, as far as prometheus_client's `generate_latest` needs one."""

    def __init__(self, family: "Metric") -> None:
        self._family = family

    def collect(self) -> "Iterator[Metric]":
        """Yield the family."""
        yield self._family


class ProxyMetrics:
    """Renders all instruments as Prometheus text; each sample has the label `cluster`."""

    def __init__(self, cluster: str, counters: Counters) -> None:
        self._cluster = {"cluster": cluster}
        self._counters = counters

    def render(self) -> bytes:
        """Return the answer of /metrics (Prometheus text format 0.0.4)."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """Yield the answer of /metrics in pieces, one for each family; all numbers are of the moment of the first."""
        from prometheus_client import generate_latest

        for reading in take(INSTRUMENTS, self._counters):
            yield generate_latest(_Family(self._family(reading)))

    def _family(self, reading: Reading) -> "Metric":
        from prometheus_client.metrics_core import Metric

        instrument = reading.instrument
        family = Metric(instrument.name, instrument.help, instrument.kind)
        self._add_distribution(family, reading)
        for values, number in reading.numbers.items():
            labels = self._cluster | dict(zip(instrument.labels, values, strict=True))
            family.add_sample(instrument.exposed_name, labels, number)
        if instrument.created:
            family.add_sample(f"{instrument.name}_created", self._cluster, self._counters.created)
        return family

    def _add_distribution(self, family: "Metric", reading: Reading) -> None:
        found = reading.distribution
        if found is None:
            return
        per_unit = reading.instrument.millis_per_unit
        for text, value in zip(QUANTILES, found.quantiles, strict=True):
            family.add_sample(family.name, self._cluster | {"quantile": text}, value / per_unit)
        family.add_sample(f"{family.name}_count", self._cluster, found.samples)
        family.add_sample(f"{family.name}_sum", self._cluster, found.total / per_unit)
