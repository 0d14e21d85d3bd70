"""The numbers of a proxy, with those of the process itself."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from proxy.core import counters
from proxy.core.counters import counter_by, gauge, gauge_by
from proxy.overload.counters import OverloadCounters

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
CONFIG_APPLIED_AT: Final = gauge(
    "config_last_success_timestamp_seconds",
    "Unix time at which the configuration in force was applied, at the start or by a reload.",
    "seconds",
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


class Counters(counters.Counters):
    """The numbers of a proxy; `report` is called with each internal error, to log it."""

    __slots__ = (
        "budget",
        "budget_bytes",
        "kernels_choice",
        "overload",
    )

    def __init__(self, report: Callable[[BaseException, str], None] | None = None) -> None:
        super().__init__(report)
        self.overload = OverloadCounters(self)
        self.budget: Sequence[BudgetLine] = ()
        self.budget_bytes = 0
        # Memory that only the kernel bounds; no part of the budget.
        self.kernels_choice: Sequence[BudgetLine] = ()
