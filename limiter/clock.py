"""The clock that the limiter needs, as a protocol; a running asyncio (or uvloop) loop satisfies the protocol.

Wall time is never used: wall time jumps.
"""

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Clock", "Timer"]


class Timer(Protocol):
    """A scheduled callback that can be cancelled."""

    def cancel(self) -> object:
        """Cancel the callback; a second call, or a call after the callback ran, does nothing."""


class Clock(Protocol):
    """Monotonic seconds, and callbacks at a given moment."""

    def time(self) -> float:
        """Return the present moment, in seconds from an arbitrary start."""

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call `callback(*args)` once, at `when` or soon after."""
