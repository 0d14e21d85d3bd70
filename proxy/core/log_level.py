"""The log's level while the proxy runs: the configured level, or another level for a limited time.

Rule: the configured level returns by itself when that time is over, also if the operator who asked is gone. A change
of the configured level takes effect at once, but not before the end of such a time.
"""

from typing import Final

from limiter.clock import Clock, Timer
from proxy.core.log import LEVELS, Logger

LONGEST_SECONDS: Final = 86_400.0


class LogLevel:
    """The level of one log; `configured` is the level that returns after a temporary one."""

    def __init__(self, log: Logger, clock: Clock, configured: str) -> None:
        self._log = log
        self._clock = clock
        self._timer: Timer | None = None
        self._ends = 0.0
        self.configured = configured

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
        self._log.warning("log level changed for a while", new=level, old=self.configured, seconds=seconds)

    def end(self) -> None:
        """End a temporary level now."""
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
