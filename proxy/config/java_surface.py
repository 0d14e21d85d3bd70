"""Metrics and HTTP endpoints of the Java proxy, each with its counterpart in this proxy, and what 5.0 has changed.

Rule: docs/compatibility.md is generated from these tables, from the keys and from the metrics. No code uses them at run
time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Verdict = Literal["same", "better", "not supported"]


@dataclass(frozen=True, slots=True)
class Parity:
    """A name of the Java proxy and its counterpart here; `how` is empty if both are the same."""

    name: str
    verdict: Verdict
    how: str = ""


# The default of a key in the Java proxy 4.x and in 5.0, where the two are not the same. None: that version has no such
# key. Every other key has the same default in both.
JAVA_DEFAULTS: Final[Mapping[str, tuple[str | None, str | None]]] = {
    "forwardAuthorizationCredentials": ("false", "true"),
    "tlsHostnameVerificationEnabled": ("false", "true"),
    "webServiceTlsProvider": ("Conscrypt", ""),
    "httpMaxResponseHeaderSize": (None, "8192"),
    "httpProxyIdleTimeout": (None, "30000"),
    "httpServerIdleTimeout": (None, "30000"),
    "jcaProvider": (None, ""),
    "jsseProvider": (None, ""),
    "brokerClientJcaProvider": (None, ""),
    "brokerClientJsseProvider": (None, ""),
    "brokerClientTlsProvider": (None, ""),
    "tlsFactoryClassName": (None, ""),
    "tlsFactoryConfig": (None, ""),
    "brokerClientTlsFactoryClassName": (None, ""),
    "brokerClientTlsFactoryConfig": (None, ""),
    "sslFactoryPlugin": ("org.apache.pulsar.common.util.DefaultPulsarSslFactory", None),
    "sslFactoryPluginParams": ("", None),
    "brokerClientSslFactoryPlugin": ("org.apache.pulsar.common.util.DefaultPulsarSslFactory", None),
    "brokerClientSslFactoryPluginParams": ("", None),
}

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
        "pulsar_expiring_token_minutes",
        "not supported",
        "brokers measure the tokens that are forwarded to them (`forwardAuthorizationCredentials`)",
    ),
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
        "; without `statusFilePath` it answers 200, where the Java proxy has no such page and answers 404"
        "; OPTIONS has the status of GET, where the Java proxy answers 200 always",
    ),
    Parity("GET /metrics", "same"),
    Parity(
        "/admin/*",
        "better",
        "bodies are streamed both ways and topic lists wait for memory like those of the binary protocol; cookies, "
        "which brokers do not use, end at the proxy; `.` and `..` in any encoding, an encoded slash or semicolon up to "
        "the namespace, and TRACE are refused",
    ),
    Parity(
        "/lookup/*",
        "better",
        "with `httpLookupPorts`, or on loopback, answers name a port of this proxy, which a client outside can reach",
    ),
    Parity("/admin/v*/functions, sources, sinks, worker", "same"),
    Parity(
        "httpReverseProxy.*",
        "better",
        "cookies pass, as do WebSockets; a path with `.` or `..` in any encoding is refused; a route at `/`, or in the "
        "place of a page such as /metrics, is served, where the Java proxy does not start",
    ),
    Parity("additional servlets", "not supported", "Java code cannot be loaded"),
    Parity(
        "/ws",
        "better",
        "WebSockets are forwarded to the brokers' service; upstream's proxy serves them itself, with "
        "`webSocketServiceEnabled`",
    ),
    Parity(
        "filters: concurrency (503) and rate (429)",
        "better",
        "a request that is passed on counts until its answer, in the Java proxy 4.0.8 only until it is under way, and "
        "waits some seconds for its place; the proxy's own pages count for neither, so that probes are answered",
    ),
    Parity(
        "filter: authentication",
        "better",
        "the `Authorization` header counts, else the query parameter `token` (but for httpReverseProxy routes, whose "
        "servers may mean something else), else a certificate; the Java proxy asks its providers in the order of their "
        "names. The header's scheme says the method, X-Pulsar-Auth-Method-Name is for the brokers",
    ),
    Parity("filter: extra headers", "same"),
)
