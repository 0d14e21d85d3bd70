"""The task of all engines: the window and the length of rankings."""

from typing import Final

__all__ = ["TOP", "WINDOW_SECONDS"]

WINDOW_SECONDS: Final = 60
TOP: Final = 20
