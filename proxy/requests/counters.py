"""Count the requests of clients and the topic lists they got."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from protocol.command_type import CommandType
from proxy.core.counters import RoomCounters, SharedCounters

if TYPE_CHECKING:
    from proxy.requests.request_bytes import RequestBytes

# The commands that are requests, served in lookup mode.
REQUESTS: Final = (
    CommandType.LOOKUP,
    CommandType.PARTITIONED_METADATA,
    CommandType.GET_TOPICS_OF_NAMESPACE,
    CommandType.GET_SCHEMA,
    CommandType.GET_OR_CREATE_SCHEMA,
)


class RequestCounters(RoomCounters):
    """The counters of requests; change the attributes directly.

    `asked` counts requests by their command, `rejected` those of them that came while too many were under way.
    `outcomes` of topic lists are exported as 0 until they happen. The rows that show `asked` and `rejected`, a row for
    each command, are in `proxy/app/metrics/upstream_rows.py`.
    """

    __slots__ = (
        "asked",
        "command_bytes",
        "failed_requests",
        "list_answer_bytes",
        "list_groups",
        "list_outcomes",
        "list_questions",
        "lists_asked_again",
        "lists_due",
        "lists_given_up",
        "lists_joined",
        "lists_prompt",
        "lookups_waiting",
        "refused_requests",
        "rejected",
        "schemas_given_up",
        "unproven_readers_bytes",
        "unproven_readers_waiting",
    )

    def __init__(self, shared: SharedCounters | None = None, outcomes: Iterable[str] = ()) -> None:
        super().__init__(shared)
        self.asked: dict[int, int] = dict.fromkeys(REQUESTS, 0)
        self.rejected: dict[int, int] = dict.fromkeys(REQUESTS, 0)
        self.failed_requests: dict[str, int] = {}
        self.refused_requests: dict[str, int] = {}
        self.list_outcomes: dict[str, int] = dict.fromkeys(map(str, outcomes), 0)
        # The memory for commands that are held for brokers; None without a limit.
        self.command_bytes: RequestBytes | None = None
        self.list_answer_bytes = 0
        self.list_groups = 0
        self.list_questions = 0
        self.lists_joined = 0
        self.lists_due = 0
        self.lists_prompt = 0
        self.lists_asked_again = 0
        self.lists_given_up = 0
        self.schemas_given_up = 0
        self.lookups_waiting = 0
        # Read from the share of unproven readers; 0 without one.
        self.unproven_readers_bytes: Callable[[], int] = int
        self.unproven_readers_waiting: Callable[[], int] = int

    def list_ended(self, outcome: str) -> None:
        """Count the end of a topic-list request."""
        self.list_outcomes[outcome] = self.list_outcomes.get(outcome, 0) + 1

    def list_given_up(self) -> None:
        """Count a topic list whose broker sent too slowly."""
        self.lists_given_up += 1

    def schema_given_up(self) -> None:
        """Count a schema whose broker sent too slowly."""
        self.schemas_given_up += 1

    def list_due(self, *, prompt: bool) -> None:
        """Count a topic-list request that should be answered within a second; `prompt`: it was."""
        self.lists_due += 1
        self.lists_prompt += prompt

    def request_failed(self, kind: str) -> None:
        """Count a request, other than a topic list, that was answered with an error."""
        self.failed_requests[kind] = self.failed_requests.get(kind, 0) + 1

    def request_refused(self, reason: str) -> None:
        """Count a request that was refused before a broker was asked."""
        self.refused_requests[reason] = self.refused_requests.get(reason, 0) + 1
