"""What every part of one proxy is made from: its loop and clock, its configuration, its counters, its log.

Rule: nothing here decides anything, and nothing is added that only some parts use: a part takes those by themselves.
It is not in the room `core`, because that room knows no configuration.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from proxy.config.config import Config
from proxy.core.counters import Counters, gauge
from proxy.core.log import Logger
from proxy.core.loop_budget import LoopBudget

CONFIG_APPLIED_AT: Final = gauge(
    "config_last_success_timestamp_seconds",
    "Unix time at which the configuration in force was applied, at the start or by a reload.",
    "seconds",
)


class Core:
    """The core of a proxy; `config` is the configuration in force, and `pending` what waits for a restart, by key.

    A part reads its keys when it is made. A key that needs a restart never changes here; a live key does, and the part
    that keeps a value of it gets another by its settings (`proxy.app.reload`).
    """

    __slots__ = ("clock", "config", "counters", "log", "loop", "loop_budget", "pending")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: Config,
        counters: Counters,
        log: Logger,
        loop_budget: LoopBudget,
    ) -> None:
        self.loop = loop
        self.clock = loop.time
        self.counters = counters
        self.log = log
        self.loop_budget = loop_budget
        self.pending: Mapping[str, str] = {}
        self.take(config)

    def take(self, config: Config, pending: Mapping[str, str] | None = None) -> None:
        """Put a configuration in force; `pending` is what waits for a restart (None: unchanged)."""
        self.config = config
        if pending is not None:
            self.pending = pending
        self.counters[CONFIG_APPLIED_AT].value = time.time()
