"""Helpers that declare this proxy's own metrics, for `traffic_rows` and `process_rows`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from limiter.statistics import LimiterStatistics
from proxy.app.metrics.counters import Counters
from proxy.app.metrics.instrument import Instrument, Kind, MetricSources, Unit
from proxy.telemetry.events.counters import SinkNumbers
from proxy.telemetry.tenants import TenantNumbers

if TYPE_CHECKING:
    from limiter.soft_pool import PoolRecord
    from proxy.relay.memory.bound import SocketBound
    from proxy.relay.memory.pool import RelayPool


def counted(name: str, text: str, read: Callable[[Counters], float], unit: Unit = "") -> Instrument:
    """Declare a counter without labels."""
    return Instrument(f"pulsar_proxy_{name}", "counter", text, lambda s: {(): read(s.counters)}, unit=unit)


def gauge(name: str, text: str, read: Callable[[Counters], float], unit: Unit = "") -> Instrument:
    """Declare a gauge without labels."""
    return Instrument(f"pulsar_proxy_{name}", "gauge", text, lambda s: {(): read(s.counters)}, unit=unit)


def labelled(
    name: str, label: str, text: str, read: Callable[[Counters], Mapping[str, float]],
    kind: Kind = "counter", unit: Unit = "",
) -> Instrument:  # fmt: skip
    """Declare a metric with one label."""
    return Instrument(
        f"pulsar_proxy_{name}", kind, text,
        lambda s: {(value,): number for value, number in read(s.counters).items()}, labels=(label,), unit=unit,
    )  # fmt: skip


def per_limiter(
    name: str, kind: Kind, text: str, read: Callable[[LimiterStatistics], float], unit: Unit = ""
) -> Instrument:
    """Declare a metric of the heap and the direct limiter."""
    return Instrument(
        f"pulsar_proxy_lists_{name}", kind, text,
        lambda s: {("heap",): read(s.heap.statistics()), ("direct",): read(s.direct.statistics())},
        labels=("limiter",), unit=unit,
    )  # fmt: skip


def per_sink(name: str, kind: Kind, text: str, read: Callable[[SinkNumbers], int], unit: Unit = "") -> Instrument:
    """Declare a metric with a number for each sink of the event log."""
    return Instrument(
        f"pulsar_proxy_event_log_{name}", kind, text,
        lambda s: {(sink,): read(numbers) for sink, numbers in s.counters.event_log.sinks().items()},
        labels=("sink",), unit=unit,
    )  # fmt: skip


def per_tenant(name: str, text: str, read: Callable[[TenantNumbers], int], unit: Unit = "") -> Instrument:
    """Declare a counter by tenant."""
    return Instrument(
        f"pulsar_proxy_tenant_{name}", "counter", text,
        # A tenant from an HTTP path may contain surrogates, which cannot be written as UTF-8.
        lambda s: {(tenant.encode(errors="replace").decode(),): read(n) for tenant, n in s.tenants.rows()},
        labels=("tenant",), unit=unit,
    )  # fmt: skip


_Part = TypeVar("_Part")


def of_pool(
    name: str, kind: Kind, text: str, read: "Callable[[RelayPool], float]", unit: Unit = ""
) -> Instrument:  # fmt: skip
    """Declare a metric of the relay pool; there is no sample without a pool."""
    return _of_part(f"relay_pool_{name}", kind, text, lambda sources: sources.counters.relay.pool, read, unit)


def of_bound(
    name: str, kind: Kind, text: str, read: "Callable[[SocketBound], float]", unit: Unit = ""
) -> Instrument:  # fmt: skip
    """Declare a metric of the bound for relayed sockets; there is no sample without a bound."""
    return _of_part(f"relay_sockets_{name}", kind, text, lambda sources: sources.counters.relay.bound, read, unit)


def of_commands(
    name: str, kind: Kind, text: str, read: "Callable[[PoolRecord], float]", unit: Unit = ""
) -> Instrument:  # fmt: skip
    """Declare a metric of the memory for commands; there is no sample without a limit."""

    def record(sources: MetricSources) -> "PoolRecord | None":
        held = sources.counters.requests.command_bytes
        return None if held is None else held.record()

    return _of_part(f"commands_{name}", kind, text, record, read, unit)


def _of_part(
    name: str, kind: Kind, text: str, find: "Callable[[MetricSources], _Part | None]",
    read: "Callable[[_Part], float]", unit: Unit,
) -> Instrument:  # fmt: skip
    """Declare a metric of a part that is there with some configurations only."""

    def readings(sources: MetricSources) -> Mapping[tuple[str, ...], float]:
        part = find(sources)
        return {} if part is None else {(): read(part)}

    return Instrument(f"pulsar_proxy_{name}", kind, text, readings, unit=unit)


def of_process(
    name: str, kind: Kind, text: str, read: Callable[[MetricSources], float | None],
    unit: Unit = "", otel: str = "",
) -> Instrument:  # fmt: skip
    """Declare a metric that the kernel may not know: then there is no sample."""

    def readings(sources: MetricSources) -> Mapping[tuple[str, ...], float]:
        value = read(sources)
        return {} if value is None else {(): value}

    origin = "ours" if name.startswith("pulsar_proxy_") else "convention"
    return Instrument(name, kind, text, readings, unit=unit, otel=otel, origin=origin)  # type: ignore[arg-type]


def word(text: str) -> str:
    """Return a text as one word, for a label."""
    return "_".join("".join(char if char.isalnum() else " " for char in text).lower().split())
