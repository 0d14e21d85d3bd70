"""The table of all metrics, a row each.

Rule: /metrics, the OTLP export, docs/reference/metrics.md and docs/compatibility.md are made from this table.
"""

from typing import Final

from proxy.app.metrics.overload_rows import OVERLOAD_ROWS
from proxy.app.metrics.process_rows import PROCESS_ROWS
from proxy.app.metrics.reading import Metric
from proxy.app.metrics.traffic_rows import TRAFFIC_ROWS
from proxy.app.metrics.upstream_rows import UPSTREAM_ROWS

__all__ = ["INSTRUMENTS"]

INSTRUMENTS: Final[tuple[Metric, ...]] = (*UPSTREAM_ROWS, *TRAFFIC_ROWS, *OVERLOAD_ROWS, *PROCESS_ROWS)
