"""The document that `pulsar-proxy top` shows: numbers and short texts (docs/monitoring.md names every field).

Rule: the document is made on demand from numbers that are kept anyway, within two milliseconds, and its size is
bounded. Fields are added, never renamed. This module must import nothing slow: the start of the proxy loads it.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from limiter.statistics import LimiterStatistics
from protocol.command_type import CommandType
from protocol.host_port import host_port
from proxy.app.metrics.counters import CONFIG_RELOADS
from proxy.app.metrics.reading import MetricSources
from proxy.app.metrics.table import INSTRUMENTS
from proxy.brokers.pool import CONNECTIONS
from proxy.clients import listener, sessions
from proxy.clients.requests import ASKED
from proxy.clients.sessions import Sessions
from proxy.config.core import CONFIG_APPLIED_AT, Core
from proxy.core.counters import DISCONNECTS, Declared, Numbers
from proxy.core.process_memory import (
    container_limit_bytes,
    machine_memory_bytes,
    peak_resident_bytes,
    resident_bytes,
)
from proxy.core.version import VERSION
from proxy.net.spill import moves, read_back, space, spill
from proxy.overload.samples import OTHER_TOPICS
from proxy.relay.threads import NO_THREADS
from proxy.requests.topic_lists.service import ANSWERS
from proxy.telemetry.events.reports import Reports
from proxy.telemetry.limiter_metrics import LimiterMetrics
from proxy.telemetry.usage import HALF_LIFE_SECONDS, Usage, UsageTracker
from proxy.web.admin.rates import Rates

if TYPE_CHECKING:
    from proxy.overload.control import OverloadControl

TOP_ROWS: Final = 10
TOP_BROKERS: Final = 50
# Causes of disconnects of clients that read too slowly.
SLOW_READERS: Final = ("write_stalled", "reads_too_slowly", "memory_limit")
_WATCH_METRICS: Final = "pulsar_proxy_watch_"


@dataclass(frozen=True, slots=True)
class TopSources:
    """The parts of the proxy that the document shows."""

    core: Core
    metrics: MetricSources
    sessions: Sessions
    reports: Reports
    rates: Rates
    state: str
    brokers: Sequence[Mapping[str, object]]
    uptime_seconds: float
    port: int
    older_clients: int = 0


def top_document(sources: TopSources) -> Mapping[str, object]:
    """Return the document as JSON values; a quantile without samples is NaN, which JSON writes as null."""
    metrics = sources.metrics
    return {
        "proxy": _proxy(sources),
        "memory": _memory(metrics),
        "limiters": {
            "heap": _limiter(metrics.heap.statistics(), metrics.heap_waits),
            "direct": _limiter(metrics.direct.statistics(), metrics.direct_waits),
        },
        "clients": _clients(sources),
        "brokers": list(sources.brokers[:TOP_BROKERS]),
        "broker_connections": _by_label(metrics, CONNECTIONS),
        "lists": {
            "asked": metrics.counters[ASKED[CommandType.GET_TOPICS_OF_NAMESPACE]].value,
            "outcomes": _by_label(metrics, ANSWERS),
            "per_second": sources.rates.per_second(),
        },
        "slow_readers_closed": {name: metrics.counters[DISCONNECTS][name] for name in SLOW_READERS},
        "spill": _spill(metrics),
        "relays": _relays(metrics),
        "overload": _overload(metrics),
        "watches": _watches(metrics),
        "usage": _usage(sources.reports.usage),
        "refusals": [asdict(refusal) for refusal in reversed(sources.reports.refusals.recent)],
        "config": {key.name: text for key, text, _ in sources.core.config.items()},
        "restart_needed": list(sources.core.pending),
    }


def _proxy(sources: TopSources) -> Mapping[str, object]:
    relays = sources.metrics.relays
    threads = NO_THREADS if relays is None else relays.threads
    return {
        "version": VERSION,
        "relay_threads": threads.count,
        "relay_threads_reason": threads.reason,
        "pid": os.getpid(),
        "cluster": sources.core.config.cluster_name,
        "address": host_port(sources.core.config.bind_address[0], sources.port),
        "state": sources.state,
        "accepting": not sources.sessions.accepting.paused,
        "uptime_seconds": sources.uptime_seconds,
        "time": time.time(),
        "config_reloads": _by_label(sources.metrics, CONFIG_RELOADS),
        "config_applied_at": sources.metrics.counters[CONFIG_APPLIED_AT].value,
    }


def _memory(metrics: MetricSources) -> Mapping[str, object]:
    return {
        "resident_bytes": resident_bytes(metrics.memory),
        "peak_bytes": peak_resident_bytes(metrics.memory),
        "budget_bytes": metrics.budget.total_bytes,
        "container_limit_bytes": container_limit_bytes(metrics.memory),
        "machine_bytes": machine_memory_bytes(metrics.memory),
    }


def _limiter(statistics: LimiterStatistics, waits: LimiterMetrics) -> Mapping[str, object]:
    p50, p99 = waits.wait_millis.quantiles(0.5, 0.99)
    return {
        "held_bytes": statistics.held,
        "limit_bytes": statistics.limit,
        "peak_held_bytes": statistics.peak_held,
        "queue_size": statistics.queue_size,
        "queue_max_size": statistics.max_queue,
        "growers_waiting": statistics.growers_waiting,
        "overshoots": statistics.overshoots,
        "timed_out": statistics.timed_out,
        "queue_full": statistics.rejected,
        "cancelled": statistics.cancelled,
        "wait_p50_ms": p50,
        "wait_p99_ms": p99,
    }


def _clients(sources: TopSources) -> Mapping[str, object]:
    counters = sources.metrics.counters
    relays = sources.sessions.relays
    return {
        "lookup_mode": len(sources.sessions) - relays,
        "relayed": relays,
        "accepted": counters[sessions.ACCEPTED].value,
        "rejected": counters[listener.REJECTED].value,
        "unbounded_receive_buffers": sources.older_clients,
    }


def _spill(metrics: MetricSources) -> Mapping[str, float]:
    """Return the numbers of lists on disk; `limit_bytes` is 0 without a directory."""
    shown = {
        "held_bytes": space.HELD_BYTES,
        "limit_bytes": space.LIMIT_BYTES,
        "files": space.FILES,
        "moved_lists": moves.MOVED_LISTS,
        "written_bytes": moves.WRITTEN_BYTES,
        "read_bytes": read_back.READ_BYTES,
        "read_errors": read_back.READ_ERRORS,
    }
    numbers = {name: metrics.counters.reading(metric)[()] for name, metric in shown.items()}
    return numbers | {f"kept_{reason}": count for reason, count in metrics.counters[spill.KEPT].items()}


def _relays(metrics: MetricSources) -> Mapping[str, float]:
    """Return the memory of relays; `pool_limit_bytes` is 0 without a pool."""
    relays = metrics.relays
    if relays is None:
        return {}
    pool, sockets = relays.pool, relays.weighed
    return {
        "sockets_to_brokers_bytes": sockets.towards_brokers,
        "sockets_to_clients_bytes": sockets.towards_clients,
        "sockets_limit_bytes": 0 if relays.bound is None else relays.bound.limit_bytes,
        "sockets_ended": 0 if relays.bound is None else relays.bound.ended,
        "pool_limit_bytes": 0 if pool is None else pool.limit_bytes,
        "pool_used_bytes": 0 if pool is None else pool.used_bytes,
        "muted": 0 if pool is None else pool.muted,
        "muted_seconds": 0.0 if pool is None else pool.muted_millis / 1000,
        "overshoots": 0 if pool is None else pool.overshoots,
        "depleted_seconds": 0.0 if pool is None else pool.depleted_millis / 1000,
    }


def _overload(metrics: MetricSources) -> Mapping[str, object] | None:
    """Return the state of both throttles; None while none is enabled. A signal that is not known is null."""
    counters = metrics.overload
    view: OverloadControl | None = counters.view
    if view is None:
        return None
    signals = view.signals
    return {
        "signals": {"proxy": signals.proxy_ratio, "brokers": signals.broker_ratio, "source": signals.source},
        "marks": dict(view.marks),
        "state": view.threshold_state,
        "connections": dict(view.paused),
        "stopped_relays": dict(counters.paused_by),
        "longest_pause_seconds": view.longest_pause_seconds,
        "delay_seconds": dict(counters.delays),
        "memory_pressure": view.memory_pressure,
        "active_topics": view.active_topics,
        "topics": [
            {"topic": row.topic or OTHER_TOPICS, "natural": row.natural_rate, "allowed": row.effective_rate}
            for row in view.largest_topics(TOP_ROWS)
        ],
        "age_seconds": view.age_seconds(),
    }


def _by_label(metrics: MetricSources, metric: Declared[Numbers]) -> Mapping[str, float]:
    return {label: number for (label,), number in metrics.counters.reading(metric).items()}


def _watches(metrics: MetricSources) -> Mapping[str, float]:
    """Return all metrics of topic-list watches, by their names without the common prefix."""
    found = {}
    for instrument in INSTRUMENTS:
        if isinstance(instrument, Declared) and instrument.name.startswith(_WATCH_METRICS):
            for labels, number in metrics.counters.reading(instrument).items():
                found["_".join((instrument.name.removeprefix(_WATCH_METRICS), *labels))] = number
    return found


def _usage(tracker: UsageTracker) -> Mapping[str, object]:
    top = tracker.top(TOP_ROWS)
    return {
        "half_life_seconds": HALF_LIFE_SECONDS,
        "namespaces": _rows(top.namespaces),
        "principals": _rows(top.principals),
    }


def _rows(usages: list[Usage]) -> list[Mapping[str, object]]:
    return [asdict(usage) for usage in usages]
