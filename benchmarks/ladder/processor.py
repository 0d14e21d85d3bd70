"""Owns what processor time says: how much a unit costs each process, what was the limit of a run, and whether its
throughput counts. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final

# The busy share of all cores together, and of one core by the busiest thread of what is measured. Below both a run
# waited for something else than processors, and its throughput says nothing.
CORES_BUSY: Final = 0.9
THREAD_BUSY: Final = 0.95

# The processes of a run, by the names that the load generator reports them under.
PROXY, BROKER, LOAD = PROCESSES = ("proxy", "broker", "load")
# Microseconds per unit; those of the proxy are what nearly all is about.
CPU: Final = {PROXY: "cpu_us", BROKER: "broker_cpu_us", LOAD: "load_cpu_us"}

Report = Mapping[str, float | str]


@dataclass(frozen=True)
class Processor:
    """The load of a row's runs on the machine, medians: cores in all, and the busiest thread of what is measured."""

    cores_busy: float
    thread_busy: float
    limits: tuple[str, ...]  # "cores", "thread", both, or nothing: then no throughput counts

    def as_json(self) -> dict[str, float | list[str]]:
        return asdict(self) | {"limits": list(self.limits)}


def per_unit(report: Report, quantity: str) -> dict[str, float]:
    """Return the processor time of each process per unit, microseconds; `quantity` says how many units a second.

    A run in which nothing was answered has no such figures.
    """
    units = float(report[quantity])
    found = {key: f"{name}_cores" for name, key in CPU.items() if f"{name}_cores" in report}
    return {key: round(float(report[cores]) * 1e6 / units, 3) for key, cores in found.items() if units > 0}


def processor(reports: Sequence[Report], cores: int) -> Processor | None:
    """Return what the runs of a row took of a machine's cores; nothing if processor time was not looked at."""
    if not reports or f"{LOAD}_cores" not in reports[0]:
        return None
    busy = median(sum(float(report.get(f"{name}_cores", 0)) for name in PROCESSES) for report in reports)
    thread = median(_busiest(report) for report in reports)
    reached = {"cores": busy >= CORES_BUSY * cores, "thread": thread >= THREAD_BUSY}
    return Processor(round(busy, 3), round(thread, 3), tuple(name for name, is_limit in reached.items() if is_limit))


def _busiest(report: Report) -> float:
    """Return the busiest thread of the proxy; where there is none, of the broker in its place."""
    return float(report.get(f"{PROXY}_thread", report.get(f"{BROKER}_thread", 0)))
