"""The log's level while the proxy runs: the configured one, or another for a while.

Rule: a level that was asked for with a time returns by itself, also if who asked for it is gone. What the
configuration says takes effect at once, unless such a time runs; then when it ends.
"""

from collections.abc import Callable
from typing import Final, Protocol

from proxy.core.log import LEVELS, Logger

LONGEST_SECONDS: Final = 86_400.0


class Timer(Protocol):
    """A callback to come."""

    def cancel(self) -> object:
        """Have it not come."""


class Timers(Protocol):
    """The part of an event loop that is used here."""

    def time(self) -> float:
        """Give the time in seconds."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer:
        """Call back after `delay` seconds."""


class LogLevel:
    """Own the level of one log; `configured` is the level that it returns to."""

    def __init__(self, log: Logger, timers: Timers, configured: str) -> None:
        self._log = log
        self._timers = timers
        self._timer: Timer | None = None
        self._ends = 0.0
        self.configured = configured

    @property
    def seconds_left(self) -> float | None:
        """Give the time until the level returns by itself; None if it does not."""
        return None if self._timer is None else max(0.0, self._ends - self._timers.time())

    def configure(self, level: str) -> None:
        """Take the level that the configuration says."""
        self.configured = level
        if self._timer is None:
            self._log.set_level(level)

    def set_for(self, level: str, seconds: float) -> None:
        """Write lines from `level` on for so long; raises ValueError for what is no level, or no time."""
        if level not in LEVELS:
            raise ValueError(f"level: got {level!r}, expected one of {', '.join(LEVELS)}")
        if not 0 < seconds <= LONGEST_SECONDS:
            raise ValueError(f"seconds: got {seconds:g}, expected more than 0, at most {LONGEST_SECONDS:g}")
        self._stop_timer()
        self._log.set_level(level)
        self._ends = self._timers.time() + seconds
        self._timer = self._timers.call_later(seconds, self._return)
        self._log.warning("log level changed for a while", new=level, old=self.configured, seconds=seconds)

    def end(self) -> None:
        """Return to the configured level now."""
        if self._timer is not None:
            self._stop_timer()
            self._return()

    def _return(self) -> None:
        self._timer = None
        was = self._log.level
        self._log.set_level(self.configured)
        self._log.warning("log level returned", new=self.configured, old=was)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
