"""Choose the smallest limits that hold a target, out of points that were tried. Pure: who tries them is elsewhere.

Rule: less memory over the whole fleet is better, then fewer proxies, then less heap memory. A point holds a target if
at most the allowed share of requests was refused and 99 % of those answered waited no longer than allowed. Limits are
never below a floor (`pipeline.core.bounds`), which holds the largest single list: a larger answer passes alone or not
at all. A point where many answers wait to grow is no answer either: the replay does not know what those hold up. The
headroom comes on top of what holds, and the sum is rounded up to whole MiB.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

from pipeline.core.calibration import refuse_promise
from pipeline.core.errors import PipelineError
from pipeline.core.model import MIB, Limits, rounded_up

# Points between the largest that fails and the smallest that holds, of each memory, in one round.
BETWEEN = 3
MOST_HEADROOM: Final = 100.0
# The share of all requests whose answer may wait to grow: each holds up what else comes on its connection.
MOST_GROWTHS_WAITED: Final = 0.01


@dataclass(frozen=True, slots=True)
class Target:
    """The refusals and waits that must be held, and at which load; refusals as a share of all requests."""

    load: int
    max_refused: float
    p99_wait_us: float

    def __post_init__(self) -> None:
        if self.load < 1:
            raise PipelineError(f"--load: got {self.load}, expected 1 or more")
        if not 0 <= self.max_refused <= 1:
            raise PipelineError(f"--max-refused: got {self.max_refused}, expected a share from 0 to 1")
        refuse_promise(self.p99_wait_us)


@dataclass(frozen=True, slots=True)
class Point:
    """The outcome of all requests under these limits on so many proxies; sizes are those of one proxy."""

    limits: Limits
    fleet: int
    proxies: int
    requests: int
    refused: int
    wait_p99_us: float
    peak_heap_bytes: int
    peak_direct_bytes: int
    growths_waited: int = 0

    @property
    def is_tight(self) -> bool:
        """Return whether heap memory was so tight that the replay is not to be believed."""
        return self.growths_waited > MOST_GROWTHS_WAITED * self.requests

    @property
    def memory_bytes(self) -> int:
        """Return the memory of all proxies together; 0 if one of the limits is none."""
        if not (self.limits.heap_bytes and self.limits.direct_bytes):
            return 0
        return self.proxies * (self.limits.heap_bytes + self.limits.direct_bytes)


def holds(point: Point, target: Target) -> bool:
    """Return whether a point holds the target; no limit at all is never an answer."""
    within = point.refused <= target.max_refused * point.requests and point.wait_p99_us <= target.p99_wait_us
    return within and not point.is_tight and point.memory_bytes > 0


def above(limits: Limits, least: tuple[int, int]) -> Limits:
    """Raise both memories to the least, in whole MiB; no limit stays none."""
    pairs = zip((limits.heap_bytes, limits.direct_bytes), least, strict=True)
    return _with_memory(limits, *(max(size, rounded_up(floor)) if size else 0 for size, floor in pairs))


def cheapest(points: Iterable[Point], target: Target) -> Point | None:
    """Return the best point that holds the target."""
    return min((point for point in points if holds(point, target)), key=_cost, default=None)


def best_of_each_fleet(points: Sequence[Point], target: Target) -> dict[int, Point]:
    """Return the best point for each number of proxies that has any."""
    found = {fleet: cheapest((p for p in points if p.fleet == fleet), target) for fleet in {p.fleet for p in points}}
    return {fleet: point for fleet, point in sorted(found.items()) if point is not None}


def refinements(points: Sequence[Point], best: Point, target: Target, least: tuple[int, int]) -> list[Limits]:
    """Return limits to try between the best point and the largest that failed, of heap, of direct, and of both.

    `least` is the floor of heap and of direct memory. Empty once there is nothing between in whole MiB.
    """
    memory = best.limits.heap_bytes, best.limits.direct_bytes
    like = [p for p in points if p.fleet == best.fleet and _with_memory(p.limits, *memory) == best.limits]
    failed = [(p.limits.heap_bytes, p.limits.direct_bytes) for p in like if not holds(p, target)]
    # A point that failed with less of the other memory says nothing of this one.
    heaps = _between(memory[0], [heap for heap, direct in failed if not 0 < direct < memory[1]], least[0])
    directs = _between(memory[1], [direct for heap, direct in failed if not 0 < heap < memory[0]], least[1])
    tried = {p.limits for p in like}
    wanted = [_with_memory(best.limits, *pair) for pair in product([*heaps, memory[0]], [*directs, memory[1]])]
    return [limits for limits in wanted if limits not in tried]


def refuse_headroom(headroom: float) -> None:
    """Raise PipelineError for a headroom that cannot be meant."""
    if not 0 <= headroom <= MOST_HEADROOM:
        raise PipelineError(f"--headroom: got {headroom}, expected a share from 0 to {MOST_HEADROOM:g}")


def with_headroom(limits: Limits, headroom: float, least: tuple[int, int]) -> Limits:
    """Add headroom to both memories, in whole MiB and no less than the floor."""
    heap, direct = ((1 + headroom) * size for size in (limits.heap_bytes, limits.direct_bytes))
    return _with_memory(limits, rounded_up(max(heap, least[0])), rounded_up(max(direct, least[1])))


def why_nothing(points: Sequence[Point], unbounded: Sequence[Point], target: Target) -> str:
    """Explain why no point holds, from the points of the grid and those without any memory limit."""
    closest = min(points, key=lambda one: (one.refused / max(1, one.requests), one.wait_p99_us, one.growths_waited))
    heap, direct = closest.limits.heap_bytes // MIB, closest.limits.direct_bytes // MIB
    said = [
        f"nothing in the grid holds the target at load {target.load}: the closest, heap {heap} MiB and direct {direct}"
        f" MiB on {closest.proxies} proxies, refuses {closest.refused} of {closest.requests} requests, and 99 % wait"
        f" at most about {closest.wait_p99_us / 1000:.0f} ms"
    ]
    if closest.is_tight:
        said.append(
            f"answers of {closest.growths_waited} requests wait to grow there, and hold up whole connections to brokers"
        )
    free = [p for p in unbounded if holds(replace(p, limits=_with_memory(p.limits, 1, 1)), target)]
    if free:
        enough = min(free, key=lambda p: (p.proxies * (p.peak_heap_bytes + p.peak_direct_bytes), p.proxies))
        heap, direct = (rounded_up(size) // MIB for size in (enough.peak_heap_bytes, enough.peak_direct_bytes))
        said.append(
            f"try --heap-mb {heap} --direct-mb {direct} --fleet {enough.fleet}: no request waited for memory then"
        )
    else:
        freest = min(unbounded, key=lambda point: (point.refused / max(1, point.requests), point.wait_p99_us))
        said.append(
            f"memory is not what is short: without any limit and with --fleet {freest.fleet}, {freest.refused} requests"
            f" are refused and 99 % wait at most about {freest.wait_p99_us / 1000:.0f} ms; try a larger --fleet, more"
            " --outstanding, --coalescing on, or a target that brokers and clients of that speed can hold"
        )
    return "; ".join(said)


def _cost(point: Point) -> tuple[int, int, int, int]:
    # The last keeps the choice the same whatever the order of the points is: the shorter queue.
    return point.memory_bytes, point.proxies, point.limits.heap_bytes, point.limits.heap_queue


def _with_memory(limits: Limits, heap_bytes: int, direct_bytes: int) -> Limits:
    return replace(limits, heap_bytes=heap_bytes, direct_bytes=direct_bytes)


def _between(held: int, failed: Iterable[int], least: int) -> list[int]:
    """Return sizes in whole MiB from above the largest that failed (or from the floor) to below what held."""
    floor = max((size for size in failed if size < held), default=0)
    low = max(floor // MIB + 1, rounded_up(least) // MIB)
    high = -(-held // MIB)
    if low >= high:
        return []
    steps = [low + (high - low) * part // (BETWEEN + 1) for part in range(BETWEEN + 1)]
    return [size * MIB for size in dict.fromkeys(steps)]
