"""The advice as a fragment of proxy.conf: every key that the replay went by, each with the reason for its value.

Rule: the proxy's own `check-config` accepts it, and a test lets it do so. Pure; the names of the keys are the proxy's.
"""

from dataclasses import dataclass, replace
from typing import Final

from pipeline.core.bounds import EXTRAPOLATED, WatchShare, direct_for, extrapolated
from pipeline.core.calibration import Judged
from pipeline.core.choice import Point, Target
from pipeline.core.model import MIB, Limits

# Every fragment begins with them.
FIRST_WORDS: Final = "# Target: "

_KEYS: Final[dict[str, str]] = {
    "heap_bytes": "maxTopicListInFlightHeapMemSizeMB",
    "direct_bytes": "maxTopicListInFlightDirectMemSizeMB",
    "heap_timeout_us": "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis",
    "direct_timeout_us": "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis",
    "heap_queue": "maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize",
    "direct_queue": "maxTopicListInFlightDirectMemSizePermitsAcquireQueueSize",
    "request_timeout_us": "topicListRequestTimeoutMillis",
    "max_outstanding_per_broker": "topicListMaxOutstandingPerBroker",
    "coalescing": "topicListCoalescingEnabled",
    "fairness": "topicListFairness",
    "key_cap_percent": "topicListMaxMemoryPercentPerKey",
}
_FACTORS: Final[dict[str, int]] = {
    "heap_bytes": MIB,
    "direct_bytes": MIB,
    "heap_timeout_us": 1000,
    "direct_timeout_us": 1000,
    "request_timeout_us": 1000,
}


@dataclass(frozen=True, slots=True)
class Advice:
    """What was chosen, and what led there: the smallest that held, the headroom, and the point that was set for it."""

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
        """Give what is advised: enough that lists have what was replayed for them, and the room for watch frames."""
        return advised(self.final.limits, self.watch, self.unproven_percent)

    @property
    def extrapolated(self) -> dict[str, str]:
        """Give the risks of values beyond half to twice the recorded ones, by field; and of the load."""
        return extrapolated(self.limits, self.recorded, self.target.load)


def advised(tried: Limits, watch: WatchShare, unproven_percent: int) -> Limits:
    """Give the limits to set where lists need those that were tried."""
    return replace(tried, direct_bytes=direct_for(tried.direct_bytes, unproven_percent) + watch.size_bytes)


def fragment(advice: Advice) -> str:
    """Write the advice as lines of proxy.conf."""
    lines = [*(f"# {line}" for line in _reasons(advice)), ""]
    risks = advice.extrapolated
    for field, key in _KEYS.items():
        value, before = (_value(field, limits) for limits in (advice.limits, advice.recorded))
        reason = _reason(field, advice)
        if reason is None:
            reason = "as recorded" if value == before else f"recorded: {before}; better in the grid"
        lines.append(f"# {reason}")
        if field in risks:
            lines.append(f"# {EXTRAPOLATED}, recorded: {before}. The risk: {risks[field]}")
        lines.append(f"{key}={value}")
    return "\n".join(lines) + "\n"


def _reasons(advice: Advice) -> list[str]:
    target, final, held = advice.target, advice.final, advice.held
    refusals = f"at most {100 * target.max_refused:g} % refused" if target.max_refused else "no refusals"
    return [
        f"Target: {refusals}, and 99 % wait at most {target.p99_wait_us / 1000:g} ms,"
        f" at {target.load} times the recorded load.",
        f"For {final.proxies} proxies ({final.fleet} for each recorded one), each with these keys.",
        f"Smallest that held it in the replay: heap {_mib(held.limits.heap_bytes)} MiB, direct"
        f" {_mib(held.limits.direct_bytes)} MiB; with {100 * advice.headroom:g} % of headroom, replayed again:"
        f" {final.refused} of {final.requests} refused, 99 % waited at most about {final.wait_p99_us / 1000:.0f} ms.",
        f"Error of the replay of the recorded limits: {advice.calibration.error:.3f}; of the p99 of waits"
        f" {advice.calibration.wait_error:.3f} ({advice.calibration.waits}).",
        *([f"{advice.calibration.refusals}."] if advice.calibration.refusals else []),
        f"Sizes or times imputed: {100 * advice.imputed_share:.1f} % of the requests.",
        *_watchers(advice),
        *_other_rules(advice),
        *([f"The load is {EXTRAPOLATED}: {risk}."] if (risk := advice.extrapolated.get("load")) else []),
    ]


def _other_rules(advice: Advice) -> list[str]:
    """Say what the advice does about rules that are not replayed."""
    said = []
    if advice.unproven_percent < 100:
        lists = _mib(advice.final.limits.direct_bytes)
        said.append(
            f"Clients that have not shown that they read have {advice.unproven_percent} % of direct memory"
            f" (topicListUnprovenReadersMemoryPercent), and after a network fault nobody has: of the advised direct"
            f" memory that part is the {lists} MiB that lists needed in the replay."
        )
    if advice.spill_bytes:
        said.append(
            "Recorded with a disk for lists of slow readers (topicListSpillDirectory): without the disk lists hold"
            " direct memory longer than in the replay. Keep the disk, or record without it."
        )
    return said


def _watchers(advice: Advice) -> list[str]:
    watch = advice.watch
    if not watch.size_bytes:
        return []
    return [
        f"{_mib(watch.size_bytes)} MiB of direct memory are for watchers, on top of what was replayed: their frames"
        f" held at most {_mib(watch.peak_bytes)} MiB at one proxy, and the load is {advice.target.load} times the"
        f" recorded one on {advice.final.fleet} times the proxies."
    ]


def _reason(field: str, advice: Advice) -> str | None:
    if field not in ("heap_bytes", "direct_bytes"):
        return None
    heap = field == "heap_bytes"
    peak = advice.final.peak_heap_bytes if heap else advice.final.peak_direct_bytes
    largest = advice.largest[0 if heap else 1]
    floor = advice.floor[0 if heap else 1]
    least = f", not below {_mib(floor)} MiB, which was seen in use" if floor > largest else ""
    watch = advice.watch.size_bytes
    room = f", {_mib(watch)} MiB of it for watchers" if watch and not heap else ""
    return (
        f"recorded: {_value(field, advice.recorded)}; peak in the replay {_mib(peak)} MiB,"
        f" largest single list {_mib(largest)} MiB{least}{room}"
    )


def _value(field: str, limits: Limits) -> str:
    value = getattr(limits, field)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(-(-value // _FACTORS[field]) if field in _FACTORS else value)


def _mib(size: int) -> str:
    return f"{size / MIB:.1f}".removesuffix(".0")
