"""The promise of the demo, the check that it held, and the table of results.

Rule: these are pure functions of figures. The promise is the bound of docs/memory.md: the most that the memory of the
proxy may grow in any storm of topic lists.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from proxy.cli.demo.storm import StormPlan, StormTally

MIB: Final = 1024 * 1024
CONNECTION_BYTES: Final = 8 * 1024
_LIMIT_FACTOR: Final = 1.15
_MOST_REFUSALS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a storm; `idle_bytes` and `peak_bytes` are the proxy's resident memory before it and at most.

    `limits` are heap and direct memory in bytes. `beside` are the parts of the budget for the event log and for lists
    on their way to and from the disk, where there are such; `lists_on_disk` is None without a directory.
    """

    plan: StormPlan
    tally: StormTally
    limits: tuple[int, int]
    idle_bytes: int
    peak_bytes: int
    broker_questions: int
    broker_most_outstanding: int
    beside: Mapping[str, int] = field(default_factory=dict)
    lists_on_disk: int | None = None

    @property
    def growth_bytes(self) -> int:
        """The growth of the proxy's memory in the storm."""
        return self.peak_bytes - self.idle_bytes

    @property
    def allowed_bytes(self) -> int:
        """The promised bound of the growth."""
        answers = CONNECTION_BYTES * self.plan.connections + 2 * self.tally.largest_answer_bytes
        return int(_LIMIT_FACTOR * sum(self.limits)) + answers + sum(self.beside.values())


def broken_promises(outcome: Outcome, *, accept_refusals: bool = False) -> list[str]:
    """Return a line for each broken promise."""
    tally = outcome.tally
    refused = 0 if accept_refusals else tally.refused
    counts = ((refused, "refused"), (tally.lost, "lost"), (tally.wrong, "answered wrongly"))
    broken = [f"{count} requests were {what}, expected 0" for count, what in counts if count]
    if outcome.growth_bytes > outcome.allowed_bytes:
        broken.append(
            f"the proxy grew by {mib(outcome.growth_bytes)}, expected at most {mib(outcome.allowed_bytes)} "
            f"(maxTopicListInFlightHeapMemSizeMB, maxTopicListInFlightDirectMemSizeMB)"
        )
    return broken


def render(outcome: Outcome, *, accept_refusals: bool = False) -> str:
    """Return the table and the verdict as text."""
    plan, tally = outcome.plan, outcome.tally
    beside = "".join(f" + {name} {mib(size)}" for name, size in outcome.beside.items())
    slow = sum(map(plan.slow, range(plan.connections)))
    heap, direct = map(mib, outcome.limits)
    rows = [
        ("connections", f"{plan.connections:,}, of which {slow:,} begin to read after {plan.late_seconds:g} s"),
        ("requests", f"{tally.expected:,}, all at once"),
        ("answers", f"{tally.answered:,}"),
        ("refused", f"{tally.refused:,}"),
        *(("", f"{count} x {text}") for text, count in tally.refusals.most_common(_MOST_REFUSALS_SHOWN)),
        ("lost", f"{tally.lost:,}"),
        ("wrong", f"{tally.wrong:,}"),
        ("received", f"{mib(tally.received_bytes)} in {tally.seconds:.1f} s"),
        ("longest wait", f"{tally.longest_wait_seconds:.1f} s"),
        ("of a quick client", f"{tally.longest_quick_wait_seconds:.1f} s"),
        ("lists that went to disk", "no directory" if outcome.lists_on_disk is None else f"{outcome.lists_on_disk:,}"),
        ("requests to broker",
         f"{outcome.broker_questions:,} in all, at most {outcome.broker_most_outstanding:,} at once"),
        ("all answers together", mib(tally.expected * tally.largest_answer_bytes)),
        ("limits", f"heap {heap} + direct {direct}"),
        ("proxy at rest", mib(outcome.idle_bytes)),
        ("proxy at most", mib(outcome.peak_bytes)),
        ("growth", mib(outcome.growth_bytes)),
        ("allowed",
         f"{mib(outcome.allowed_bytes)} = 1.15 x limits + 8 KiB x connections + 2 x largest answer{beside}"),
    ]  # fmt: skip
    kept = "every request answered or refused" if accept_refusals else "every request answered"
    broken = broken_promises(outcome, accept_refusals=accept_refusals)
    return table(rows, broken, f"The promise held: {kept}, memory within its bound.")


def table(rows: Sequence[tuple[str, str]], broken: Sequence[str], kept: str) -> str:
    """Return rows and a verdict as text."""
    width = max(len(name) for name, _ in rows)
    verdict = [f"BROKEN: {text}" for text in broken] or [kept]
    return "\n".join([*(f"  {name:<{width}}  {value}" for name, value in rows), "", *verdict])


def mib(count: float) -> str:
    """Format a number of bytes in MiB."""
    return f"{count / MIB:,.1f} MiB"
