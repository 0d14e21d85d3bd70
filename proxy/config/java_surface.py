"""Metrics and HTTP endpoints of the Java proxy, each with its counterpart in this proxy.

Rule: docs/compatibility.md is generated from this table, from the keys and from the metrics. No code uses the table at
run time.
"""

from dataclasses import dataclass
from typing import Final, Literal

Verdict = Literal["same", "better", "not supported"]


@dataclass(frozen=True, slots=True)
class Parity:
    """A name of the Java proxy and its counterpart here; `how` is empty if both are the same."""

    name: str
    verdict: Verdict
    how: str = ""


_NO_JVM: Final = (
    "there is no JVM; `pulsar_proxy_memory_resident_bytes` and `pulsar_proxy_memory_budget_bytes` show memory"
)
JAVA_METRICS: Final[tuple[Parity, ...]] = (
    Parity("jvm_*", "not supported", _NO_JVM),
    Parity("jvm_memory_direct_bytes_used", "not supported", _NO_JVM),
    Parity("jvm_memory_direct_bytes_max", "not supported", _NO_JVM),
    Parity("process_*", "same", "the six that exist on Linux, above"),
    Parity(
        "jetty_*",
        "not supported",
        "there is no Jetty; `pulsar_proxy_http_answers_total` counts answers of the web ports",
    ),
    Parity("caffeine_cache_*", "not supported", "this proxy does not have the caches that these metrics measure"),
    Parity("pulsar_version_info", "not supported", "`pulsar-proxy top` and the log's first line name the version"),
    Parity(
        "OpenTelemetry topic.list.*", "not supported", "scrape /metrics; a collector's Prometheus receiver has the same"
    ),
    Parity(
        "OpenTelemetry pulsar.tls.reload",
        "not supported",
        "new in 5.0; scrape `pulsar_proxy_tls_reloads_total` by result and "
        "`pulsar_proxy_tls_cert_expiration_timestamp_seconds`",
    ),
)

JAVA_ENDPOINTS: Final[tuple[Parity, ...]] = (
    Parity(
        "GET /status.html",
        "better",
        "503 also while the proxy drains, so that a balancer stops in time; "
        "/healthz and /readyz separate liveness from readiness"
        "; without `statusFilePath` it answers 200, where the Java proxy has no such page and answers 404",
    ),
    Parity("GET /metrics", "same"),
    Parity(
        "/admin/*",
        "better",
        "bodies are streamed both ways and topic lists wait for memory like those of the binary protocol",
    ),
    Parity(
        "/lookup/*",
        "better",
        "with `httpLookupPorts`, or on loopback, answers name a port of this proxy, which a client outside can reach",
    ),
    Parity("/admin/v*/functions, sources, sinks, worker", "same"),
    Parity("httpReverseProxy.*", "same"),
    Parity("additional servlets", "not supported", "Java code cannot be loaded"),
    Parity("/ws", "better", "WebSockets are forwarded to the brokers' service; upstream's proxy serves them itself"),
    Parity("filters: concurrency (503) and rate (429)", "same"),
    Parity("filter: authentication", "same"),
    Parity("filter: extra headers", "same"),
)
