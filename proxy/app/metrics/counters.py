"""The counters of the process itself, and the memory budget in force."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from proxy.core.counters import counter_by, gauge, gauge_by

CONTROLLER_AGES: Final = gauge_by(
    "controller",
    "controller_age_seconds",
    "Seconds since a periodic background task last finished its work.",
    "seconds",
)
CONFIG_RELOADS: Final = counter_by(
    "result", "config_reloads", "Reloads of the configuration (SIGHUP) by result.", ("applied", "refused", "ignored")
)
CONFIG_ACCEPTED: Final = gauge(
    "config_reload_success", "1: the configuration that was read last is in force; 0: that one was refused."
)
OTLP_EXPORTS: Final = counter_by(
    "result",
    "otlp_exports",
    "Exports to an OpenTelemetry collector; skipped: the export before was still under way.",
    ("sent", "failed", "skipped"),
)


class BudgetLine(NamedTuple):
    """The bytes that an owner of memory may hold at most under a configuration; `label` is its word in metrics.

    `key`: the one to lower first; empty for an owner without one.
    """

    label: str
    owner: str
    key: str
    limit_bytes: int


class MemoryBudget:
    """The worst case of all memory under the configuration in force; empty before it was computed.

    `kernels_choice`: memory that only the kernel bounds, which is no part of the budget.
    """

    __slots__ = ("kernels_choice", "lines", "total_bytes")

    def __init__(self) -> None:
        self.take((), 0, ())

    def take(self, lines: Sequence[BudgetLine], total_bytes: int, kernels_choice: Sequence[BudgetLine]) -> None:
        """Replace the budget."""
        self.lines, self.total_bytes, self.kernels_choice = lines, total_bytes, kernels_choice
