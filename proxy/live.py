"""What an operator may ask of a running proxy, and change of it: over the control socket, and on the web port.

Rule: nothing but the two log levels is changed here; all else comes from the configuration's sources by a reload. A
change is one step of the event loop, and in the log with its old and new value.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from proxy.config import Config, ConfigError
from proxy.config_page import config_document
from proxy.control import Answers
from proxy.log import LEVELS, Logger
from proxy.log_level import LogLevel
from proxy.relay import Relay
from proxy.relay_log import RelayLog
from proxy.web.documents import Answer, Document
from proxy.web.stats import StatsSources, stats_documents

_CONFIG: Final = "Each key with its value in force, where that came from, and what waits for a restart."


class Operated(Protocol):
    """The part of a proxy that is used here."""

    config: Config

    @property
    def pending(self) -> Mapping[str, str]:
        """Values that wait for a restart."""

    def take_config(self, config: Config) -> None:
        """Keep the configuration in force."""


class Live:
    """Answer for one proxy; `top` makes the document of `pulsar-proxy top`."""

    def __init__(
        self,
        proxy: Operated,
        log: Logger,
        level: LogLevel,
        relay_log: RelayLog,
        relays: Callable[[], Iterator[Relay]],
        top: Callable[[], Mapping[str, object]],
    ) -> None:
        self._proxy = proxy
        self._log = log
        self._level = level
        self._relay_log = relay_log
        self._relays = relays
        self._top = top

    def answers(self) -> Answers:
        """Give what the control socket answers."""
        return Answers({"top": self._top, "config": self._config}, {"log-level": self._log_level})

    def documents(self) -> tuple[Document, ...]:
        """Give the documents of the web port; none with `enableProxyStatsEndpoints=false`."""
        if not self._proxy.config.enable_proxy_stats_endpoints:
            return ()
        config = Document("GET", "/config", lambda _: Answer(200, self._config()), _CONFIG, "ours")
        return (config, *stats_documents(StatsSources(self._relays, self._relay_log, self.change)))

    def change(self, name: str, text: str) -> None:
        """Change `logLevel` or `proxyLogLevel` until the next reload; raises ConfigError for another value."""
        old = self._proxy.config
        config = old.replace({name: text})
        self._proxy.take_config(config)
        self._level.configure(config.log_level)
        if config.proxy_log_level != old.proxy_log_level:
            self._relay_log.set_level(int(config.proxy_log_level))
        for key in old.differences(config):
            was, now = getattr(old, key.attribute), getattr(config, key.attribute)
            self._log.warning("configuration changed", key=key.name, old=was, new=now)

    def _config(self) -> Mapping[str, object]:
        left = self._level.seconds_left
        level = {"level": self._log.level, "configured": self._level.configured, "seconds_left": left}
        return {**config_document(self._proxy.config, self._proxy.pending), "log_level": level}

    def _log_level(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        """Take `level`, and `seconds` if it is to return by itself; without a level say how it stands."""
        level, seconds = request.get("level"), request.get("seconds")
        if level is not None:
            if not isinstance(level, str) or level not in LEVELS:
                raise ValueError(f"level: got {level!r}, expected one of {', '.join(LEVELS)}")
            if seconds is None:
                self._level.end()
                self._change_or_say(level)
            elif isinstance(seconds, int | float) and not isinstance(seconds, bool):
                self._level.set_for(level, float(seconds))
            else:
                raise ValueError(f"seconds: got {seconds!r}, expected a number")
        left = self._level.seconds_left
        return {"level": self._log.level, "configured": self._level.configured, "seconds_left": left}

    def _change_or_say(self, level: str) -> None:
        try:
            self.change(Config.log_level.name, level)
        except ConfigError as error:
            raise ValueError(str(error)) from error
