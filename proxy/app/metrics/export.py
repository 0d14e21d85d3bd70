"""Export the metrics to an OpenTelemetry collector at intervals, and log failures.

Rule: counters belong to the event loop, so all are read there in one step; a thread sends the readings. At most one
thread runs, and every wait has a time-out: a collector that hangs costs one thread and the exports that are skipped
meanwhile, an absent collector costs a log line now and then. The thread imports the OpenTelemetry library.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from proxy.app.metrics.counters import OTLP_EXPORTS
from proxy.app.metrics.otel_settings import OtelSettings
from proxy.app.metrics.reading import Reading, take
from proxy.app.metrics.table import INSTRUMENTS
from proxy.core.counters import Counters
from proxy.core.log import Logger
from proxy.core.secrets import masked
from proxy.core.tasks import TaskScope
from proxy.core.threads import in_thread

if TYPE_CHECKING:
    from proxy.app.metrics.otlp import OtlpSender

# Time limit of the last export at shutdown: the collector may have gone for good.
FLUSH_SECONDS: Final = 2.0
SECONDS_BETWEEN_LINES: Final = 60.0


class OtlpExport:
    """The periodic exports of a proxy, from `start` to `close`; the sending thread calls `make` once."""

    def __init__(
        self, settings: OtelSettings, counters: Counters, log: Logger, make: "Callable[[], OtlpSender]"
    ) -> None:
        self._settings = settings
        self._counters = counters
        self._results = counters[OTLP_EXPORTS]
        self._log = log
        self._make = make
        self._sender: OtlpSender | None = None
        self._busy = False
        self._closing = asyncio.Event()
        self._failing_since_line = 0
        self._next_line = 0.0
        self._scope = TaskScope(lambda error: counters.internal_error(error, "otlp"))

    def start(self) -> None:
        """Start the periodic exports."""
        self._scope.start(self._run())

    async def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Export once more within `seconds`, and stop."""
        self._closing.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._scope.emptied()
        self._scope.cancel()
        await self._scope.emptied()
        if self._sender is not None:
            self._sender.close()

    async def _run(self) -> None:
        last = False
        while not last:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.interval_seconds):
                    await self._closing.wait()
            # Read the flag before the export: events during this export need one more.
            last = self._closing.is_set()
            await self._export()

    async def _export(self) -> None:
        if self._busy:
            self._results["skipped"] += 1
            self._failed("the export before it is still under way")
            return
        # Set the flag here, not in the thread: a thread that is slow to start counts as busy, too.
        self._busy = True
        try:
            readings, at_ns = take(INSTRUMENTS, self._counters), time.time_ns()
            problem = await in_thread(partial(self._send, readings, at_ns), "otlp", self._settings.timeout_seconds)
        except TimeoutError:
            problem = f"no end after {self._settings.timeout_seconds:g} s (OTEL_METRIC_EXPORT_TIMEOUT)"
        except Exception as error:
            # The thread may not have started.
            self._busy = False
            problem = f"{type(error).__name__}: {error}"
        if problem is None:
            self._results["sent"] += 1
            self._succeeded()
        else:
            self._results["failed"] += 1
            self._failed(problem)

    def _send(self, readings: Sequence[Reading], at_ns: int) -> str | None:
        try:
            if self._sender is None:
                self._sender = self._make()
            return self._sender.send(readings, at_ns)
        finally:
            self._busy = False

    def _succeeded(self) -> None:
        if self._next_line:
            self._log.info("metrics are exported again")
        self._failing_since_line, self._next_line = 0, 0.0

    def _failed(self, reason: str) -> None:
        self._failing_since_line += 1
        now = asyncio.get_running_loop().time()
        if now >= self._next_line:
            self._log.warning("metrics not exported", detail=masked(reason), exports=self._failing_since_line)
            self._failing_since_line, self._next_line = 0, now + SECONDS_BETWEEN_LINES


def make_export(settings: OtelSettings, cluster: str, counters: Counters, log: Logger) -> OtlpExport:
    """Make the export; the caller starts it."""

    def make() -> "OtlpSender":
        from proxy.app.metrics.otlp import OtlpSender

        return OtlpSender(cluster, round(counters.created * 1e9), settings.temporality)

    log.info("metrics are exported", seconds=settings.interval_seconds)
    return OtlpExport(settings, counters, log, make)
