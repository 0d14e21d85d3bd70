"""The rows of metrics about the process itself: memory and its budget, configuration, event loop, build."""

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from proxy.app.metrics import process
from proxy.app.metrics.counters import (
    CONFIG_ACCEPTED,
    CONFIG_RELOADS,
    CONTROLLER_AGES,
    OTLP_EXPORTS,
    BudgetLine,
)
from proxy.app.metrics.reading import Metric, MetricSources, Row
from proxy.app.metrics.rows import of_process
from proxy.config.core import CONFIG_APPLIED_AT
from proxy.core.descriptors import descriptor_limit
from proxy.core.instrument import Readings
from proxy.core.native import native
from proxy.core.process_memory import (
    container_limit_bytes,
    machine_memory_bytes,
    peak_resident_bytes,
    resident_bytes,
)
from proxy.core.version import VERSION
from proxy.net.ended_sockets import ENDED_BYTES
from proxy.net.spill import read_back, space
from proxy.net.write_watch import WRITERS_KERNEL_BYTES

__all__ = ["PROCESS_ROWS"]

_OWNER: Final = ("owner",)


def _build(sources: MetricSources) -> Mapping[tuple[str, ...], float]:
    extension = native()
    version = extension.version if extension.module is not None else ""
    tls = (extension.tls_libraries.get(name, "") for name in ("rustls", "aws-lc-sys"))
    return {(VERSION, sys.version.partition(" ")[0], version, *tls): 1}


def _limits(lines: Sequence[BudgetLine]) -> Readings:
    return {(line.label,): line.limit_bytes for line in lines}


def _used(sources: MetricSources) -> Mapping[str, float]:
    """Return the bytes in use of each line of the budget, by label, whose use is counted; others are limits only."""
    counters = sources.counters
    return {
        **sources.held(),
        **_spill(sources),
        _send_line(sources): counters[WRITERS_KERNEL_BYTES].value,
        **_relays(sources),
        "ended_connections": counters.reading(ENDED_BYTES)[()],
        **{f"events_{sink}": numbers.buffer_bytes for sink, numbers in sources.sinks().items()},
    }


def _send_line(sources: MetricSources) -> str:
    """Return the line in which the bytes for clients are: in a sum only the large buffers hold much."""
    memory = sources.send_memory
    return "send_buffers" if memory is None or memory.limit_bytes is None else "large_send_buffers"


def _relays(sources: MetricSources) -> Mapping[str, float]:
    """Return the kernel memory of relayed sockets, and with a pool what relays hold in user space."""
    relays = sources.relays
    if relays is None:
        return {}
    found: dict[str, float] = {"stalled_relays" if relays.bound is None else "relay_sockets": sum(relays.weighed)}
    if relays.pool is not None:
        found["relay_pool"] = relays.pool.used_bytes
    return found


def _spill(sources: MetricSources) -> Mapping[str, float]:
    counters = sources.counters
    held, limit = counters.reading(read_back.HELD_BYTES)[()], counters.reading(space.LIMIT_BYTES)[()]
    return {"spill_lists": held} if limit else {}


def _fits(sources: MetricSources) -> float:
    limits = (container_limit_bytes(sources.memory), machine_memory_bytes(sources.memory))
    return float(all(limit is None or sources.budget.total_bytes <= limit for limit in limits))


PROCESS_ROWS: Final[tuple[Metric, ...]] = (
    Row("pulsar_proxy_build_info", "gauge",
        "Always 1; the labels name the versions that run, those of the native extension and of its TLS "
        "among them (empty: none).",
        _build, labels=("version", "python", "native", "rustls", "aws_lc_sys")),
    Row("pulsar_proxy_event_loop_lag_seconds", "summary",
        "Delay of the event loop's timers, quantiles of the last minute; every wait is longer by this delay.",
        durations=lambda s: s.lag, labels=("quantile",), unit="seconds"),
    CONTROLLER_AGES,
    Row("pulsar_proxy_memory_budget_bytes", "gauge",
        "Worst case of all memory that has a limit (docs/memory.md).",
        lambda s: {(): s.budget.total_bytes}, unit="bytes"),
    Row("pulsar_proxy_memory_budget_part_bytes", "gauge",
        "The limits that the worst case is the sum of; a connection is in lookup mode or relayed, so only the "
        "larger of `send_buffers` and `stalled_relays` counts, and of `tls_connections` and `tls_relays`.",
        lambda s: _limits(s.budget.lines), labels=_OWNER, unit="bytes"),
    Row("pulsar_proxy_memory_kernels_choice_bytes", "gauge",
        "The most that the kernel may take for relayed sockets whose key is 0; no part of the worst case.",
        lambda s: _limits(s.budget.kernels_choice), labels=_OWNER, unit="bytes"),
    Row("pulsar_proxy_memory_budget_used_bytes", "gauge",
        "Bytes in use of each line of the budget whose use is counted.",
        lambda s: {(label,): size for label, size in _used(s).items()}, labels=_OWNER, unit="bytes"),
    Row("pulsar_proxy_memory_budget_fits", "gauge",
        "1: the worst case fits into the container's limit, if there is one, and into the machine's memory; 0: "
        "it does not.",
        lambda s: {(): _fits(s)}),
    CONFIG_RELOADS,
    CONFIG_ACCEPTED,
    CONFIG_APPLIED_AT,
    OTLP_EXPORTS,
    of_process("pulsar_proxy_memory_resident_bytes", "gauge", "Resident memory of the process.",
               lambda s: resident_bytes(s.memory), "bytes"),
    of_process("pulsar_proxy_memory_peak_bytes", "gauge", "Largest resident memory since the start.",
               lambda s: peak_resident_bytes(s.memory), "bytes"),
    of_process("pulsar_proxy_memory_container_limit_bytes", "gauge",
               "Memory limit of the container; absent if there is none.",
               lambda s: container_limit_bytes(s.memory), "bytes"),
    of_process("pulsar_proxy_memory_machine_bytes", "gauge", "Memory of the machine; absent if unknown.",
               lambda s: machine_memory_bytes(s.memory), "bytes"),
    of_process("process_cpu_seconds", "counter", "Processor time used, in user and system mode.",
               lambda _: process.cpu_seconds(), "seconds", "process.cpu.time"),
    of_process("process_start_time_seconds", "gauge", "Unix time at which the process started.",
               lambda s: process.start_time_seconds(s.memory), "seconds"),
    of_process("process_resident_memory_bytes", "gauge", "Resident memory, under the standard Prometheus name.",
               lambda s: resident_bytes(s.memory), "bytes", "process.memory.usage"),
    of_process("process_virtual_memory_bytes", "gauge", "Size of the address space.",
               lambda s: process.virtual_bytes(s.memory), "bytes", "process.memory.virtual"),
    of_process("process_open_fds", "gauge", "File descriptors that are open.",
               lambda s: process.open_fds(s.memory), "", "process.unix.file_descriptor.count"),
    of_process("process_max_fds", "gauge", "File descriptors that may be open.",
               lambda _: descriptor_limit()),
)  # fmt: skip
