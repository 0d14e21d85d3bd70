"""The parts of the document that `pulsar-proxy top` shows (`Proxy.shown`; docs/monitoring.md names every field).

A quantile without samples is NaN, which JSON writes as null.

Rule: the document is made on demand from numbers that are kept anyway, within two milliseconds, and its size is
bounded. Fields are added, never renamed.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from limiter.statistics import LimiterStatistics
from protocol.command_type import CommandType
from proxy.app.metrics.counters import CONFIG_RELOADS, MemoryBudget
from proxy.app.metrics.table import INSTRUMENTS
from proxy.brokers.pool import CONNECTIONS
from proxy.clients import listener
from proxy.clients.requests import ASKED
from proxy.clients.sessions import ACCEPTED, Sessions
from proxy.config.core import CONFIG_APPLIED_AT, Core
from proxy.core.counters import DISCONNECTS, Counters, Declared, Numbers
from proxy.core.process_memory import (
    SYSTEM_PATHS,
    container_limit_bytes,
    machine_memory_bytes,
    peak_resident_bytes,
    resident_bytes,
)
from proxy.core.version import VERSION
from proxy.net.spill import moves, read_back, space, spill
from proxy.overload.counters import OverloadCounters
from proxy.overload.samples import OTHER_TOPICS
from proxy.relay.engines import RelayEngines
from proxy.relay.threads import RelayThreads
from proxy.requests.topic_lists.memory_metrics import Memories
from proxy.requests.topic_lists.service import ANSWERS
from proxy.telemetry.durations import Durations
from proxy.telemetry.events.reports import Reports
from proxy.telemetry.usage import HALF_LIFE_SECONDS
from proxy.web.admin.rates import Rates

if TYPE_CHECKING:
    from proxy.overload.control import OverloadControl

TOP_ROWS: Final = 10
TOP_BROKERS: Final = 50
# Causes of disconnects of clients that read too slowly.
SLOW_READERS: Final = ("write_stalled", "reads_too_slowly", "memory_limit")
_WATCH_METRICS: Final = "pulsar_proxy_watch_"


def proxy(
    core: Core, threads: RelayThreads, sessions: Sessions, address: str, state: str, uptime_seconds: float
) -> Mapping[str, object]:
    """Return what this proxy is, and how it is."""
    return {
        "version": VERSION,
        "relay_threads": threads.count,
        "relay_threads_reason": threads.reason,
        "pid": os.getpid(),
        "cluster": core.config.cluster_name,
        "address": address,
        "state": state,
        "accepting": not sessions.accepting.paused,
        "uptime_seconds": uptime_seconds,
        "time": time.time(),
        "config_reloads": _by_label(core.counters, CONFIG_RELOADS),
        "config_applied_at": core.counters[CONFIG_APPLIED_AT].value,
    }


def memory(budget: MemoryBudget) -> Mapping[str, object]:
    """Return the memory of the process, and its limits."""
    return {
        "resident_bytes": resident_bytes(SYSTEM_PATHS),
        "peak_bytes": peak_resident_bytes(SYSTEM_PATHS),
        "budget_bytes": budget.total_bytes,
        "container_limit_bytes": container_limit_bytes(SYSTEM_PATHS),
        "machine_bytes": machine_memory_bytes(SYSTEM_PATHS),
    }


def limiters(memories: Memories) -> Mapping[str, object]:
    """Return the numbers of both memories of lists."""
    return {
        "heap": _limiter(memories.heap, memories.heap_waits),
        "direct": _limiter(memories.direct, memories.direct_waits),
    }


def _limiter(statistics: LimiterStatistics, waits: Durations) -> Mapping[str, object]:
    p50, p99 = waits.quantiles(0.5, 0.99)
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


def clients(counters: Counters, sessions: Sessions, older_clients: int) -> Mapping[str, object]:
    """Return how many clients there are; `older_clients` have receive buffers without a bound."""
    return {
        "lookup_mode": len(sessions) - sessions.relays,
        "relayed": sessions.relays,
        "accepted": counters[ACCEPTED].value,
        "rejected": counters[listener.REJECTED].value,
        "unbounded_receive_buffers": older_clients,
    }


def counted(counters: Counters, rates: Rates) -> Mapping[str, object]:
    """Return what is counted of broker connections, lists, slow readers and lists on disk."""
    return {
        "broker_connections": _by_label(counters, CONNECTIONS),
        "lists": {
            "asked": counters[ASKED[CommandType.GET_TOPICS_OF_NAMESPACE]].value,
            "outcomes": _by_label(counters, ANSWERS),
            "per_second": rates.per_second(),
        },
        "slow_readers_closed": {name: counters[DISCONNECTS][name] for name in SLOW_READERS},
        "spill": _spill(counters),
    }


def _spill(counters: Counters) -> Mapping[str, float]:
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
    numbers = {name: counters.reading(metric)[()] for name, metric in shown.items()}
    return numbers | {f"kept_{reason}": count for reason, count in counters[spill.KEPT].items()}


def relays(relays: RelayEngines) -> Mapping[str, float]:
    """Return the memory of relays; `pool_limit_bytes` is 0 without a pool."""
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


def overload(counters: OverloadCounters) -> Mapping[str, object] | None:
    """Return the state of both throttles; None while none is enabled. A signal that is not known is null."""
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


def _by_label(counters: Counters, metric: Declared[Numbers]) -> Mapping[str, float]:
    return {label: number for (label,), number in counters.reading(metric).items()}


def watches(counters: Counters) -> Mapping[str, float]:
    """Return all metrics of topic-list watches, by their names without the common prefix."""
    found = {}
    for instrument in INSTRUMENTS:
        if isinstance(instrument, Declared) and instrument.name.startswith(_WATCH_METRICS):
            for labels, number in counters.reading(instrument).items():
                found["_".join((instrument.name.removeprefix(_WATCH_METRICS), *labels))] = number
    return found


def reported(reports: Reports) -> Mapping[str, object]:
    """Return who asks for most, and the last refusals."""
    top = reports.usage.top(TOP_ROWS)
    return {
        "usage": {
            "half_life_seconds": HALF_LIFE_SECONDS,
            "namespaces": [asdict(usage) for usage in top.namespaces],
            "principals": [asdict(usage) for usage in top.principals],
        },
        "refusals": [asdict(refusal) for refusal in reversed(reports.refusals.recent)],
    }


def configured(core: Core) -> Mapping[str, object]:
    """Return the configuration in force, and the keys that wait for a restart."""
    return {
        "config": {key.name: text for key, text, _ in core.config.items()},
        "restart_needed": list(core.pending),
    }
