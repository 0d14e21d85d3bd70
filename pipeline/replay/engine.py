"""Replay one slice under several limits: what stands between work items and the kernel.

Rule: the requests of a warm-up are replayed like all others, and counted nowhere.
"""

from collections.abc import Sequence

from pipeline.core.model import Aggregates, Limits
from pipeline.replay.kernel import replay_many
from pipeline.replay.slices import Slice


def simulate(part: Slice, limits: Sequence[Limits], load: int = 1) -> list[Aggregates]:
    """Give what becomes of the counted requests of `part` under each of `limits`."""
    found: dict[int, Aggregates] = {}
    for fairness in dict.fromkeys(each.fairness for each in limits):
        numbers = [number for number, each in enumerate(limits) if each.fairness == fairness]
        trace = part.trace(fairness)
        many = replay_many(trace, [limits[number] for number in numbers], load, part.warm_up)
        found.update(zip(numbers, many, strict=True))
    return [found[number] for number in range(len(limits))]
