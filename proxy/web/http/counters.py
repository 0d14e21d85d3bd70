"""Count the requests of the web ports."""

from proxy.core.counters import RoomCounters, SharedCounters


class WebCounters(RoomCounters):
    """Counters of the web ports; change the attributes directly."""

    __slots__ = (
        "answers",
        "bytes_to_brokers",
        "bytes_to_clients",
        "copies_dropped",
        "cut_answers",
        "in_work",
        "lists_refused",
        "redirects",
        "refused",
        "server_failures",
        "tunnels",
    )

    def __init__(self, shared: SharedCounters | None = None) -> None:
        super().__init__(shared)
        # Keys are classes of status codes, so their number is bounded.
        self.answers: dict[str, int] = dict.fromkeys(("2xx", "3xx", "4xx", "5xx"), 0)
        self.refused: dict[str, int] = {}
        self.bytes_to_brokers = 0
        self.bytes_to_clients = 0
        self.copies_dropped = 0
        self.cut_answers = 0
        self.in_work = 0
        self.lists_refused = 0
        self.redirects = 0
        self.server_failures = 0
        self.tunnels = 0

    def answered(self, status: int) -> None:
        """Count an answer, forwarded or made by the proxy."""
        kind = f"{status // 100}xx"
        if kind in self.answers:
            self.answers[kind] += 1

    def request_refused(self, kind: str) -> None:
        """Count a request that the proxy refused; `kind` is one of a few words."""
        self.refused[kind] = self.refused.get(kind, 0) + 1
