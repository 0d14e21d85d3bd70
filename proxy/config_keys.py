"""Every key of proxy.conf, one declaration each.

Rule: names, defaults and units are the Java proxy's wherever the meaning is the same. A new key goes here and
nowhere else: proxy.conf and docs/reference/configuration.md are written from this table. No key refers to
another; checks across keys are in `proxy.config`.
"""

from collections.abc import Iterator
from typing import Any

from proxy.config_key import (
    Key,
    boolean,
    broker_url,
    choice,
    host,
    host_patterns,
    networks,
    ports,
    text,
    whole,
    whole_or_blank,
)

SERVER = "Server"
BROKERS = "Brokers"
TARGETS = "Targets a client may reach"
CLIENTS = "Client connections"
TOPIC_LISTS = "Topic lists (PIP-442)"
BROKER_REQUESTS = "Requests to brokers"
SOCKETS = "Sockets"
OPERATION = "Operation"

_BYTES = "bytes"
_MILLIS = "milliseconds"
_SECONDS = "seconds"
_HOUR_MILLIS = 3_600_000
_LARGEST = 2**31 - 1
_FRAME_OVERHEAD = 10_240  # what Pulsar adds to maxMessageSize for headers


class ConfigKeys:
    """The keys as attributes, in the order in which operators read them."""

    service_port = Key(
        "servicePort", 6650, whole(0, 65535), since="pulsar", section=SERVER,
        doc="Port for Pulsar clients. 0 takes any free port.",
    )  # fmt: skip
    web_service_port = Key(
        "webServicePort", 8080, whole(0, 65535), since="pulsar", section=SERVER,
        doc="Port for /metrics, /healthz, /readyz and /status.html. 0 takes any free port.",
    )  # fmt: skip
    bind_address = Key(
        "bindAddress", "0.0.0.0", host(), since="pulsar", section=SERVER,
        doc="Address that both ports listen on. Beside an application: 127.0.0.1.",
    )  # fmt: skip
    cluster_name = Key(
        "clusterName", "", text(), since="pulsar", section=SERVER,
        doc="Pulsar cluster behind this proxy: the `cluster` label of each metric.",
    )  # fmt: skip
    status_file_path = Key(
        "statusFilePath", "", text(), since="pulsar", section=SERVER,
        doc="File that must exist for /status.html to answer OK. Empty: no such file is needed.",
    )  # fmt: skip

    broker_service_url = Key(
        "brokerServiceURL", "", broker_url(), since="pulsar", section=BROKERS, required=True,
        doc="Broker, or load balancer in front of the brokers, that answers lookups and topic lists.",
    )  # fmt: skip
    broker_proxy_connect_timeout_ms = Key(
        "brokerProxyConnectTimeoutMs", 10_000, whole(1, _HOUR_MILLIS), since="pulsar", section=BROKERS,
        unit=_MILLIS, dynamic=True,
        doc="Time for opening a connection to a broker, and again for its answer to CONNECT.",
    )  # fmt: skip
    broker_proxy_read_timeout_ms = Key(
        "brokerProxyReadTimeoutMs", 75_000, whole(0, _HOUR_MILLIS), since="pulsar", section=BROKERS,
        unit=_MILLIS, dynamic=True,
        doc="A relayed pair in which no byte moved for so long is closed; without keep-alive also a silent client. "
        "0: never.",
    )  # fmt: skip

    broker_proxy_allowed_host_names = Key(
        "brokerProxyAllowedHostNames", ("*",), host_patterns(), since="pulsar", section=TARGETS, dynamic=True,
        doc="Host names that a client may be connected to. Narrow it: by default a client reaches any host.",
    )  # fmt: skip
    broker_proxy_allowed_ip_addresses = Key(
        "brokerProxyAllowedIPAddresses", ("*",), networks(), since="pulsar", section=TARGETS, dynamic=True,
        doc="Addresses or networks that a client may be connected to, checked after name resolution.",
    )  # fmt: skip
    broker_proxy_allowed_target_ports = Key(
        "brokerProxyAllowedTargetPorts", ("6650", "6651"), ports(), since="pulsar", section=TARGETS,
        dynamic=True, doc="Ports that a client may be connected to.",
    )  # fmt: skip

    max_concurrent_inbound_connections = Key(
        "maxConcurrentInboundConnections", 10_000, whole(0, 10_000_000), since="pulsar", section=CLIENTS,
        unit="connections", dynamic=True, doc="Client connections open at once. 0: no limit.",
    )  # fmt: skip
    max_concurrent_inbound_connections_per_ip = Key(
        "maxConcurrentInboundConnectionsPerIp", 0, whole(0, 10_000_000), since="pulsar", section=CLIENTS,
        unit="connections", dynamic=True,
        doc="Client connections open at once from one address. 0: no limit.",
    )  # fmt: skip
    max_concurrent_lookup_requests = Key(
        "maxConcurrentLookupRequests", 50_000, whole(1, 10_000_000), since="pulsar", section=CLIENTS,
        unit="requests", dynamic=True,
        doc="Lookup-mode requests in work at once, each counted until its answer; above it TooManyRequests.",
    )  # fmt: skip
    max_outstanding_requests_per_connection = Key(
        "maxOutstandingRequestsPerConnection", 1000, whole(1, 1_000_000), section=CLIENTS, unit="requests",
        dynamic=True, doc="Requests of one connection in work at once; above it that connection is not read.",
    )  # fmt: skip
    max_message_size = Key(
        "maxMessageSize", 5_242_880, whole(1024, _LARGEST - _FRAME_OVERHEAD), since="pulsar", section=CLIENTS,
        unit=_BYTES, doc="Largest message; a frame may be 10240 bytes larger. Must be that of the brokers.",
    )  # fmt: skip
    max_lookup_frame_bytes = Key(
        "maxLookupFrameBytes", 1_048_576, whole(65_536, _LARGEST), section=CLIENTS, unit=_BYTES,
        doc="Largest frame that a client may send in lookup mode.",
    )  # fmt: skip
    handshake_timeout_millis = Key(
        "handshakeTimeoutMillis", 10_000, whole(1, _HOUR_MILLIS), section=CLIENTS, unit=_MILLIS, dynamic=True,
        doc="Time from the TCP connection to the end of the client's handshake.",
    )  # fmt: skip
    keep_alive_interval_seconds = Key(
        "keepAliveIntervalSeconds", 30, whole(0, 3600), since="pulsar", section=CLIENTS, unit=_SECONDS,
        dynamic=True,
        doc="Time between PINGs; a peer that answered none until the next is closed. 0: no PINGs.",
    )  # fmt: skip

    max_topic_list_in_flight_heap_mem_size_mb = Key(
        "maxTopicListInFlightHeapMemSizeMB", 100, whole(0, 1_048_576), since="pip-442", section=TOPIC_LISTS,
        unit="MiB", dynamic=True,
        doc="Memory for topic lists between the broker's answer and its encoding. 0: no limit, so no "
        "promise.",
    )  # fmt: skip
    max_topic_list_in_flight_direct_mem_size_mb = Key(
        "maxTopicListInFlightDirectMemSizeMB", 100, whole(0, 1_048_576), since="pip-442", section=TOPIC_LISTS,
        unit="MiB", dynamic=True,
        doc="Memory for encoded topic lists that clients have not taken yet. 0: no limit, so no promise.",
    )  # fmt: skip
    max_topic_list_in_flight_heap_mem_size_permits_acquire_timeout_millis = Key(
        "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis", 25_000, whole(0, _HOUR_MILLIS),
        since="pip-442", section=TOPIC_LISTS, unit=_MILLIS, dynamic=True,
        doc="Longest wait of a request for heap memory, then TooManyRequests.",
    )  # fmt: skip
    max_topic_list_in_flight_direct_mem_size_permits_acquire_timeout_millis = Key(
        "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis", 25_000, whole(0, _HOUR_MILLIS),
        since="pip-442", section=TOPIC_LISTS, unit=_MILLIS, dynamic=True,
        doc="Longest wait of an answer for direct memory, then TooManyRequests.",
    )  # fmt: skip
    max_topic_list_in_flight_heap_mem_size_permits_acquire_queue_size = Key(
        "maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize", 10_000, whole(0, 10_000_000),
        since="pip-442", section=TOPIC_LISTS, unit="requests", dynamic=True,
        doc="Requests that may wait for heap memory; one more is refused at once. 0: no limit.",
    )  # fmt: skip
    max_topic_list_in_flight_direct_mem_size_permits_acquire_queue_size = Key(
        "maxTopicListInFlightDirectMemSizePermitsAcquireQueueSize", 10_000, whole(0, 10_000_000),
        since="pip-442", section=TOPIC_LISTS, unit="requests", dynamic=True,
        doc="Answers that may wait for direct memory; one more is refused at once. 0: no limit.",
    )  # fmt: skip
    topic_list_request_timeout_millis = Key(
        "topicListRequestTimeoutMillis", 28_000, whole(1, _HOUR_MILLIS), section=TOPIC_LISTS, unit=_MILLIS,
        dynamic=True,
        doc="One clock from a request's arrival over all its waits, lookups and schemas included. Keep it under "
        "the clients' 30 s.",
    )  # fmt: skip
    topic_list_initial_heap_permit_bytes = Key(
        "topicListInitialHeapPermitBytes", 1024, whole(0, _LARGEST), section=TOPIC_LISTS, unit=_BYTES,
        dynamic=True, doc="Memory asked for a list whose size is not known yet.",
    )  # fmt: skip
    topic_list_max_answer_bytes = Key(
        "topicListMaxAnswerBytes", None, whole_or_blank(1024, _LARGEST), section=TOPIC_LISTS, unit=_BYTES,
        dynamic=True,
        doc="Larger answers of brokers are skipped with an error. Empty: the smaller of the two memory "
        "limits.",
    )  # fmt: skip

    topic_list_coalescing_enabled = Key(
        "topicListCoalescingEnabled", True, boolean(), section=TOPIC_LISTS, dynamic=True,
        doc="Equal requests that wait at the same time share one question to the broker and one encoded answer.",
    )  # fmt: skip
    topic_list_fairness = Key(
        "topicListFairness", "fifo", choice("fifo", "connection", "principal", "tenant", "namespace"),
        section=TOPIC_LISTS, dynamic=True,
        doc="Between whom memory is shared when requests wait for it: by bytes, in turns, first come first "
        "served within each. `fifo`: first come, first served for all.",
    )  # fmt: skip
    topic_list_max_memory_percent_per_key = Key(
        "topicListMaxMemoryPercentPerKey", 100, whole(1, 100), section=TOPIC_LISTS, unit="%", dynamic=True,
        doc="Most of each memory limit that one connection, principal, tenant or namespace (`topicListFairness`) "
        "may be let in with; `fifo` has no keys.",
    )  # fmt: skip
    topic_list_write_stall_timeout_millis = Key(
        "topicListWriteStallTimeoutMillis", 20_000, whole(0, _HOUR_MILLIS), section=TOPIC_LISTS, unit=_MILLIS,
        dynamic=True, doc="A client that takes no byte of its answer for so long is closed. 0: never.",
    )  # fmt: skip
    topic_list_write_min_bytes_per_second = Key(
        "topicListWriteMinBytesPerSecond", 32_768, whole(0, _LARGEST), section=TOPIC_LISTS, unit="bytes/s",
        dynamic=True,
        doc="A client slower than this over 10 s is closed, but only while others wait for direct memory. "
        "0: never.",
    )  # fmt: skip

    watch_topic_list_limit_enabled = Key(
        "watchTopicListLimitEnabled", True, boolean(), section=TOPIC_LISTS, dynamic=True,
        doc="Count the frames of topic-list watchers on relayed connections against direct memory. `false`: "
        "relayed bytes are not looked at.",
    )  # fmt: skip
    watch_topic_list_max_pause_millis = Key(
        "watchTopicListMaxPauseMillis", 1000, whole(0, _HOUR_MILLIS), section=TOPIC_LISTS, unit=_MILLIS,
        dynamic=True,
        doc="Longest pause of a relayed connection for a watch frame's memory; then the frame passes and is "
        "counted.",
    )  # fmt: skip

    topic_list_max_outstanding_per_broker = Key(
        "topicListMaxOutstandingPerBroker", 64, whole(1, 100_000), section=BROKER_REQUESTS, unit="requests",
        dynamic=True, doc="Topic-list questions that one broker has to answer at once.",
    )  # fmt: skip
    topic_list_broker_answer_timeout_millis = Key(
        "topicListBrokerAnswerTimeoutMillis", 30_000, whole(1, _HOUR_MILLIS), section=BROKER_REQUESTS,
        unit=_MILLIS, dynamic=True, doc="Time in which a broker must begin to answer a request.",
    )  # fmt: skip
    broker_connections_per_key = Key(
        "brokerConnectionsPerKey", 2, whole(1, 1024), section=BROKER_REQUESTS, unit="connections",
        dynamic=True, doc="Request connections to one broker in the name of one principal.",
    )  # fmt: skip
    broker_connections_total = Key(
        "brokerConnectionsTotal", 256, whole(1, 65_536), section=BROKER_REQUESTS, unit="connections",
        dynamic=True, doc="Request connections to all brokers together.",
    )  # fmt: skip
    broker_connection_idle_millis = Key(
        "brokerConnectionIdleMillis", 60_000, whole(1, 24 * _HOUR_MILLIS), section=BROKER_REQUESTS,
        unit=_MILLIS, dynamic=True, doc="A request connection unused for so long is closed.",
    )  # fmt: skip

    client_socket_send_buffer_bytes = Key(
        "clientSocketSendBufferBytes", 262_144, whole(0, 1 << 30), section=SOCKETS, unit=_BYTES, dynamic=True,
        doc="Kernel send buffer of a lookup-mode connection: a cgroup is charged for it. 0: the kernel's "
        "choice.",
    )  # fmt: skip
    broker_socket_receive_buffer_bytes = Key(
        "brokerSocketReceiveBufferBytes", 1_048_576, whole(0, 1 << 30), section=SOCKETS, unit=_BYTES,
        doc="Kernel receive buffer of a request connection to a broker: what may pile up there while the proxy "
        "waits for memory. 0: the kernel's choice.",
    )  # fmt: skip
    relay_buffer_bytes = Key(
        "relayBufferBytes", 262_144, whole(65_536, 1 << 24), section=SOCKETS, unit=_BYTES,
        doc="Most bytes of a relayed connection held for a slow side, per direction, before the other is not "
        "read: the size of one read of a busy connection (others read 64 KiB).",
    )  # fmt: skip
    accept_backlog = Key(
        "acceptBacklog", 4096, whole(1, 65_535), section=SOCKETS, unit="connections",
        doc="Connections that the kernel keeps for us until they are accepted (bounded by "
        "net.core.somaxconn).",
    )  # fmt: skip
    tcp_user_timeout_millis = Key(
        "tcpUserTimeoutMillis", 30_000, whole(0, _HOUR_MILLIS), section=SOCKETS, unit=_MILLIS,
        doc="Sent bytes unacknowledged for so long end a connection (TCP_USER_TIMEOUT). 0: the kernel's "
        "choice.",
    )  # fmt: skip
    tcp_keep_alive_idle_seconds = Key(
        "tcpKeepAliveIdleSeconds", 60, whole(0, 32_767), section=SOCKETS, unit=_SECONDS,
        doc="Silence before the first TCP keep-alive probe (TCP_KEEPIDLE). 0: no probes.",
    )  # fmt: skip
    tcp_keep_alive_interval_seconds = Key(
        "tcpKeepAliveIntervalSeconds", 10, whole(1, 32_767), section=SOCKETS, unit=_SECONDS,
        doc="Time between TCP keep-alive probes (TCP_KEEPINTVL).",
    )  # fmt: skip
    tcp_keep_alive_probes = Key(
        "tcpKeepAliveProbes", 3, whole(1, 127), section=SOCKETS, unit="probes",
        doc="Unanswered TCP keep-alive probes that end a connection (TCP_KEEPCNT).",
    )  # fmt: skip

    control_socket_path = Key(
        "controlSocketPath", "", text(), section=OPERATION,
        doc="Unix socket (mode 0600) that `pulsar-proxy top` reads. Empty: `pulsar-proxy-<servicePort>.sock` in "
        "`XDG_RUNTIME_DIR`, else in a directory of the user's own under the temporary directory. `none`: no socket.",
    )  # fmt: skip
    shutdown_drain_millis = Key(
        "shutdownDrainMillis", 15_000, whole(0, _HOUR_MILLIS), section=OPERATION, unit=_MILLIS, dynamic=True,
        doc="Time that open connections get after SIGTERM before they are closed.",
    )  # fmt: skip
    log_level = Key(
        "logLevel", "info", choice("debug", "info", "warning", "error"), section=OPERATION, dynamic=True,
        doc="Least severe log lines that are written.",
    )  # fmt: skip
    log_format = Key(
        "logFormat", "json", choice("json", "console"), section=OPERATION,
        doc="`json`: one object a line, for machines. `console`: for people.",
    )  # fmt: skip

    @classmethod
    def keys(cls) -> Iterator[Key[Any]]:
        """Yield every key in the order of declaration, base classes first."""
        for owner in reversed(cls.__mro__):
            yield from (value for value in vars(owner).values() if isinstance(value, Key))
