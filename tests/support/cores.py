"""The core of a proxy on the test's loop, for parts that a test makes by itself."""

import asyncio
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.counters import Counters
from proxy.core.log import Logger, open_log
from proxy.core.loop_budget import LoopBudget
from tests.support.configured import configured


@cache
def _defaults() -> Config:
    return configured()


def core_of(
    *,
    config: Config | None = None,
    counters: Counters | None = None,
    log: Logger | None = None,
    clock: Callable[[], float] = time.perf_counter,
    loop: Any = None,
) -> Core:
    """Return a core; `clock` is that of its loop budget, and everything else is as with the defaults."""
    loop = asyncio.get_running_loop() if loop is None else loop
    return Core(loop, config or _defaults(), counters or Counters(), log or open_log("error"), LoopBudget(loop, clock))
