"""The rows of metrics about the process itself: memory and its budget, configuration, event loop, build."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from proxy.app.metrics import process
from proxy.app.metrics.counters import (
    CONFIG_ACCEPTED,
    CONFIG_RELOADS,
    CONTROLLER_AGES,
    OTLP_EXPORTS,
    BudgetLine,
    MemoryBudget,
)
from proxy.app.metrics.reading import Metric
from proxy.config.core import CONFIG_APPLIED_AT
from proxy.core.counters import PREFIX, Counters, Derived, gauge_by
from proxy.core.descriptors import descriptor_limit
from proxy.core.instrument import Kind, Unit
from proxy.core.native import native
from proxy.core.process_memory import (
    SYSTEM_PATHS,
    MemoryPaths,
    container_limit_bytes,
    machine_memory_bytes,
    peak_resident_bytes,
    resident_bytes,
)
from proxy.core.version import VERSION

__all__ = ["PROCESS_ROWS"]

_OWNER: Final = ("owner",)
USED_BYTES: Final = gauge_by(
    "owner", "memory_budget_used_bytes", "Bytes in use of each line of the budget whose use is counted.", "bytes"
)


def _build(_: object) -> Mapping[tuple[str, ...], float]:
    extension = native()
    version = extension.version if extension.module is not None else ""
    tls = (extension.tls_libraries.get(name, "") for name in ("rustls", "aws-lc-sys"))
    return {(VERSION, sys.version.partition(" ")[0], version, *tls): 1}


def _limits(lines: Sequence[BudgetLine]) -> Mapping[str, float]:
    return {line.label: line.limit_bytes for line in lines}


def _fits(of: tuple[MemoryBudget, MemoryPaths]) -> float:
    budget, paths = of
    limits = (container_limit_bytes(paths), machine_memory_bytes(paths))
    return float(all(limit is None or budget.total_bytes <= limit for limit in limits))


def _of_process(
    name: str, kind: Kind, text: str, read: Callable[[MemoryPaths], float | None], unit: Unit = "", otel: str = ""
) -> Derived[MemoryPaths]:
    """Declare a metric that the kernel may not know, or of all Prometheus clients."""
    ours: Any = "ours" if name.startswith(PREFIX) else "convention"
    return Derived(name, kind, text, read, unit=unit, otel=otel, origin=ours)


_BUILD: Final[Derived[MemoryPaths]] = Derived(
    "pulsar_proxy_build_info", "gauge",
    "Always 1; the labels name the versions that run, those of the native extension and of its TLS among them (empty: "
    "none).",
    _build, labels=("version", "python", "native", "rustls", "aws_lc_sys"),
)  # fmt: skip
_BUDGET: Final[tuple[Derived[MemoryBudget], ...]] = (
    Derived("pulsar_proxy_memory_budget_bytes", "gauge",
            "Worst case of all memory that has a limit (docs/memory.md).",
            lambda budget: budget.total_bytes, unit="bytes"),
    Derived("pulsar_proxy_memory_budget_part_bytes", "gauge",
            "The limits that the worst case is the sum of; a connection is in lookup mode or relayed, so only the "
            "larger of `send_buffers` and `stalled_relays` counts, and of `tls_connections` and `tls_relays`.",
            lambda budget: _limits(budget.lines), labels=_OWNER, unit="bytes"),
    Derived("pulsar_proxy_memory_kernels_choice_bytes", "gauge",
            "The most that the kernel may take for relayed sockets whose key is 0; no part of the worst case.",
            lambda budget: _limits(budget.kernels_choice), labels=_OWNER, unit="bytes"),
)  # fmt: skip
_FITS: Final[Derived[tuple[MemoryBudget, MemoryPaths]]] = Derived(
    "pulsar_proxy_memory_budget_fits", "gauge",
    "1: the worst case fits into the container's limit, if there is one, and into the machine's memory; 0: it does "
    "not.",
    _fits,
)  # fmt: skip
_KERNEL: Final = (
    _of_process("pulsar_proxy_memory_resident_bytes", "gauge", "Resident memory of the process.",
               lambda paths: resident_bytes(paths), "bytes"),
    _of_process("pulsar_proxy_memory_peak_bytes", "gauge", "Largest resident memory since the start.",
               lambda paths: peak_resident_bytes(paths), "bytes"),
    _of_process("pulsar_proxy_memory_container_limit_bytes", "gauge",
               "Memory limit of the container; absent if there is none.",
               lambda paths: container_limit_bytes(paths), "bytes"),
    _of_process("pulsar_proxy_memory_machine_bytes", "gauge", "Memory of the machine; absent if unknown.",
               lambda paths: machine_memory_bytes(paths), "bytes"),
    _of_process("process_cpu_seconds", "counter", "Processor time used, in user and system mode.",
               lambda _: process.cpu_seconds(), "seconds", "process.cpu.time"),
    _of_process("process_start_time_seconds", "gauge", "Unix time at which the process started.",
               lambda paths: process.start_time_seconds(paths), "seconds"),
    _of_process("process_resident_memory_bytes", "gauge", "Resident memory, under the standard Prometheus name.",
               lambda paths: resident_bytes(paths), "bytes", "process.memory.usage"),
    _of_process("process_virtual_memory_bytes", "gauge", "Size of the address space.",
               lambda paths: process.virtual_bytes(paths), "bytes", "process.memory.virtual"),
    _of_process("process_open_fds", "gauge", "File descriptors that are open.",
               lambda paths: process.open_fds(paths), "", "process.unix.file_descriptor.count"),
    _of_process("process_max_fds", "gauge", "File descriptors that may be open.",
               lambda _: descriptor_limit()),
)  # fmt: skip
PROCESS_ROWS: Final[tuple[Metric, ...]] = (
    _BUILD, process.LAG, CONTROLLER_AGES, *_BUDGET, USED_BYTES, _FITS,
    CONFIG_RELOADS, CONFIG_ACCEPTED, CONFIG_APPLIED_AT, OTLP_EXPORTS, *_KERNEL,
)  # fmt: skip


def show_process(counters: Counters, budget: MemoryBudget, paths: MemoryPaths = SYSTEM_PATHS) -> None:
    """Show the metrics of the process from now on; `paths` are the kernel's files."""
    counters.derive((_BUILD, *_KERNEL), lambda: paths)
    counters.derive(_BUDGET, lambda: budget)
    counters.derive((_FITS,), lambda: (budget, paths))
