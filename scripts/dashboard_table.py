"""Every panel of the Grafana dashboard: a row is a question, its panels are the answer.

Rule: a panel is declared only in `ROWS`; the JSON is generated from it. Each description says what is normal, and
where to look otherwise.
"""

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["COLUMNS", "ROWS", "VARIABLES", "Panel", "Query", "Row"]

Kind = Literal["timeseries", "stat"]
Unit = Literal["bytes", "Bps", "ms", "s", "short", "percentunit", "ops", "cps", "reqps", "suffix: d"]

COLUMNS: Final = 24
# The labels that the dashboard's variables select. A target without such a label (a VM has no pod) matches "All", whose
# regular expression matches the empty text.
VARIABLES: Final = ("cluster", "namespace", "pod", "instance")
_SELECTED: Final = ",".join(f'{name}=~"${name}"' for name in VARIABLES)
LIST: Final = "pulsar_proxy_topic_list_"
# Causes of disconnects that are normal.
_ORDERLY: Final = "client_closed|broker_closed|idle|shutdown|connection_age"
REFUSED: Final = "refused_.*|timed_out"
DUE: Final = "pulsar_proxy_lists_due_total"
PROMPT: Final = "pulsar_proxy_lists_prompt_total"
EXPIRES: Final = "pulsar_proxy_tls_cert_expiration_timestamp_seconds"


@dataclass(frozen=True, slots=True)
class Query:
    """A query and the legend of its lines (with Grafana's `{{label}}`)."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel `width` of 24 columns wide; the axis goes from `least` to `most` (for shares of 1)."""

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    width: int = 8
    kind: Kind = "timeseries"
    stacked: bool = False
    most: float | None = None
    least: float | None = 0


@dataclass(frozen=True, slots=True)
class Row:
    """A question and the panels that answer it."""

    question: str
    panels: tuple[Panel, ...]


def of(metric: str, *matchers: str) -> str:
    """Return the selector of a metric of the selected proxies."""
    return f"{metric}{{{','.join((_SELECTED, *matchers))}}}"


def rate(metric: str, *matchers: str, by: str = "") -> str:
    """Return the rate of a counter, summed over all selected proxies or by a label."""
    return f"sum {f'by ({by}) ' if by else ''}(rate({of(metric, *matchers)}[$__rate_interval]))"


def total(metric: str, *matchers: str, by: str = "") -> str:
    """Return the sum of a gauge over all selected proxies, or by a label."""
    return f"sum {f'by ({by}) ' if by else ''}({of(metric, *matchers)})"


def most(metric: str, *matchers: str, by: str = "") -> str:
    """Return the maximum of a gauge over all selected proxies, or by a label."""
    return f"max {f'by ({by}) ' if by else ''}({of(metric, *matchers)})"


def share(part: str, whole: str) -> str:
    """Return the ratio of two metrics for each proxy."""
    return f"max by (instance) ({of(part)} / {of(whole)})"


def _stat(title: str, description: str, unit: Unit, expression: str, most: float | None = None) -> Panel:
    return Panel(title, description, unit, (Query(expression, ""),), width=6, kind="stat", most=most)


STORM: Final = Row("Is there a storm?", (
    _stat("Clients", "Client connections now, lookup mode and relayed.", "short",
          total("pulsar_proxy_active_connections")),
    _stat("Topic lists a second", "Asked for. A storm is many times what is usual at this hour.", "reqps",
          rate("pulsar_proxy_get_topics_of_namespace_requests_total")),
    _stat("Refused or timed out a second", "Normal: 0. Each is an error for a client.", "reqps",
          rate("pulsar_proxy_lists_answers_total", f'outcome=~"{REFUSED}"')),
    _stat("Longest wait for heap memory", "Of the last ten minutes, the worst proxy. At 25 s requests are refused.",
          "ms", most(f"{LIST}heap_wait_time_ms", 'quantile="1.0"')),
    Panel("Topic lists by outcome", "Normal: answered. refused_heap, refused_direct: no memory; timed_out: brokers or "
          "the client itself; cancelled: the client left.", "reqps",
          (Query(rate("pulsar_proxy_lists_answers_total", by="outcome"), "{{outcome}}"),), stacked=True),
    Panel("Topic lists that began within a second", "The objective is 99 of 100, over a month. Lists that failed for "
          "what was asked are not in it.", "percentunit",
          (Query(f"{rate(PROMPT)} / {rate(DUE)}", "of all proxies"),), most=1),
    Panel("Requests that wait", "A queue that falls within 25 s is how a storm should look; one that stands does not "
          "drain.", "short",
          (Query(total(f"{LIST}heap_queue_size"), "for heap memory"),
           Query(total(f"{LIST}direct_queue_size"), "for direct memory"),
           Query(total("pulsar_proxy_lists_growers_waiting"), "to grow"))),
    Panel("Wait, p99", "Quantiles look ten minutes back. Near 25,000 ms requests are about to be refused.", "ms",
          (Query(most(f"{LIST}heap_wait_time_ms", 'quantile="0.99"'), "heap"),
           Query(most(f"{LIST}direct_wait_time_ms", 'quantile="0.99"'), "direct"))),
    Panel("Requests and questions", "Equal requests share one question to a broker: far apart is good. Alike: nothing "
          "can be shared, count on distinct lists.", "reqps",
          (Query(rate("pulsar_proxy_get_topics_of_namespace_requests_total"), "asked by clients"),
           Query(rate("pulsar_proxy_lists_questions_total"), "asked of brokers"))),
    Panel("Connections a second", "New ones come in a gust when a neighbour has gone. Rejected: normal is 0.", "cps",
          (Query(rate("pulsar_proxy_new_connections_total"), "new"),
           Query(rate("pulsar_proxy_rejected_connections_total"), "rejected"))),
    Panel("Questions at brokers", "asked: brokers work on it; paused: not read, for want of heap memory. Many asked "
          "and an empty queue: brokers are slow.", "short",
          (Query(total("pulsar_proxy_broker_connections", by="state"), "{{state}}"),), stacked=True),
))  # fmt: skip

WHO: Final = Row("Who causes it?", (
    Panel("Topic lists by tenant", "The ten that ask most; (others) are those beyond the number that is kept.", "reqps",
          (Query(f"topk(10, {rate('pulsar_proxy_tenant_lists_total', by='tenant')})", "{{tenant}}"),), stacked=True),
    Panel("Bytes of lists by tenant", "What they were sent.", "Bps",
          (Query(f"topk(10, {rate('pulsar_proxy_tenant_list_bytes_total', by='tenant')})", "{{tenant}}"),),
          stacked=True),
    Panel("Refused by tenant", "Who suffers; it need not be who causes it (topicListFairness).", "reqps",
          (Query(f"topk(10, {rate('pulsar_proxy_tenant_list_refusals_total', by='tenant')})", "{{tenant}}"),),
          stacked=True),
    Panel("Topic lists by proxy", "One proxy alone: clients are spread unevenly.", "reqps",
          (Query(f"topk(10, {rate('pulsar_proxy_get_topics_of_namespace_requests_total', by='instance')})",
                 "{{instance}}"),)),
    Panel("Clients by proxy", "After a roll-out the last pod has the fewest (maxConnectionAgeSeconds).", "short",
          (Query(total("pulsar_proxy_active_connections", by="instance"), "{{instance}}"),)),
    Panel("Other requests a second", "Producers and consumers that connect look up and ask for partitions.", "reqps",
          (Query(rate("pulsar_proxy_lookup_requests_total"), "lookups"),
           Query(rate("pulsar_proxy_partitions_metadata_requests_total"), "partition metadata"),
           Query(rate("pulsar_proxy_get_schema_requests_total"), "schemas"))),
))  # fmt: skip

MEMORY: Final = Row("Is memory the reason?", (
    Panel("Heap limit in use", "Full while direct is not: raise it. Full beside direct: slow readers hold it.",
          "percentunit",
          (Query(share(f"{LIST}heap_memory_used_bytes", f"{LIST}heap_memory_limit_bytes"), "{{instance}}"),), most=1),
    Panel("Direct limit in use", "Encoded lists that clients have not taken. Full for long: slow readers.",
          "percentunit",
          (Query(share(f"{LIST}direct_memory_used_bytes", f"{LIST}direct_memory_limit_bytes"), "{{instance}}"),),
          most=1),
    Panel("The process in its container", "Resident and the kernel's part must stay under the container's limit; the "
          "worst case is what all limits allow.", "bytes",
          (Query(most("pulsar_proxy_memory_resident_bytes"), "resident"),
           Query(most("pulsar_proxy_client_writers_kernel_bytes"), "in the kernel, for clients"),
           Query(most("pulsar_proxy_memory_budget_bytes"), "worst case"),
           Query(f"min ({of('pulsar_proxy_memory_container_limit_bytes')})", "container"))),
    Panel("Memory by part", "What is in use of the limits whose use is counted.", "bytes",
          (Query(total("pulsar_proxy_memory_budget_used_bytes", by="owner"), "{{owner}}"),), stacked=True),
    Panel("Clients being written to", "stalled: took no byte for over a second. Near all: the network, or a client "
          "side without CPU.", "short",
          (Query(total("pulsar_proxy_client_writers"), "written to"),
           Query(total("pulsar_proxy_client_stalled_readers"), "stalled"))),
    Panel("Clients closed for not reading", "write_stalled: nothing for 20 s; reads_too_slowly: while others waited.",
          "cps",
          (Query(rate("pulsar_proxy_disconnects_total", 'cause=~"write_stalled|reads_too_slowly|memory_limit"',
                      by="cause"), "{{cause}}"),), stacked=True),
))  # fmt: skip

RELAY: Final = Row("Does the relay flow?", (
    Panel("Bytes relayed", "Producers and consumers, both directions. A relay is counted every few seconds, so few of "
          "them look like steps.", "Bps",
          (Query(rate("pulsar_proxy_relay_bytes_total", by="direction"), "{{direction}}"),)),
    Panel("Memory of relays", "Kernel memory of relayed sockets by side; with relayMemoryPoolMB what relays hold in "
          "the process, and its limit.", "bytes",
          (Query(total("pulsar_proxy_relay_socket_bytes", by="side"), "sockets to {{side}}s"),
           Query(total("pulsar_proxy_relay_pool_used_bytes"), "pool"),
           Query(total("pulsar_proxy_relay_pool_limit_bytes"), "pool's limit"))),
    Panel("Relays that wait for memory", "Directions that are not read: the pool is used up, and their receivers take "
          "nothing.", "short",
          (Query(total("pulsar_proxy_relay_pool_muted_connections"), "waiting"),)),
    Panel("Lists for watchers", "success: a watcher began; update: topics came or went, or a list of scalable topics. "
          "Pauses: not read for want of direct memory; overshoots: passed without it.", "ops",
          (Query(rate("pulsar_proxy_watch_frames_total", by="kind"), "{{kind}}"),
           Query(rate("pulsar_proxy_watch_pauses_total"), "pauses"),
           Query(rate("pulsar_proxy_watch_overshoots_total"), "overshoots"))),
    Panel("Web ports", "Bodies of the admin API and of lookups over HTTP.", "Bps",
          (Query(rate("pulsar_proxy_http_bytes_total", by="direction"), "{{direction}}"),)),
    Panel("Brokers", "down, or on trial after a failure: their clients are served by others. Those that refuse the "
          "proxy's credentials are refusing.", "short",
          (Query(f"max by (state) ({of('pulsar_proxy_brokers')})", "{{state}}"),
           Query(f"max({of('pulsar_proxy_brokers_refusing')})", "refuse the proxy"))),
    Panel("HTTP answers a second", "By class of status; those of the proxy's own pages are not in it.", "reqps",
          (Query(rate("pulsar_proxy_http_answers_total", by="status"), "{{status}}"),), stacked=True),
    Panel("Event loop lag, p99", "Every wait has it on top. Above 250 ms small clients notice; no CPU left, or one "
          "piece of work too large.", "s",
          (Query(most("pulsar_proxy_event_loop_lag_seconds", 'quantile="0.99"', by="instance"), "{{instance}}"),)),
))  # fmt: skip

ERRORS: Final = Row("What goes wrong?", (
    Panel("Disconnects by cause", "Without the orderly ones. Causes are explained in docs/troubleshooting.md.", "cps",
          (Query(rate("pulsar_proxy_disconnects_total", f'cause!~"{_ORDERLY}"', by="cause") + " > 0", "{{cause}}"),),
          stacked=True),
    Panel("Requests refused or failed", "Other than topic lists: by limits, by rules, by brokers.", "reqps",
          (Query(rate("pulsar_proxy_refused_requests_total", by="reason"), "refused: {{reason}}"),
           Query(rate("pulsar_proxy_failed_requests_total", by="kind"), "failed: {{kind}}"),
           Query(rate("pulsar_proxy_rejected_lookup_requests_total"), "lookups beyond the limit"))),
    Panel("Brokers fail", "Connections that could not be opened, requests made once more on another broker.", "ops",
          (Query(rate("pulsar_proxy_broker_open_failures_total", by="cause"), "not opened: {{cause}}"),
           Query(rate("pulsar_proxy_broker_fail_overs_total"), "fail-overs"),
           Query(rate("pulsar_proxy_http_server_failures_total"), "web servers"))),
    Panel("TLS and credentials", "Handshakes that did not end well, credentials that were refused.", "ops",
          (Query(rate("pulsar_proxy_tls_handshakes_total", 'result!="done"', by="peer, result"),
                 "{{peer}}: {{result}}"),
           Query(rate("pulsar_authentication_failures_total", by="reason"), "credentials: {{reason}}"))),
    Panel("Days until a certificate expires", "The alert comes at 7.", "suffix: d",
          (Query(f"(min by (cert) ({of(EXPIRES)}) - time()) / 86400", "{{cert}}"),),
          least=None),  # An expired certificate has a negative number of days.
    Panel("The proxy itself", "Normal: all 0. Internal errors are bugs, with a traceback in the log.", "short",
          (Query(f"sum (increase({of('pulsar_proxy_internal_errors_total')}[$__rate_interval]))", "internal errors"),
           Query(f"sum (increase({of('pulsar_proxy_event_log_dropped_total')}[$__rate_interval]))", "events lost"),
           Query(f"sum (changes({of('process_start_time_seconds')}[$__rate_interval]))", "starts"),
           Query(f"sum ({of('pulsar_proxy_config_reload_success')} == bool 0)", "configuration refused"))),
))  # fmt: skip

ROWS: Final = (STORM, WHO, MEMORY, RELAY, ERRORS)
