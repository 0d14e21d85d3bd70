"""The counters of hot paths: plain integers, which the exports read.

Rule: counting costs an attribute assignment, no call and no lock, because everything runs on one event loop. Only
counts with labels go through a method. This module imports no metrics library.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from time import monotonic
from typing import NamedTuple

from proxy.telemetry.durations import Durations

RELOAD_RESULTS = ("applied", "refused", "ignored")
KEY_FILE_RESULTS = ("applied", "refused")
EXPORT_RESULTS = ("sent", "failed", "skipped")


class WatchOvershoot(StrEnum):
    """Why a frame for a topic-list watcher passed without a permit, or lost its permit before it had passed."""

    PAUSE_OVER = "pause_over"
    PAUSED_BEFORE = "paused_before"
    QUEUE_FULL = "queue_full"
    HELD_TOO_LONG = "held_too_long"
    BROKER_GONE = "broker_gone"
    CLOSED = "closed"


class WatchCounters:
    """Counters of topic-list watchers on relayed connections; change the attributes directly."""

    __slots__ = ("frame_bytes", "overshoots", "pause_seconds", "pauses", "successes", "unwalkable", "updates")

    def __init__(self) -> None:
        self.successes = 0
        self.updates = 0
        self.frame_bytes = 0
        self.pauses = 0
        self.pause_seconds = 0.0
        self.overshoots: dict[str, int] = dict.fromkeys(map(str, WatchOvershoot), 0)
        self.unwalkable = 0


class WebCounters:
    """Counters of the web ports; change the attributes directly."""

    __slots__ = (
        "answers",
        "bytes_to_brokers",
        "bytes_to_clients",
        "cut_answers",
        "in_work",
        "lists_refused",
        "redirects",
        "refused",
        "server_failures",
        "tunnels",
    )

    def __init__(self) -> None:
        # Keys are classes of status codes, so their number is bounded.
        self.answers: dict[str, int] = dict.fromkeys(("2xx", "3xx", "4xx", "5xx"), 0)
        self.refused: dict[str, int] = {}
        self.bytes_to_brokers = 0
        self.bytes_to_clients = 0
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


class AuthenticationCounters:
    """Counters of authentication (`proxy.auth.providers.registry.AuthenticationObserver`).

    Labels are words of this proxy only, so a client cannot create new ones.
    """

    __slots__ = ("expired_tokens", "failures", "reloads", "successes")

    def __init__(self) -> None:
        self.successes: dict[tuple[str, ...], int] = {}
        self.failures: dict[tuple[str, ...], int] = {}
        self.expired_tokens = 0
        self.reloads: dict[str, int] = dict.fromkeys(KEY_FILE_RESULTS, 0)

    def succeeded(self, provider: str, method: str) -> None:
        """Count a role that was proven."""
        self.successes[provider, method] = self.successes.get((provider, method), 0) + 1

    def failed(self, provider: str, method: str, reason: str) -> None:
        """Count credentials that were refused."""
        self.failures[provider, method, reason] = self.failures.get((provider, method, reason), 0) + 1

    def expired(self) -> None:
        """Count a token that has expired."""
        self.expired_tokens += 1

    def reloaded(self, result: str) -> None:
        """Count the reload of a key or password file that changed."""
        self.reloads[result] += 1


class TlsCounters:
    """Counters of TLS; `expiries` returns the seconds until each certificate of this proxy expires."""

    __slots__ = ("expiries", "handshakes", "handshakes_in_flight", "handshakes_waiting", "reloads")

    def __init__(self) -> None:
        self.handshakes: dict[tuple[str, str], int] = dict.fromkeys((("client", "done"), ("broker", "done")), 0)
        self.handshakes_in_flight = 0
        self.handshakes_waiting = 0
        self.reloads: dict[str, int] = dict.fromkeys(("applied", "refused"), 0)
        self.expiries: Callable[[], Mapping[str, float]] = dict

    def handshake(self, peer: str, result: str) -> None:
        """Count the end of a handshake with a client or a broker."""
        self.handshakes[peer, result] = self.handshakes.get((peer, result), 0) + 1


class SinkNumbers(NamedTuple):
    """The numbers of a sink of the event log, read at scrape time."""

    written: int
    dropped: int
    bytes_written: int
    errors: int
    buffer_bytes: int


class EventLogCounters:
    """The event log's numbers: `sinks` and `files` return the current counts; `topic_keeps` is None if not known."""

    __slots__ = ("files", "sinks", "topic_keeps")

    def __init__(self) -> None:
        self.sinks: Callable[[], Mapping[str, SinkNumbers]] = dict
        self.files: Callable[[], Mapping[str, int]] = dict
        self.topic_keeps: bool | None = None


class Counters:
    """Counters since the start of the proxy; change the attributes directly.

    `causes` and `outcomes` are exported as 0 until they happen, so that a rate over them starts at the first event.
    `report` is called with each internal error, to log it.
    """

    __slots__ = (
        "_report",
        "accept_pauses",
        "active_connections",
        "authentication",
        "awaited_headers",
        "binary_bytes",
        "binary_ops",
        "broker_connection_pauses",
        "broker_connection_states",
        "broker_fail_overs",
        "broker_member_states",
        "broker_names",
        "broker_open_failures",
        "broker_probes",
        "budget_bytes",
        "budget_parts",
        "client_send_buffer_bytes",
        "config_accepted",
        "config_applied_at",
        "config_reloads",
        "controllers",
        "disconnects",
        "event_log",
        "evicted_bytes",
        "failed_requests",
        "get_schema_requests",
        "get_topics_of_namespace_requests",
        "internal_errors",
        "list_groups",
        "list_name_bytes",
        "list_outcomes",
        "list_questions",
        "lists_asked_again",
        "lists_joined",
        "lookup_requests",
        "new_connections",
        "otlp_exports",
        "partitions_metadata_requests",
        "refused_requests",
        "rejected_connections",
        "rejected_get_topics_of_namespace_requests",
        "rejected_lookup_requests",
        "rejected_partitions_metadata_requests",
        "relay_bytes_to_broker",
        "relay_bytes_to_client",
        "stalled_readers",
        "tls",
        "unknown_broker_answers",
        "watch",
        "web",
        "writers",
        "writers_kernel_bytes",
    )

    def __init__(
        self,
        causes: Iterable[str] = (),
        outcomes: Iterable[str] = (),
        report: Callable[[BaseException, str], None] | None = None,
    ) -> None:
        self._report = report
        self.active_connections = 0
        self.awaited_headers = 0
        self.new_connections = 0
        self.rejected_connections = 0
        self.binary_ops = 0
        self.binary_bytes = 0
        self.lookup_requests = 0
        self.partitions_metadata_requests = 0
        self.get_topics_of_namespace_requests = 0
        self.get_schema_requests = 0
        self.rejected_lookup_requests = 0
        self.rejected_partitions_metadata_requests = 0
        self.rejected_get_topics_of_namespace_requests = 0
        self.disconnects: dict[str, int] = dict.fromkeys(map(str, causes), 0)
        self.internal_errors: dict[str, int] = {}
        self.list_outcomes: dict[str, int] = dict.fromkeys(map(str, outcomes), 0)
        self.list_groups = 0
        self.list_name_bytes = 0
        self.list_questions = 0
        self.lists_joined = 0
        self.lists_asked_again = 0
        self.relay_bytes_to_broker = 0
        self.relay_bytes_to_client = 0
        self.broker_connection_pauses = 0
        self.broker_connection_states: Callable[[], Mapping[str, int]] = dict
        self.broker_member_states: Callable[[], Mapping[str, int]] = dict
        self.broker_names: Callable[[], Mapping[str, int]] = dict
        self.broker_fail_overs = 0
        self.broker_probes: dict[str, int] = {"reached": 0, "failed": 0}
        self.unknown_broker_answers = 0
        self.broker_open_failures: dict[str, int] = {}
        self.failed_requests: dict[str, int] = {}
        self.refused_requests: dict[str, int] = {}
        self.accept_pauses = 0
        self.budget_bytes = 0
        self.budget_parts: Mapping[str, int] = {}
        self.watch = WatchCounters()
        self.web = WebCounters()
        self.event_log = EventLogCounters()
        self.authentication = AuthenticationCounters()
        self.tls = TlsCounters()
        self.client_send_buffer_bytes = 0
        self.writers = 0
        self.writers_kernel_bytes = 0
        self.stalled_readers = 0
        self.evicted_bytes = 0
        self.config_reloads: dict[str, int] = dict.fromkeys(RELOAD_RESULTS, 0)
        self.config_accepted = True
        self.config_applied_at = 0.0
        # Name of a background loop -> callable that returns the seconds since it last ran.
        self.controllers: dict[str, Callable[[], float]] = {}
        self.otlp_exports: dict[str, int] = dict.fromkeys(EXPORT_RESULTS, 0)

    def disconnected(self, cause: str) -> None:
        """Count the end of a connection of a client or broker."""
        self.disconnects[cause] = self.disconnects.get(cause, 0) + 1

    def list_ended(self, outcome: str) -> None:
        """Count the end of a topic-list request."""
        self.list_outcomes[outcome] = self.list_outcomes.get(outcome, 0) + 1

    def broker_open_failed(self, cause: str) -> None:
        """Count a request connection to a broker that could not be opened."""
        self.broker_open_failures[cause] = self.broker_open_failures.get(cause, 0) + 1

    def request_failed(self, kind: str) -> None:
        """Count a request, other than a topic list, that was answered with an error."""
        self.failed_requests[kind] = self.failed_requests.get(kind, 0) + 1

    def request_refused(self, reason: str) -> None:
        """Count a request that was refused before a broker was asked."""
        self.refused_requests[reason] = self.refused_requests.get(reason, 0) + 1

    def internal_error(self, error: BaseException, where: str) -> None:
        """Count an unexpected exception, and report it."""
        self.internal_errors[where] = self.internal_errors.get(where, 0) + 1
        if self._report is not None:
            self._report(error, where)


class LimiterMetrics:
    """The observer of a limiter (`limiter.observer.LimiterObserver`): keeps its wait times in milliseconds.

    Counts are read from the limiter's own statistics. As in upstream's proxy a wait that timed out is a sample too;
    unlike there it is not cut to whole milliseconds, so sums are exact.
    """

    __slots__ = ("served_waiters", "wait_millis")

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.wait_millis = Durations(clock)
        self.served_waiters = 0

    def granted(self, wait_seconds: float) -> None:
        """Count the wait for a permit that was granted."""
        self.wait_millis.add(wait_seconds * 1000)
        if wait_seconds > 0:
            self.served_waiters += 1

    def timed_out(self, wait_seconds: float) -> None:
        """Count the wait for a permit that timed out."""
        self.wait_millis.add(wait_seconds * 1000)

    def queued(self) -> None:
        """Skip: the limiter's statistics have this count."""

    def rejected(self) -> None:
        """Skip: the limiter's statistics have this count."""

    def cancelled(self) -> None:
        """Skip: the limiter's statistics have this count."""

    def updated(self) -> None:
        """Skip: the limiter's statistics have this count."""

    def released(self) -> None:
        """Skip: the limiter's statistics have this count."""
