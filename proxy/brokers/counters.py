"""Count request connections to brokers, and failures of brokers."""

from collections.abc import Callable, Mapping

from proxy.core.counters import RoomCounters, SharedCounters


class BrokerCounters(RoomCounters):
    """The counters of brokers; change the attributes directly. States and names are asked for when somebody scrapes."""

    __slots__ = (
        "broker_connection_pauses",
        "broker_connection_states",
        "broker_dials",
        "broker_dials_given_up",
        "broker_fail_overs",
        "broker_member_states",
        "broker_members_refusing",
        "broker_names",
        "broker_names_hanging",
        "broker_open_failures",
        "broker_probes",
        "credentials_withheld",
        "unanswered_questions",
        "unknown_broker_answers",
    )

    def __init__(self, shared: SharedCounters | None = None) -> None:
        super().__init__(shared)
        self.broker_connection_pauses = 0
        self.broker_connection_states: Callable[[], Mapping[str, int]] = dict
        self.broker_member_states: Callable[[], Mapping[str, int]] = dict
        self.broker_members_refusing: Callable[[], int] = int
        self.broker_names: Callable[[], Mapping[str, int]] = dict
        self.broker_names_hanging: Callable[[], int] = int
        self.broker_dials: Callable[[], Mapping[str, int]] = dict
        self.broker_dials_given_up: Callable[[], int] = int
        self.broker_fail_overs = 0
        self.broker_probes: dict[str, int] = {"reached": 0, "failed": 0}
        self.broker_open_failures: dict[str, int] = {}
        self.credentials_withheld: dict[str, int] = {"relay": 0, "redirect": 0, "http": 0}
        self.unanswered_questions = 0
        self.unknown_broker_answers = 0

    def broker_open_failed(self, cause: str) -> None:
        """Count a request connection to a broker that could not be opened."""
        self.broker_open_failures[cause] = self.broker_open_failures.get(cause, 0) + 1
