"""The numbers of a proxy, with those of the process itself."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from proxy.core import counters
from proxy.overload.counters import OverloadCounters

RELOAD_RESULTS = ("applied", "refused", "ignored")
EXPORT_RESULTS = ("sent", "failed", "skipped")


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
        "config_accepted",
        "config_applied_at",
        "config_reloads",
        "controllers",
        "kernels_choice",
        "otlp_exports",
        "overload",
    )

    def __init__(self, report: Callable[[BaseException, str], None] | None = None) -> None:
        super().__init__(report)
        self.overload = OverloadCounters(self)
        self.budget: Sequence[BudgetLine] = ()
        self.budget_bytes = 0
        # Memory that only the kernel bounds; no part of the budget.
        self.kernels_choice: Sequence[BudgetLine] = ()
        self.config_reloads: dict[str, int] = dict.fromkeys(RELOAD_RESULTS, 0)
        self.config_accepted = True
        self.config_applied_at = 0.0
        # Name of a background loop -> callable that returns the seconds since it last ran.
        self.controllers: dict[str, Callable[[], float]] = {}
        self.otlp_exports: dict[str, int] = dict.fromkeys(EXPORT_RESULTS, 0)
