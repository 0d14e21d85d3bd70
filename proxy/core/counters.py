"""The counters of hot paths: plain integers, which `proxy.app.metrics` reads for the exports.

Rule: counting costs an attribute assignment, no call and no lock, because everything runs on one event loop. Only
counts with labels go through a method. Each room has a class of counters of its own in its `counters.py`; this module
has the counts that several rooms make. No `counters.py` imports a metrics library.
"""

from collections.abc import Callable, Iterable


class SharedCounters:
    """The counts that several rooms make.

    `causes` are exported as 0 until they happen, so that a rate over them starts at the first event. `report` is called
    with each internal error (for the log).
    """

    __slots__ = ("_report", "accept_pauses", "disconnects", "internal_errors")

    def __init__(self, causes: Iterable[str] = (), report: Callable[[BaseException, str], None] | None = None) -> None:
        self._report = report
        self.accept_pauses = 0
        self.disconnects: dict[str, int] = dict.fromkeys(map(str, causes), 0)
        self.internal_errors: dict[str, int] = {}

    def disconnected(self, cause: str) -> None:
        """Count the end of a connection of a client or broker."""
        self.disconnects[cause] = self.disconnects.get(cause, 0) + 1

    def internal_error(self, error: BaseException, where: str) -> None:
        """Count an unexpected exception, and report it."""
        self.internal_errors[where] = self.internal_errors.get(where, 0) + 1
        if self._report is not None:
            self._report(error, where)


class RoomCounters:
    """The counters of one room; change the attributes directly."""

    __slots__ = ("shared",)

    def __init__(self, shared: SharedCounters | None = None) -> None:
        self.shared = SharedCounters() if shared is None else shared

    def disconnected(self, cause: str) -> None:
        """Count the end of a connection of a client or broker."""
        self.shared.disconnected(cause)

    def internal_error(self, error: BaseException, where: str) -> None:
        """Count an unexpected exception, and report it."""
        self.shared.internal_error(error, where)
