"""The interface of an engine, which does the work of one part, again and again, in a process of its own."""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["THREADS", "Engine"]

THREADS: Final = 2


class Engine(Protocol):
    """An engine, ready to run; made with where its source is and where its tables go."""

    def run(self) -> None:
        """Make all tables of the part, in place of what was there."""

    def close(self) -> None:
        """End the engine."""
