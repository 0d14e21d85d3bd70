"""What an operator may ask of a running proxy, and change of it: by the admin API, and on the web port.

Rule: nothing but the two log levels is changed here; all else comes from the configuration's sources by a reload. A
change is one step of the event loop, and in the log with its old and new value.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from proxy.config.config import Config, ConfigError
from proxy.config.page import config_document
from proxy.core.log import LEVELS, Logger
from proxy.core.log_level import LogLevel
from proxy.relay.relay import Relay
from proxy.relay.relay_log import RelayLog
from proxy.web.http.documents import Answer, Document
from proxy.web.stats import StatsSources, stats_documents

_CONFIG: Final = "Each key with its value in force, where that came from, and what waits for a restart."


class ConfigHolder(Protocol):
    """The part of a proxy that is used here."""

    config: Config

    @property
    def pending(self) -> Mapping[str, str]:
        """Values that wait for a restart."""

    def take_config(self, config: Config) -> None:
        """Keep the configuration in force."""

    def add_up(self, config: Config) -> None:
        """Note the worst case of all memory under this configuration."""


class RuntimeSettings:
    """Answer for one proxy."""

    def __init__(
        self,
        proxy: ConfigHolder,
        log: Logger,
        level: LogLevel,
        relay_log: RelayLog,
        relays: Callable[[], Iterator[Relay]],
    ) -> None:
        self._proxy = proxy
        self._log = log
        self._level = level
        self._relay_log = relay_log
        self._relays = relays

    def documents(self) -> tuple[Document, ...]:
        """Give the documents of the web port; none with `enableProxyStatsEndpoints=false`."""
        if not self._proxy.config.enable_proxy_stats_endpoints:
            return ()
        config = Document("GET", "/config", lambda _: Answer(200, self.config()), _CONFIG, "ours")
        return (config, *stats_documents(StatsSources(self._relays, self._relay_log, self.change)))

    def change(self, name: str, text: str) -> None:
        """Change `logLevel` or `proxyLogLevel` until the next reload; raises ConfigError for another value."""
        old = self._proxy.config
        config = old.replace({name: text})
        self._proxy.take_config(config)
        self._level.configure(config.log_level)
        if config.proxy_log_level != old.proxy_log_level:
            self._relay_log.set_level(int(config.proxy_log_level))
            # What is shown of relays has a line in it.
            self._proxy.add_up(config)
        for key in old.differences(config):
            was, now = old.value(key), config.value(key)
            self._log.warning("configuration changed", key=key.name, old=was, new=now)

    def config(self) -> Mapping[str, object]:
        """Give the configuration in force, and how the log level stands."""
        return {**config_document(self._proxy.config, self._proxy.pending), "log_level": self.log_level()}

    def log_level(self) -> Mapping[str, object]:
        """Give the log level, what it returns to, and when: None if it does not by itself."""
        left = self._level.seconds_left
        return {"level": self._log.level, "configured": self._level.configured, "seconds_left": left}

    def change_log_level(self, level: str, seconds: float | None) -> None:
        """Change the log level for so long, or until the next reload; raises ValueError."""
        if seconds is not None:
            self._level.set_for(level, seconds)
            return
        if level not in LEVELS:
            raise ValueError(f"level: got {level!r}, expected one of {', '.join(LEVELS)}")
        self._level.end()
        try:
            self.change(Config.log_level.name, level)
        except ConfigError as error:
            raise ValueError(str(error)) from error
