"""Helpers that declare this proxy's own metrics, for `traffic_rows` and `process_rows`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from limiter.statistics import LimiterStatistics
from proxy.app.metrics.reading import MetricSources, Row
from proxy.core.instrument import Kind, Unit
from proxy.telemetry.tenants import TenantNumbers

if TYPE_CHECKING:
    from limiter.soft_pool import PoolRecord
    from proxy.relay.socket_bound import SocketBound
    from proxy.telemetry.events.log import SinkNumbers


def per_limiter(name: str, kind: Kind, text: str, read: Callable[[LimiterStatistics], float], unit: Unit = "") -> Row:
    """Declare a metric of the heap and the direct limiter."""
    return Row(
        f"pulsar_proxy_lists_{name}", kind, text,
        lambda s: {("heap",): read(s.heap.statistics()), ("direct",): read(s.direct.statistics())},
        labels=("limiter",), unit=unit,
    )  # fmt: skip


def per_sink(name: str, kind: Kind, text: str, read: "Callable[[SinkNumbers], int]", unit: Unit = "") -> Row:
    """Declare a metric with a number for each sink of the event log."""
    return Row(
        f"pulsar_proxy_event_log_{name}", kind, text,
        lambda s: {(sink,): read(numbers) for sink, numbers in s.sinks().items()},
        labels=("sink",), unit=unit,
    )  # fmt: skip


def per_tenant(name: str, text: str, read: Callable[[TenantNumbers], int], unit: Unit = "") -> Row:
    """Declare a counter by tenant."""
    return Row(
        f"pulsar_proxy_tenant_{name}", "counter", text,
        # A tenant from an HTTP path may contain surrogates, which cannot be written as UTF-8.
        lambda s: {(tenant.encode(errors="replace").decode(),): read(n) for tenant, n in s.tenants.rows()},
        labels=("tenant",), unit=unit,
    )  # fmt: skip


_Part = TypeVar("_Part")


def of_pool(
    name: str, kind: Kind, text: str, read: "Callable[[PoolRecord], float]", unit: Unit = ""
) -> Row:  # fmt: skip
    """Declare a metric of the relay pool; there is no sample without a pool."""
    return _of_part(
        f"relay_pool_{name}",
        kind,
        text,
        lambda sources: None if sources.relays is None else sources.relays.pool,
        read,
        unit,
    )


def of_bound(
    name: str, kind: Kind, text: str, read: "Callable[[SocketBound], float]", unit: Unit = ""
) -> Row:  # fmt: skip
    """Declare a metric of the bound for relayed sockets; there is no sample without a bound."""
    return _of_part(
        f"relay_sockets_{name}",
        kind,
        text,
        lambda sources: None if sources.relays is None else sources.relays.bound,
        read,
        unit,
    )


def of_commands(
    name: str, kind: Kind, text: str, read: "Callable[[PoolRecord], float]", unit: Unit = ""
) -> Row:  # fmt: skip
    """Declare a metric of the memory for commands; there is no sample without a limit."""

    def record(sources: MetricSources) -> "PoolRecord | None":
        return None if sources.commands is None else sources.commands.record()

    return _of_part(f"commands_{name}", kind, text, record, read, unit)


def _of_part(
    name: str, kind: Kind, text: str, find: "Callable[[MetricSources], _Part | None]",
    read: "Callable[[_Part], float]", unit: Unit,
) -> Row:  # fmt: skip
    """Declare a metric of a part that is there with some configurations only."""

    def readings(sources: MetricSources) -> Mapping[tuple[str, ...], float]:
        part = find(sources)
        return {} if part is None else {(): read(part)}

    return Row(f"pulsar_proxy_{name}", kind, text, readings, unit=unit)


def of_process(
    name: str, kind: Kind, text: str, read: Callable[[MetricSources], float | None],
    unit: Unit = "", otel: str = "",
) -> Row:  # fmt: skip
    """Declare a metric that the kernel may not know: then there is no sample."""

    def readings(sources: MetricSources) -> Mapping[tuple[str, ...], float]:
        value = read(sources)
        return {} if value is None else {(): value}

    origin = "ours" if name.startswith("pulsar_proxy_") else "convention"
    return Row(name, kind, text, readings, unit=unit, otel=otel, origin=origin)  # type: ignore[arg-type]
