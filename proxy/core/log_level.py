"""The log's level while the proxy runs: the configured level, or another level for a limited time.

Rule: the configured level returns by itself when that time is over, also if the operator who asked is gone. A change
of the configured level takes effect at once, but not before the end of such a time.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from limiter.clock import Clock, Timer
from proxy.core.log import AS_THE_REST, LEVELS, Logger

LONGEST_SECONDS: Final = 86_400.0


class LogLevel:
    """The level of a log, or of a component of the log; `configured` is the level that returns after a temporary one.

    A component whose configured level is `AS_THE_REST` has the level of the whole log.
    """

    def __init__(self, log: Logger, clock: Clock, configured: str) -> None:
        self._log = log
        self._clock = clock
        self._timer: Timer | None = None
        self._ends = 0.0
        self.configured = configured

    @property
    def level(self) -> str:
        """The level in force."""
        return self._log.level

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the configured level returns; None if the level is the configured one."""
        return None if self._timer is None else max(0.0, self._ends - self._clock.time())

    def configure(self, level: str) -> None:
        """Change the configured level; while a temporary level is in force, the log keeps that one."""
        self.configured = level
        if self._timer is None:
            self._log.set_level(level)

    def set_for(self, level: str, seconds: float) -> None:
        """Use `level` for `seconds`; raise ValueError for an unknown level or a time out of range."""
        if level not in LEVELS:
            raise ValueError(f"level: got {level!r}, expected one of {', '.join(LEVELS)}")
        if not 0 < seconds <= LONGEST_SECONDS:
            raise ValueError(f"seconds: got {seconds:g}, expected more than 0, at most {LONGEST_SECONDS:g}")
        self._stop_timer()
        self._log.set_level(level)
        self._ends = self._clock.time() + seconds
        self._timer = self._clock.call_at(self._ends, self._return)
        old = self.configured or "as the rest"
        self._log.warning("log level changed for a while", new=level, old=old, seconds=seconds)

    def end(self) -> None:
        """End a temporary level now."""
        if self._timer is not None:
            self._stop_timer()
            self._return()

    def document(self) -> Mapping[str, object]:
        """Return the level, the configured level and the seconds until that one returns, for operators."""
        return {"level": self.level, "configured": self.configured, "seconds_left": self.seconds_left}

    def _return(self) -> None:
        self._timer = None
        was = self._log.level
        self._log.set_level(self.configured)
        self._log.warning("log level returned", new=self._log.level, old=was)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class LogLevels:
    """The level of the whole log, and of each component."""

    def __init__(
        self, log: Logger, clock: Clock, components: Iterable[str], level: str, by_component: Mapping[str, str]
    ) -> None:
        self.whole = LogLevel(log, clock, level)
        self.components = {name: LogLevel(log.of(name), clock, AS_THE_REST) for name in components}
        self._configure_components(by_component)

    def configure(self, level: str, by_component: Mapping[str, str]) -> None:
        """Change the configured levels; a component that is not named follows the whole log."""
        self.whole.configure(level)
        self._configure_components(by_component)

    def _configure_components(self, by_component: Mapping[str, str]) -> None:
        for name, component in self.components.items():
            component.configure(by_component.get(name, AS_THE_REST))

    def of(self, component: str | None) -> LogLevel:
        """Return the level of a component, or of the whole log (None); raise KeyError for an unknown component."""
        return self.whole if component is None else self.components[component]

    def end(self) -> None:
        """End all temporary levels now."""
        for level in (self.whole, *self.components.values()):
            level.end()

    def document(self) -> Mapping[str, object]:
        """Return the levels for operators: of the components only those with a level of their own."""
        own = {
            name: level.document()
            for name, level in self.components.items()
            if level.configured or level.seconds_left is not None
        }
        return {**self.whole.document(), "components": own}
