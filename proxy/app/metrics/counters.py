"""The counters of all rooms, and those of the process itself."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from proxy.auth.counters import AuthenticationCounters
from proxy.brokers.counters import BrokerCounters
from proxy.clients.counters import ClientCounters
from proxy.core.counters import SharedCounters
from proxy.net.counters import NetCounters
from proxy.net.spill.counters import SpillCounters
from proxy.net.tls.counters import TlsCounters
from proxy.overload.counters import OverloadCounters
from proxy.relay.counters import RelayCounters
from proxy.requests.counters import RequestCounters
from proxy.telemetry.events.counters import EventLogCounters
from proxy.web.http.counters import WebCounters

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


class Counters:
    """Counters since the start of the proxy; each part of the proxy gets the counters of its own room.

    `causes` and `outcomes` are exported as 0 until they happen, so that a rate over them starts at the first event.
    `report` is called with each internal error, to log it.
    """

    __slots__ = (
        "authentication",
        "brokers",
        "budget",
        "budget_bytes",
        "clients",
        "config_accepted",
        "config_applied_at",
        "config_reloads",
        "controllers",
        "event_log",
        "kernels_choice",
        "net",
        "otlp_exports",
        "overload",
        "relay",
        "requests",
        "shared",
        "spill",
        "tls",
        "web",
    )

    def __init__(
        self,
        causes: Iterable[str] = (),
        outcomes: Iterable[str] = (),
        report: Callable[[BaseException, str], None] | None = None,
    ) -> None:
        shared = self.shared = SharedCounters(causes, report)
        self.authentication = AuthenticationCounters()
        self.event_log = EventLogCounters(shared)
        self.net = NetCounters(shared)
        self.spill = SpillCounters(shared)
        self.tls = TlsCounters(shared)
        self.brokers = BrokerCounters(shared)
        self.requests = RequestCounters(shared, outcomes)
        self.relay = RelayCounters(shared)
        self.overload = OverloadCounters(shared)
        self.clients = ClientCounters(shared)
        self.web = WebCounters(shared)
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

    def internal_error(self, error: BaseException, where: str) -> None:
        """Count an unexpected exception, and report it."""
        self.shared.internal_error(error, where)
