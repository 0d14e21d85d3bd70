"""The advice as a fragment of proxy.conf: every key that the replay went by, each with the reason for its value.

Rule: the proxy's own `check-config` accepts it, and a test lets it do so. Pure; the names of the keys are the proxy's.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from pipeline.core.bounds import EXTRAPOLATED, WatchShare, direct_for, extrapolated
from pipeline.core.calibration import Judged
from pipeline.core.choice import Point, Target
from pipeline.core.model import LIMIT_KEYS, MIB, Limits

# Every fragment begins with them.
FIRST_WORDS: Final = "# Target: "

_MEMORIES: Final = ("heap_bytes", "direct_bytes")


@dataclass(frozen=True, slots=True)
class Advice:
    """The choice, and what led there: the smallest that held, the headroom, and the point that was set for it."""

    target: Target
    held: Point
    final: Point
    headroom: float
    recorded: Limits
    largest: tuple[int, int]
    calibration: Judged
    imputed_share: float
    watch: WatchShare
    floor: tuple[int, int]
    unproven_percent: int = 100
    spill_bytes: int = 0

    @property
    def limits(self) -> Limits:
        """Return what is advised: enough that lists have what was replayed for them, and the room for watch frames."""
        return advised(self.final.limits, self.watch, self.unproven_percent)

    @property
    def extrapolated(self) -> dict[str, str]:
        return extrapolated(self.limits, self.recorded, self.target.load)


def advised(tried: Limits, watch: WatchShare, unproven_percent: int) -> Limits:
    """Return the limits to set where lists need those that were tried."""
    return replace(tried, direct_bytes=direct_for(tried.direct_bytes, unproven_percent) + watch.size_bytes)


def fragment(advice: Advice) -> str:
    """Write the advice as lines of proxy.conf."""
    lines = [*(f"# {line}" for line in _reasons(advice)), ""]
    risks = advice.extrapolated
    for field, known in LIMIT_KEYS.items():
        value, before = (_value(field, limits) for limits in (advice.limits, advice.recorded))
        if field in _MEMORIES:
            lines.append(f"# recorded: {before}; {_memory(_MEMORIES.index(field), advice)}")
        else:
            lines.append("# as recorded" if value == before else f"# recorded: {before}; better in the grid")
        if field in risks:
            lines.append(f"# {EXTRAPOLATED}, recorded: {before}. The risk: {risks[field]}")
        lines.append(f"{known.key}={value}")
    return "\n".join(lines) + "\n"


def _reasons(advice: Advice) -> list[str]:
    target, final, held, calibration = advice.target, advice.final, advice.held, advice.calibration
    refusals = f"at most {100 * target.max_refused:g} % refused" if target.max_refused else "no refusals"
    risks = {"load" if name == "load" else LIMIT_KEYS[name].key: risk for name, risk in advice.extrapolated.items()}
    load = "the recorded load" if target.load == 1 else f"{target.load} times the recorded load"
    beyond = f" {EXTRAPOLATED.capitalize()}, so nobody has seen it: {', '.join(risks)}." if risks else ""
    said = [
        f"Target: {refusals}, and 99 % of the answered wait at most {target.p99_wait_us / 1000:g} ms, at"
        f" {load}.{beyond}",
        f"For {final.proxies} proxies ({final.fleet} for each recorded one), each with these keys.",
        f"Smallest that held it in the replay: heap {_mib(held.limits.heap_bytes)} MiB, direct"
        f" {_mib(held.limits.direct_bytes)} MiB; with {100 * advice.headroom:g} % of headroom, replayed again:"
        f" {final.refused} of {final.requests} refused, 99 % of the answered waited at most about"
        f" {final.wait_p99_us / 1000:.0f} ms.",
        f"Error of the replay of the recorded limits: {calibration.error:.3f}; of the p99 of waits"
        f" {calibration.wait_error:.3f} ({calibration.waits}).",
        calibration.refusals and f"{calibration.refusals}.",
        f"Sizes or times imputed: {100 * advice.imputed_share:.1f} % of the requests.",
        *_not_replayed(advice),
        "load" in risks and f"The risk of the load: {risks['load']}.",
    ]
    return [line for line in said if line]


def _not_replayed(advice: Advice) -> Iterator[str]:
    """Yield what the advice does about watchers, and about rules that are not replayed."""
    watch = advice.watch
    if watch.size_bytes:
        yield (
            f"{_mib(watch.size_bytes)} MiB of direct memory are for watchers, on top of what was replayed: their frames"
            f" held at most {_mib(watch.peak_bytes)} MiB at one proxy, and the load is {advice.target.load} times the"
            f" recorded one on {advice.final.fleet} times the proxies."
        )
    if advice.unproven_percent < 100:
        lists = _mib(advice.final.limits.direct_bytes)
        yield (
            f"Clients that have not shown that they read have {advice.unproven_percent} % of direct memory"
            f" (topicListUnprovenReadersMemoryPercent), and after a network fault nobody has: of the advised direct"
            f" memory that part is the {lists} MiB that lists needed in the replay."
        )
    if advice.spill_bytes:
        yield (
            "Recorded with a disk for lists of slow readers (topicListSpillDirectory): without the disk lists hold"
            " direct memory longer than in the replay. Keep the disk, or record without it."
        )


def _memory(which: int, advice: Advice) -> str:
    """Describe what led to the heap (0) or to the direct memory (1)."""
    peak = (advice.final.peak_heap_bytes, advice.final.peak_direct_bytes)[which]
    largest, floor, watch = advice.largest[which], advice.floor[which], advice.watch.size_bytes
    seen = floor * 100 // advice.unproven_percent if which else floor
    least = f", not below {_mib(seen)} MiB, which was seen in use" if floor > largest else ""
    room = f", {_mib(watch)} MiB of it for watchers" if watch and which else ""
    return f"peak in the replay {_mib(peak)} MiB, largest single list {_mib(largest)} MiB{least}{room}"


def _value(field: str, limits: Limits) -> str:
    value = getattr(limits, field)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(-(-value // LIMIT_KEYS[field].unit))


def _mib(size: int) -> str:
    return f"{size / MIB:.1f}".removesuffix(".0")
