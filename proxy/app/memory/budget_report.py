"""The memory budget as operators read it: the sum, its largest parts, and the memory that there is.

Rule: the sum is held against the container's limit if there is one, and against the machine's memory in any case.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from proxy.app.memory.budget import kernels_choice, summands, total_bytes, worst_case
from proxy.app.metrics.counters import BudgetLine, MemoryBudget
from proxy.config.config import Config
from proxy.core.log import Logger
from proxy.core.process_memory import SYSTEM_PATHS, MemoryPaths, container_limit_bytes, machine_memory_bytes
from proxy.net.tcp_buffers import tcp_buffers

LARGEST_PARTS: Final = 5
_MIB: Final = 1024 * 1024
CONTAINER: Final = "container"
MACHINE: Final = "machine"
_EXCEEDED: Final = {
    CONTAINER: "memory budget above the memory of the container",
    MACHINE: "memory budget above the memory of the machine",
}
_TWO_BUDGETS: Final = "memory budget of two processes"


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """The sum of all limits, its largest parts, and the memory of the container (None: no limit) and the machine."""

    budget_bytes: int
    largest: Sequence[tuple[str, int]]
    container_bytes: int | None
    machine_bytes: int | None
    # The key to lower first of each of the largest parts that has one.
    keys: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, budget: Sequence[BudgetLine], paths: MemoryPaths = SYSTEM_PATHS) -> Self:
        """Return the report of a budget on this machine."""
        parts = {line.owner: line.limit_bytes for line in budget}
        keys = {line.owner: line.key for line in budget}
        largest = sorted(summands(parts).items(), key=lambda part: part[1], reverse=True)[:LARGEST_PARTS]
        named = {owner: keys[owner] for owner, size in largest if size and keys.get(owner)}
        return cls(total_bytes(parts), largest, container_limit_bytes(paths), machine_memory_bytes(paths), named)

    @property
    def exceeded(self) -> str | None:
        """The owner of too little memory for the budget: container, machine, or None."""
        if self.container_bytes is not None and self.budget_bytes > self.container_bytes:
            return CONTAINER
        return MACHINE if self.machine_bytes is not None and self.budget_bytes > self.machine_bytes else None

    @property
    def keys_to_lower(self) -> list[str]:
        """The key to lower first of each of the largest parts, each key once."""
        return list(dict.fromkeys(self.keys.values()))

    def excess(self) -> str | None:
        """Return the warning that the budget does not fit, or None if it fits."""
        if (owner := self.exceeded) is None:
            return None
        has = self.container_bytes if owner == CONTAINER else self.machine_bytes
        assert has is not None
        lower = f"lower {', '.join(self.keys_to_lower)} " if self.keys else ""
        return (
            f"the configured limits allow {mib(self.budget_bytes)} of memory, the {owner} has {mib(has)}: the kernel "
            f"may end the proxy under load; {lower}(docs/capacity.md, a smaller container)"
        )

    def lines(self) -> Iterator[str]:
        """Yield the report as text."""
        container = "no limit" if self.container_bytes is None else mib(self.container_bytes)
        machine = "unknown" if self.machine_bytes is None else mib(self.machine_bytes)
        yield f"memory budget: {mib(self.budget_bytes)} at most (container: {container}, machine: {machine})"
        for name, size in self.largest:
            if size:
                yield f"  {mib(size):>12}  {name}{f' ({self.keys[name]})' if name in self.keys else ''}"
        yield f"  {mib(2 * self.budget_bytes):>12}  two at once: a process, and one that takes over (serve --take-over)"

    def document(self) -> Mapping[str, object]:
        """Return the report for JSON."""
        return {
            "budget_bytes": self.budget_bytes,
            "two_at_once_bytes": 2 * self.budget_bytes,
            "largest_parts": dict(self.largest),
            "keys_of_parts": dict(self.keys),
            "container_limit_bytes": self.container_bytes,
            "machine_bytes": self.machine_bytes,
            "fits": self.exceeded is None,
        }

    def log(self, log: Logger, kernels_choice: int) -> None:
        """Log the budget, as a warning if it does not fit."""
        fields = {
            "budget_bytes": self.budget_bytes,
            "largest_parts": {name: size for name, size in self.largest if size},
            "container_limit_bytes": self.container_bytes,
            "machine_bytes": self.machine_bytes,
        }
        if (owner := self.exceeded) is not None:
            log.warning(_EXCEEDED[owner], **fields, keys=self.keys_to_lower)
        else:
            log.info("memory budget", **fields, kernels_choice=kernels_choice)


def count_budget(budget: MemoryBudget, config: Config, *, exports: bool) -> bool:
    """Compute the worst case of all memory under a configuration; return whether it is another than before."""
    before = budget.lines
    lines = tuple(worst_case(config, exports=exports))
    total = total_bytes({line.owner: line.limit_bytes for line in lines})
    budget.take(lines, total, tuple(kernels_choice(config, tcp_buffers())))
    return lines != before


def log_budget(budget: MemoryBudget, log: Logger) -> None:
    """Log the worst case of all memory with its largest parts, and the memory of container and machine."""
    BudgetReport.of(budget.lines).log(log, sum(line.limit_bytes for line in budget.kernels_choice))


def log_two_budgets(budget: MemoryBudget, log: Logger, other_bytes: int, other_pid: int) -> None:
    """Log the sum of this process's budget and that of the process whose sockets this process takes over.

    Rule: the sum is held against the machine alone: each process may have a container of its own.
    """
    report = BudgetReport.of(budget.lines)
    both = report.budget_bytes + other_bytes
    fields = {"budget_bytes": both, "machine_bytes": report.machine_bytes, "pid": other_pid}
    if report.machine_bytes is None or both <= report.machine_bytes:
        log.info(_TWO_BUDGETS, **fields)
    else:
        log.warning(_TWO_BUDGETS, **fields, keys=report.keys_to_lower)


def mib(count: int) -> str:
    """Return a number of bytes in MiB, as text."""
    return f"{count / _MIB:,.0f} MiB"
