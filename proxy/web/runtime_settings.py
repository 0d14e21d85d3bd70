"""The settings of a running proxy, shown and changed by the admin API and by the web port.

Rule: only the log levels are changed here. Every other key changes in `proxy.app.reload`, by a reload or by `admin
set`. A change is one step of the event loop, and is logged with the old and the new value; many changes of a second are
one line, which says how many.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from proxy.config.config import Config, ConfigError
from proxy.config.core import Core
from proxy.config.keys.key import Key
from proxy.config.page import config_document
from proxy.core.log import LEVELS, LinePace
from proxy.core.log_level import LogLevels
from proxy.relay.engine import Relay
from proxy.relay.relay_log import RelayLog
from proxy.web.http.documents import Answer, Document
from proxy.web.stats import StatsSources, stats_documents

_CONFIG: Final = "Each key with its value in force, the source of the value, and the value that waits for a restart."


class RuntimeSettings:
    """Shows the configuration of one proxy, and changes its log levels."""

    def __init__(
        self,
        core: Core,
        levels: LogLevels,
        relay_log: RelayLog,
        relays: Callable[[], Iterator[Relay]],
        compute_budget: Callable[[], object],
    ) -> None:
        self._core = core
        self._levels = levels
        self._relay_log = relay_log
        self._relays = relays
        self._compute_budget = compute_budget
        # Changes that are not in the log yet, by key: the value before the first of them, and their number.
        self._untold: dict[Key[Any], tuple[object, int]] = {}
        self._pace = LinePace()

    def documents(self) -> tuple[Document, ...]:
        """Return the documents for the web port; none with `enableProxyStatsEndpoints=false`."""
        if not self._core.config.enable_proxy_stats_endpoints:
            return ()
        config = Document("GET", "/config", lambda _: Answer(200, self.config()), _CONFIG, "ours")
        return (config, *stats_documents(StatsSources(self._relays, self._relay_log, self.change)))

    def change(self, name: str, text: str) -> None:
        """Change a key of log levels until the next reload; raises ConfigError for another value."""
        old = self._core.config
        config = old.replace({name: text})
        self._core.take(config)
        self._levels.configure(config.log_level, config.component_levels)
        if config.proxy_log_level != old.proxy_log_level:
            self._relay_log.set_level(int(config.proxy_log_level))
            # The statistics of relays are a line of the memory budget.
            self._compute_budget()
        for key in old.differences(config):
            was, changes = self._untold.get(key, (old.value(key), 0))
            self._untold[key] = was, changes + 1
        self.tell(asyncio.get_running_loop().time())

    def tell(self, now: float) -> None:
        """Log the changes since the last line, a line a second for each key; called once a second."""
        for key, (was, changes) in list(self._untold.items()):
            if self._pace.due(now, key.name):
                del self._untold[key]
                more = {"changes": changes} if changes > 1 else {}
                value = self._core.config.value(key)
                self._core.log.warning("configuration changed", key=key.name, old=was, new=value, **more)

    def config(self) -> Mapping[str, object]:
        """Return the configuration in force and the log level."""
        return {**config_document(self._core.config, self._core.pending), "log_level": self.log_level()}

    def log_level(self) -> Mapping[str, object]:
        """Return the log level, the configured level, the seconds until it changes back (None: it does not), and the
        same of each component with a level of its own.
        """
        return self._levels.document()

    def level_of(self, component: str | None) -> str:
        """Return the level in force of the log, or of a component."""
        return self._levels.of(component).level

    def change_log_level(self, level: str, seconds: float | None, component: str | None) -> None:
        """Change the level of the log, or of a component, for `seconds`, or until the next reload if None.

        Raises ValueError.
        """
        if seconds is not None:
            self._levels.of(component).set_for(level, seconds)
            return
        if level not in LEVELS:
            raise ValueError(f"level: got {level!r}, expected one of {', '.join(LEVELS)}")
        self._levels.of(component).end()
        name, text = Config.log_level.name, level
        if component is not None:
            levels = {**self._core.config.component_levels, component: level}
            name = Config.log_level_by_component.name
            text = ",".join(f"{part}={own}" for part, own in levels.items())
        try:
            self.change(name, text)
        except ConfigError as error:
            raise ValueError(str(error)) from error
