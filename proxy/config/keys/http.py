"""Keys of the web ports: the forwarded admin API, and the pages of this proxy.

`httpReverseProxy.<name>.path` and `.proxyTo` are a family of keys outside this table: `Config.http_reverse_proxies`.
"""

from proxy.config.keys.key import (
    Key,
    boolean,
    decimal,
    host_patterns,
    json_object,
    limit,
    origins,
    port_numbers,
    whole,
)
from proxy.config.keys.units import BYTES, HOUR_MILLIS, LARGEST, MILLIS


class HttpKeys:
    """Keys of the web ports: the forwarded admin API, and the pages of this proxy."""

    section = "Web ports"

    http_output_buffer_size = Key(
        "httpOutputBufferSize", 32_768, whole(1024, 1 << 24), since="pulsar", unit=BYTES,
        doc="Buffer size for forwarded bodies; a body fills at most four such buffers in each direction.",
        less="less than 1024, by which the Java proxy streams: what has come is passed on at once, whatever the size",
    )  # fmt: skip
    http_max_request_header_size = Key(
        "httpMaxRequestHeaderSize", 8192, whole(1024, 1 << 20), since="pulsar", unit=BYTES,
        doc="Largest header of a request.",
    )  # fmt: skip
    http_max_response_header_size = Key(
        "httpMaxResponseHeaderSize", 8192, whole(1024, 1 << 20), since="pulsar", unit=BYTES,
        doc="Largest header of a broker's answer that is passed on; a larger one becomes 502. Brokers send the "
        "properties of a message in headers, and have a key of this name themselves.",
    )  # fmt: skip
    http_input_max_replay_buffer_size = Key(
        "httpInputMaxReplayBufferSize", 5_242_880, whole(0, LARGEST), since="pulsar", unit=BYTES,
        doc="Largest body that is sent again when a broker redirects.",
    )  # fmt: skip
    http_proxy_timeout = Key(
        "httpProxyTimeout", 300_000, whole(1, 24 * HOUR_MILLIS), since="pulsar", unit=MILLIS,
        dynamic=True,
        doc="Time limit for a forwarded request; of a topic list only until its first byte, then for each wait for the "
        "broker; of a WebSocket, for the time in which no byte passes.",
    )  # fmt: skip
    max_concurrent_http_requests = Key(
        "maxConcurrentHttpRequests", 1024, whole(1, 1_000_000), since="pulsar", unit="requests",
        dynamic=True,
        doc="Requests in progress at the same time.",
        less="0, by which the Java proxy has no limit: memory for all of them is part of the sum",
    )  # fmt: skip
    max_http_server_connections = Key(
        "maxHttpServerConnections", 2048, whole(1, 1_000_000), since="pulsar", unit="connections",
        doc="Connections to the web ports at the same time; 32 of them, or an eighth, are kept for the proxy's own "
        "pages.",
        better="at the limit a newcomer replaces a connection of an address with most, one at rest if it can, or is "
        "closed; the Java proxy accepts no more, and newcomers wait until others end",
        less="0, by which the Java proxy has no limit: memory for all of them is part of the sum",
    )  # fmt: skip
    http_requests_limit_enabled = Key(
        "httpRequestsLimitEnabled", False, boolean(), since="pulsar",
        dynamic=True,
        doc="Limit the rate of requests.",
    )  # fmt: skip
    http_requests_max_per_second = Key(
        "httpRequestsMaxPerSecond", 100.0, decimal(0.01, 1_000_000), since="pulsar", unit="requests/s",
        dynamic=True,
        doc="Highest rate of all requests together if httpRequestsLimitEnabled; a request above it gets 429. A quarter "
        "of a second's requests is kept for principals, or addresses, that ask for less than their share.",
        better="no client uses up what others may ask for",
    )  # fmt: skip
    proxy_http_response_headers_json = Key(
        "proxyHttpResponseHeadersJson", "", json_object(), since="pulsar",
        doc="Headers added to each response, as a JSON object.",
    )  # fmt: skip
    enable_proxy_stats_endpoints = Key(
        "enableProxyStatsEndpoints", True, boolean(), since="pulsar",
        doc="Serve /proxy-stats, /config and the numbers of the page at /, and /metrics on the web ports; metricsPort "
        "has /metrics in any case.",
    )  # fmt: skip
    authenticate_metrics_endpoint = Key(
        "authenticateMetricsEndpoint", True, boolean(), since="pulsar",
        doc="Require credentials for /metrics if authenticationEnabled.",
    )  # fmt: skip
    metrics_servlet_timeout_ms = Key(
        "metricsServletTimeoutMs", 30_000, limit(HOUR_MILLIS), since="pulsar", unit=MILLIS,
        doc="Time limit for the proxy's own pages, such as /metrics; then the client gets 503. 0: an hour.",
    )  # fmt: skip
    http_lookup_ports = Key(
        "httpLookupPorts", (), port_numbers(),
        doc="Ports for clients whose service URL is this web port: each broker gets a port, which answers to HTTP "
        "lookups name. Empty: any free ports on a loopback bindAddress; on other addresses clients get the brokers' "
        "own addresses.",
    )  # fmt: skip
    web_service_ha_proxy_protocol_enabled = Key(
        "webServiceHaProxyProtocolEnabled", False, boolean(), since="pulsar",
        doc="Read the PROXY protocol on the web ports, from trustedLoadBalancerIPAddresses.",
    )  # fmt: skip
    web_service_allowed_hosts = Key(
        "webServiceAllowedHosts", ("*",), host_patterns(), dynamic=True,
        doc="Names by which the web ports are reached, as in the header Host: other names get 421, so that no web page "
        "can read the pages by a name of its own that leads here (DNS rebinding). Addresses are always served.",
    )  # fmt: skip
    web_service_allowed_origins = Key(
        "webServiceAllowedOrigins", (), origins(), dynamic=True,
        doc="Web pages of other origins that may change something through a browser, or open a WebSocket, such as "
        "https://console.example.org; * stands for all. Other pages get 403.",
    )  # fmt: skip
    web_service_trust_x_forwarded_for = Key(
        "webServiceTrustXForwardedFor", False, boolean(), since="pulsar",
        doc="Read a client's address from X-Forwarded-For, as sent by trustedLoadBalancerIPAddresses.",
        better="with `trustedLoadBalancerIPAddresses` the last address that is no balancer's; by default the first, a "
        "claim of the client's, as the Java proxy has it",
    )  # fmt: skip
