"""Own the limiter's idea of time: what it asks of a clock, and nothing that reads one.

A running asyncio (or uvloop) loop satisfies the protocol as it is. Wall time never enters: it jumps.
"""

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Clock", "Timer"]


class Timer(Protocol):
    """A callback that has been asked for and can be called off."""

    def cancel(self) -> object:
        """Call the callback off; a second call, or one after the callback ran, does nothing."""


class Clock(Protocol):
    """Monotonic seconds, and callbacks at a moment of them."""

    def time(self) -> float:
        """Return the present moment, in seconds from an arbitrary start."""

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Timer:
        """Call `callback(*args)` once, at `when` or soon after."""
