"""The health of a stream as metrics on a port: how far behind it is, how fast, and how much of it is no event."""

import time
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.ingest.write import IngestCounts

_PREFIX: Final = "pulsar_proxy_pipeline_ingest_"


class StreamHealth:
    """The metrics of a stream, which is told of each batch and looked at now and then."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._began_us = int(time.time() * 1e6)
        self._newest_us: int | None = None
        text = "Rows read, by what became of them: kept, duplicate or quarantined."
        self._rows = Counter(f"{_PREFIX}rows", text, ("result",), registry=self.registry)
        for result in ("kept", "duplicate", "quarantined"):
            self._rows.labels(result)
        text = "Rows a second of the last batch."
        self._rate = Gauge(f"{_PREFIX}rows_per_second", text, registry=self.registry)
        text = "When the last batch ended."
        self._ended = Gauge(f"{_PREFIX}last_batch_timestamp_seconds", text, registry=self.registry)
        text = "Age of the newest event taken, or of the stream before its first, while more is waiting; else 0."
        self._lag = Gauge(f"{_PREFIX}lag_seconds", text, registry=self.registry)

    def serve(self, port: int) -> None:
        """Answer on a port of all addresses, as long as the process lives; raises PipelineError."""
        try:
            start_http_server(port, registry=self.registry)
        except (OSError, OverflowError) as error:
            raise PipelineError(f"--metrics-port {port}: {error}", ExitCode.FAILED) from error

    def took(self, counts: IngestCounts, seconds: float) -> None:
        """Count a batch that ends now and took so long."""
        self._rows.labels("kept").inc(counts.kept)
        self._rows.labels("duplicate").inc(counts.duplicates)
        self._rows.labels("quarantined").inc(sum(counts.quarantined.values()))
        self._rate.set(counts.read / seconds)
        self._ended.set_to_current_time()
        self._newest_us = max(filter(None, (self._newest_us, counts.newest_us)), default=None)

    def look(self, *, waiting: bool) -> None:
        """Say how far behind the stream is; `waiting` says whether there is more to take."""
        # A first batch that does not end is behind, too.
        since_us = self._newest_us or self._began_us
        self._lag.set(max(0.0, time.time() - since_us / 1e6) if waiting else 0)
