"""The processors that this process may use: by its affinity, and by the quota of its container.

Rule: paths and the affinity are arguments, and an absent or unreadable file is no limit, as in `process_memory.py`,
whose reading of cgroups this file shares.
"""

import os
from collections.abc import Callable
from typing import Final

from proxy.core.process_memory import SYSTEM_PATHS, MemoryPaths, parse_cgroups, read_text, texts_upwards

_QUOTA_V1: Final = "cpu.cfs_quota_us"
_PERIOD_V1: Final = "cpu.cfs_period_us"


def usable_processors(
    paths: MemoryPaths = SYSTEM_PATHS, affinity: Callable[[int], set[int]] = os.sched_getaffinity
) -> int:
    """Return how many processors this process may use at a time, at least one; a part of a processor counts as one."""
    quota = _quota(paths)
    allowed = len(affinity(0))
    return max(1, allowed if quota is None else min(allowed, quota))


def _quota(paths: MemoryPaths) -> int | None:
    """Return the smallest quota of the process's cgroup and its ancestors, in processors."""
    groups = parse_cgroups(read_text(paths.process / "cgroup"))
    quotas: list[int | None] = []
    if "" in groups:
        quotas += (_processors(*_pair(text)) for text in texts_upwards(paths.cgroups, groups[""], "cpu.max"))
    if "cpu" in groups:
        root, group = paths.cgroups / "cpu", groups["cpu"]
        files = zip(texts_upwards(root, group, _QUOTA_V1), texts_upwards(root, group, _PERIOD_V1), strict=False)
        quotas += (_processors(quota, period) for quota, period in files)
    return min((quota for quota in quotas if quota is not None), default=None)


def _pair(text: str) -> tuple[str, str]:
    quota, _, period = text.strip().partition(" ")
    return quota, period


def _processors(quota: str, period: str) -> int | None:
    """Return a quota rounded up to whole processors; None for "max", -1 and whatever is no number."""
    if not (quota.strip().isdecimal() and period.strip().isdecimal()) or not int(period):
        return None
    return -(-int(quota) // int(period))
