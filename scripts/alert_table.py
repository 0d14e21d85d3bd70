"""Every alert of the proxy as a row: its Prometheus expression, how long the expression must hold, the first step.

The objective (topic lists answered within a second) has recording rules, `RECORDS`, that its alerts ask.

Rule: an alert is declared only in `ALERTS`; the chart's rule file, the table in docs/monitoring.md and the head of each
runbook are generated from it. `critical` wakes somebody up, `warning` waits for the morning.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["ALERTS", "RECORDS", "Alert", "Record", "names"]

Severity = Literal["warning", "critical"]
Group = Literal["pip-442", "objectives", "clients", "process", "configuration"]

LIST: Final = "pulsar_proxy_topic_list_"
# Without a container's limit the machine's memory counts.
MEMORY: Final = "(pulsar_proxy_memory_container_limit_bytes or pulsar_proxy_memory_machine_bytes)"
EXPIRES: Final = "pulsar_proxy_tls_cert_expiration_timestamp_seconds"
WEEK_SECONDS: Final = 7 * 86_400
DAY_SECONDS: Final = 86_400
# The objective: of the topic lists that can be answered, this part may begin later than a second after its request.
LATE: Final = 0.01
# Fewer late lists than these in the longer window wake nobody: one of five in a quiet night is a fifth of all.
LEAST_LATE: Final = 10
# The whole service, not a proxy alone: clients are spread over all of them.
SERVICE: Final = "sum by (cluster, namespace, job)"
DUE: Final = "pulsar_proxy_lists_due_total"
PROMPT: Final = "pulsar_proxy_lists_prompt_total"
# The longer window, the shorter window that ends the alert soon after its cause, and how many times faster than allowed
# lists are late. At 14.4 a month's share is used up in two days, at 1 in the month.
PAGE_BURNS: Final = (("1h", "5m", 14.4), ("6h", "30m", 6.0))
TICKET_BURNS: Final = (("1d", "2h", 3.0), ("3d", "6h", 1.0))


@dataclass(frozen=True, slots=True)
class Alert:
    """An alerting rule.

    `holds` is the rule's `for`. `summary` may use the labels and the value of the rule's result (Prometheus templates).
    `first` is a plain sentence: the first step before the cause is known. Rows of different severity may share a name,
    and then share a runbook.
    """

    name: str
    group: Group
    severity: Severity
    expression: str
    holds: str
    summary: str
    first: str

    @property
    def runbook(self) -> str:
        """The path of the runbook, from the root of the repository."""
        return f"docs/runbooks/{self.name}.md"


@dataclass(frozen=True, slots=True)
class Record:
    """A recording rule: the `name` of a series, its expression, and its meaning."""

    name: str
    expression: str
    text: str


def _records() -> Iterator[Record]:
    burns = (*PAGE_BURNS, *TICKET_BURNS)
    windows = dict.fromkeys(window for longer, shorter, _ in burns for window in (shorter, longer))
    for window in windows:
        due = f"{SERVICE} (rate({DUE}[{window}]))"
        yield Record(
            late_ratio(window), f"({due} - {SERVICE} (rate({PROMPT}[{window}]))) / ({due} > 0)",
            f"part of the topic lists of the last {window} that began later than a second after their request",
        )  # fmt: skip
    for window, _, _ in burns:
        yield Record(
            late_count(window), f"{SERVICE} (increase({DUE}[{window}])) - {SERVICE} (increase({PROMPT}[{window}]))",
            f"number of such lists in the last {window}",
        )  # fmt: skip


def late_ratio(window: str) -> str:
    """Return the series of the part of late lists in a window."""
    return f"pulsar_proxy:lists_late:ratio_rate{window}"


def late_count(window: str) -> str:
    """Return the series of the number of late lists in a window."""
    return f"pulsar_proxy:lists_late:increase{window}"


def _burns(windows: Sequence[tuple[str, str, float]]) -> str:
    """Return the expression that holds if lists are late too often, in one of the pairs of windows."""
    return " or ".join(
        f"({late_ratio(longer)} > {factor * LATE:.3g} and {late_ratio(shorter)} > {factor * LATE:.3g}"
        f" and {late_count(longer)} > {LEAST_LATE})"
        for longer, shorter, factor in windows
    )


RECORDS: Final[tuple[Record, ...]] = tuple(_records())

# The four alerts of PIP-442 have its expressions, with the full names of the metrics.
PIP_442: Final = (
    Alert(
        "PulsarProxyHeapMemoryHigh", "pip-442", "warning",
        f"{LIST}heap_memory_used_bytes / {LIST}heap_memory_limit_bytes > 0.8", "5m",
        "topic lists hold {{ $value | humanizePercentage }} of the heap limit of {{ or $labels.pod $labels.instance }}",
        "Look whether direct memory is full as well: then slow readers hold up the heap. Otherwise raise "
        "maxTopicListInFlightHeapMemSizeMB if the container has room; it is live.",
    ),
    Alert(
        "PulsarProxyHeapQueueNearFull", "pip-442", "critical",
        f"{LIST}heap_queue_size / {LIST}heap_queue_max_size > 0.9", "1m",
        "the queue for heap memory of {{ or $labels.pod $labels.instance }} is {{ $value | humanizePercentage }} full",
        "Double maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize now (live): a full queue refuses clients at "
        "once, waiting costs them nothing. Then look for what drains it too slowly.",
    ),
    Alert(
        "PulsarProxyHeapTimeouts", "pip-442", "critical",
        f"rate({LIST}heap_timeout_total[5m]) > 1", "1m",
        "{{ $value | printf \"%.2f\" }} topic lists a second get no heap memory in time from "
        "{{ or $labels.pod $labels.instance }}",
        "Raise maxTopicListInFlightDirectMemSizeMB if direct memory is full, else "
        "maxTopicListInFlightHeapMemSizeMB (both live); if neither has room in the container, add pods.",
    ),
    Alert(
        "PulsarProxyHeapWaitsLong", "pip-442", "warning",
        f'{LIST}heap_wait_time_ms{{quantile="0.99"}} > 10000', "5m",
        "a topic list in a hundred waits {{ $value | printf \"%.0f\" }} ms or longer for heap memory of "
        "{{ or $labels.pod $labels.instance }}",
        "Nobody is refused yet. See what drains too slowly, brokers, clients or this proxy, before waits reach "
        "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis.",
    ),
)  # fmt: skip

OBJECTIVES: Final = (
    Alert(
        "PulsarProxyListsLate", "objectives", "critical", _burns(PAGE_BURNS), "2m",
        "{{ $value | humanizePercentage }} of the topic lists of {{ $labels.job }} are late or refused",
        "Read the last refusals in pulsar-proxy top: each names what it waited for and the key to change. Without "
        "refusals look at the brokers and at the event loop's lag.",
    ),
    Alert(
        "PulsarProxyListsLate", "objectives", "warning", _burns(TICKET_BURNS), "15m",
        "{{ $value | humanizePercentage }} of the topic lists of {{ $labels.job }} were late or refused over days",
        "Compare with storms on the dashboard: the event log and its advice say which limits would have held.",
    ),
)  # fmt: skip

REJECTED: Final = (
    "pulsar_proxy_rejected_connections_total",
    "pulsar_proxy_rejected_lookup_requests_total",
    "pulsar_proxy_rejected_partitions_metadata_requests_total",
    "pulsar_proxy_rejected_get_topics_of_namespace_requests_total",
    "pulsar_proxy_http_lists_refused_total",
)
REFUSING: Final = "pulsar_proxy_brokers_refusing"
CLIENTS: Final = (
    Alert(
        "PulsarProxyClientsRejected", "clients", "warning",
        " + ".join(f"increase({name}[15m])" for name in REJECTED) + " > 10", "5m",
        "{{ or $labels.pod $labels.instance }} turned away {{ $value | printf \"%.0f\" }} "
        "connections and requests in 15 minutes, for their number",
        "See which of the counters grows: connections ask for maxConcurrentInboundConnections, lookups for "
        "maxConcurrentLookupRequests (both live).",
    ),
    Alert(
        "PulsarProxyStalledReaders", "clients", "warning",
        "pulsar_proxy_client_stalled_readers > 0.5 * pulsar_proxy_client_writers"
        f" and ({LIST}direct_memory_used_bytes / {LIST}direct_memory_limit_bytes > 0.8"
        " or pulsar_proxy_lists_unproven_readers_waiting > 0)", "2m",
        "{{ $value }} clients of {{ or $labels.pod $labels.instance }} take nothing of their answers, "
        "and others wait for their memory",
        "Lower topicListWriteStallTimeoutMillis to 5000 (live): clients that take nothing are then closed sooner. "
        "Put it back afterwards.",
    ),
    Alert(
        "PulsarProxyProducersHeld", "clients", "warning",
        'pulsar_proxy_overload_paused_connections{what="paused"} > 0', "5m",
        "{{ or $labels.pod $labels.instance }} does not read {{ $value }} producing connections, "
        "because memory is short",
        "See whether the proxy's memory is full or a broker's: pulsar_proxy_overload_memory_ratio by signal.",
    ),
    Alert(
        "PulsarProxyNoBroker", "clients", "critical",
        # A broker is unknown for a moment after the start, or for good where nothing is probed.
        'sum without (state) (pulsar_proxy_brokers{state=~"up|unknown|refusing"}) == 0', "1m",
        "{{ or $labels.pod $labels.instance }} can reach no broker",
        "Ask the brokers, not the proxy: pulsar-proxy top names each with the error of the last attempt.",
    ),
    Alert(
        "PulsarProxyBrokerDown", "clients", "warning",
        # A server that is no broker is on trial again and again, and down for moments only.
        'sum without (state) (pulsar_proxy_brokers{state=~"down|trial"}) > 0', "5m",
        "{{ or $labels.pod $labels.instance }} cannot use {{ $value }} of its brokers",
        "Compare with the other proxies: if all see the same broker down, look at that broker, else at this proxy's "
        "network.",
    ),
    Alert(
        "PulsarProxyBrokerRefusesProxy", "clients", "critical",
        # Clients are connected, and are refused whatever they ask; no broker is down, so no other alert tells.
        f"{REFUSING} > 0 and ignoring (state) pulsar_proxy_brokers{{state=\"up\"}} == 0", "2m",
        "{{ $value }} brokers of {{ or $labels.pod $labels.instance }} refuse the proxy's credentials, and none is up",
        "Run check-config --connect: it tries the proxy's own credentials and prints the broker's words. They are "
        "those of brokerClientAuthenticationPlugin.",
    ),
    Alert(
        "PulsarProxyBrokerRefusesProxy", "clients", "warning", f"{REFUSING} > 0", "5m",
        "{{ $value }} brokers of {{ or $labels.pod $labels.instance }} refuse the proxy's credentials",
        "Read the broker's words in pulsar-proxy top. If only some brokers refuse, compare their configuration with "
        "that of the others: keys of tokens, proxyRoles.",
    ),
)  # fmt: skip

PROCESS: Final = (
    Alert(
        "PulsarProxyDown", "process", "critical",
        # A target that never came up is recognized by its neighbours: same job and, in Kubernetes, same namespace.
        "up == 0 and on (job, namespace) group by (job, namespace) (last_over_time(pulsar_proxy_build_info[1d]))", "2m",
        "{{ or $labels.pod $labels.instance }} of the job {{ $labels.job }} cannot be scraped",
        "See whether the process runs and whether the other proxies carry its clients; read the last lines of its log "
        "before it is restarted.",
    ),
    Alert(
        "PulsarProxyRestarting", "process", "critical",
        # No scrape succeeds between two starts: without the range, each start would reset `for`.
        "changes(process_start_time_seconds[15m]) > 2"
        " and on (job, instance) last_over_time(pulsar_proxy_build_info[15m])", "1m",
        "{{ or $labels.pod $labels.instance }} was started {{ $value }} times in 15 minutes",
        "Find out who ends it: the kernel (out of memory), a probe, the watchdog, or its own configuration.",
    ),
    Alert(
        "PulsarProxyMemoryNearLimit", "process", "critical",
        "(pulsar_proxy_memory_resident_bytes + pulsar_proxy_client_writers_kernel_bytes)"
        f" / {MEMORY} > 0.9", "2m",
        "{{ or $labels.pod $labels.instance }} uses {{ $value | humanizePercentage }} of the memory "
        "of its container or machine",
        "Lower maxTopicListInFlightDirectMemSizeMB and clientSocketSendBufferBytes (live): nobody is cut, newcomers "
        "wait. Then give the container more memory.",
    ),
    Alert(
        "PulsarProxyEventLoopLag", "process", "warning",
        'pulsar_proxy_event_loop_lag_seconds{quantile="0.99"} > 0.25', "5m",
        "the event loop of {{ or $labels.pod $labels.instance }} is "
        "{{ $value | printf \"%.2f\" }} s late, one time in a hundred",
        "See whether the process has the CPU that it wants: a quota that throttles it looks like this. If so, give it "
        "a whole core or add pods.",
    ),
    Alert(
        "PulsarProxyControllerStale", "process", "critical",
        "pulsar_proxy_controller_age_seconds > 30", "1m",
        "{{ $labels.controller }} of {{ or $labels.pod $labels.instance }} has not come to its end for "
        "{{ $value | humanizeDuration }}",
        "Keep the log, then restart this proxy once its clients have somewhere to go: slow readers are no longer "
        "closed, timeouts no longer looked at.",
    ),
    Alert(
        "PulsarProxyInternalErrors", "process", "warning",
        # A `where` that occurs for the first time is a new series, which has no increase yet.
        "sum without (where) (increase(pulsar_proxy_internal_errors_total[15m])) > 0 or sum without (where)"
        " (pulsar_proxy_internal_errors_total unless pulsar_proxy_internal_errors_total offset 15m) > 0", "1m",
        "{{ or $labels.pod $labels.instance }} met an exception that nobody expected",
        "Keep the log, with its traceback, and report it: this is a bug of the proxy.",
    ),
    Alert(
        "PulsarProxyOverloadControlFails", "process", "warning",
        "increase(pulsar_proxy_overload_evaluation_failures_total[5m]) > 0"
        " or increase(pulsar_proxy_adaptive_throttle_controller_evaluation_failure_count_total[5m]) > 0", "1m",
        "evaluations of a throttle of {{ or $labels.pod $labels.instance }} fail",
        "Keep the log, with its traceback. If producers are held, set the ObserveOnly keys and reload.",
    ),
    Alert(
        "PulsarProxyEventsDropped", "process", "warning",
        "increase(pulsar_proxy_event_log_dropped_total[10m]) > 0", "1m",
        "the event log of {{ or $labels.pod $labels.instance }} lost {{ $value | printf \"%.0f\" }} "
        "events for {{ $labels.sink }} in 10 minutes",
        "Clients notice nothing. See why the sink takes no more: a full disk, or brokers that take no events.",
    ),
)  # fmt: skip

CONFIGURATION: Final = (
    Alert(
        "PulsarProxyBudgetDoesNotFit", "configuration", "warning",
        f"pulsar_proxy_memory_budget_bytes > {MEMORY}", "5m",
        "the limits of {{ or $labels.pod $labels.instance }} add up to "
        "{{ $value | humanize1024 }}B, more than its container or machine has",
        "Give it that much memory, or lower the limits until they fit (check-config names the keys of the largest "
        "parts); until then a storm can end the process.",
    ),
    Alert(
        "PulsarProxyConfigReloadFailed", "configuration", "warning",
        "pulsar_proxy_config_reload_success == 0", "1m",
        "the last reload of the configuration of {{ or $labels.pod $labels.instance }} was refused",
        "Run pulsar-proxy check-config on the file: it lists every fault with its line. The old configuration is in "
        "force, wholly.",
    ),
    Alert(
        "PulsarProxyCertificateExpires", "configuration", "warning",
        f"{EXPIRES} - time() < {WEEK_SECONDS}", "15m",
        "the certificate {{ $labels.cert }} of {{ or $labels.pod $labels.instance }} expires in "
        "{{ $value | humanizeDuration }}",
        "Renew the certificate; the proxy takes new files by itself, without a restart.",
    ),
    Alert(
        "PulsarProxyCertificateExpires", "configuration", "critical",
        f"{EXPIRES} - time() < {DAY_SECONDS}", "5m",
        "the certificate {{ $labels.cert }} of {{ or $labels.pod $labels.instance }} expires in "
        "{{ $value | humanizeDuration }}",
        "Renew the certificate; the proxy takes new files by itself, without a restart.",
    ),
)  # fmt: skip

ALERTS: Final[tuple[Alert, ...]] = (*PIP_442, *OBJECTIVES, *CLIENTS, *PROCESS, *CONFIGURATION)


def names() -> list[str]:
    """Return the names of all alerts, each once, in the order of the table."""
    return list(dict.fromkeys(alert.name for alert in ALERTS))
