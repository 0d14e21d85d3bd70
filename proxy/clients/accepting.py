"""Whether new clients are taken: an operator may pause that, for a while or until somebody resumes it.

Rule: the ports stay open during a pause, so that clients hear at once that they may come again. Clients that are
connected notice nothing. A pause does not outlive the process.
"""

from limiter.clock import Clock, Timer
from proxy.core.log import Logger


class Accepting:
    """The pause of one proxy; `paused` while new clients are turned away with the cause `paused`."""

    def __init__(self, clock: Clock, log: Logger) -> None:
        self._clock = clock
        self._log = log
        self._timer: Timer | None = None
        self._ends = 0.0
        self.paused = False

    @property
    def seconds_left(self) -> float | None:
        """Seconds until new clients are taken again; None without a pause, or if only `resume` ends it."""
        return None if self._timer is None else max(0.0, self._ends - self._clock.time())

    def pause(self, seconds: float | None) -> None:
        """Turn new clients away for `seconds`, or until `resume` if None; replace the time of an earlier pause."""
        self._stop_timer()
        self.paused = True
        if seconds is not None:
            self._ends = self._clock.time() + seconds
            self._timer = self._clock.call_at(self._ends, self._over)

    def resume(self) -> None:
        """Take new clients again; do nothing without a pause."""
        self._stop_timer()
        self.paused = False

    def _over(self) -> None:
        self.resume()
        self._log.warning("new clients are taken again", reason="the time of the pause is over")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
