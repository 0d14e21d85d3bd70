"""Keys of the brokers, of requests to brokers, and of the targets that clients may reach."""

from proxy.config.keys.key import Key, boolean, broker_urls, host_patterns, limit, networks, ports, web_urls, whole
from proxy.config.keys.units import DAY_SECONDS, HOUR_MILLIS, MILLIS, SECONDS

_EMPTY = "an empty value for the default: it allows nothing"


class BrokerKeys:
    """Keys of the brokers."""

    section = "Brokers"

    broker_service_url = Key(
        "brokerServiceURL", "", broker_urls(), since="pulsar", required=True,
        doc="Brokers, or a load balancer in front of them, that answer lookups and topic lists. Not needed if you "
        "set tlsEnabledWithBroker and brokerServiceURLTLS.",
        better="several hosts, and names with many addresses, share the load and fail over",
    )  # fmt: skip
    broker_service_url_tls = Key(
        "brokerServiceURLTLS", "", broker_urls(tls=True), since="pulsar",
        doc="Like brokerServiceURL, but with TLS; used if tlsEnabledWithBroker.",
        better="several hosts, and names with many addresses, share the load and fail over",
    )  # fmt: skip
    broker_web_service_url = Key(
        "brokerWebServiceURL", (), web_urls("http", "https"), since="pulsar",
        doc="Web services of the brokers, to which the proxy forwards requests to the admin API. Empty: the proxy "
        "does not serve the admin API.",
        better="several hosts fail over",
    )  # fmt: skip
    broker_web_service_url_tls = Key(
        "brokerWebServiceURLTLS", (), web_urls("https"), since="pulsar",
        doc="Like brokerWebServiceURL, but with TLS; used if tlsEnabledWithBroker.",
        better="several hosts fail over",
    )  # fmt: skip
    function_worker_web_service_url = Key(
        "functionWorkerWebServiceURL", (), web_urls("http", "https"), since="pulsar",
        doc="Web services of function workers. Empty: those of the brokers.",
    )  # fmt: skip
    function_worker_web_service_url_tls = Key(
        "functionWorkerWebServiceURLTLS", (), web_urls("https"), since="pulsar",
        doc="Like functionWorkerWebServiceURL, but with TLS; used if tlsEnabledWithBroker.",
    )  # fmt: skip
    broker_dns_ttl_seconds = Key(
        "brokerDnsTtlSeconds", 30, whole(1, DAY_SECONDS), unit=SECONDS,
        doc="Time for which the addresses of a host name are cached; a failed resolution is cached for a tenth of "
        "this time. Addresses serve for as long again while the resolver is slow or fails, if the certificate of the "
        "broker is checked or no secret credentials are sent to it.",
    )  # fmt: skip
    broker_idle_probe_interval_millis = Key(
        "brokerIdleProbeIntervalMillis", 30_000, whole(0, HOUR_MILLIS), unit=MILLIS,
        doc="Time after which a broker is probed with a connection and CONNECT if nothing was heard of it. "
        "Each broker is also probed at the start. A broker with an open request connection is not probed. 0: only "
        "brokers that are down are probed.",
    )  # fmt: skip
    readiness_broker_wait_millis = Key(
        "readinessBrokerWaitMillis", 0, whole(0, HOUR_MILLIS), unit=MILLIS,
        doc="How long after the start /readyz may report not ready because no broker is known to be up or all to be "
        "down. Brokers that are down never make the proxy not ready: that would drain all proxies at once.",
    )  # fmt: skip
    check_active_brokers = Key(
        "checkActiveBrokers", False, boolean(), since="pulsar",
        doc="Connect clients only to the brokers in brokerServiceURL (or brokerServiceURLTLS), by name or by address.",
        better="brokers of a URL count as active; the Java proxy knows those of a metadata store alone, and without "
        "one connects nobody",
    )  # fmt: skip
    broker_proxy_connect_timeout_ms = Key(
        "brokerProxyConnectTimeoutMs", 10_000, limit(HOUR_MILLIS), since="pulsar",
        unit=MILLIS, dynamic=True,
        doc="Time limit for opening a connection to a broker, and again for the broker's answer to CONNECT. 0: an "
        "hour.",
        better="the client gets an ERROR with the reason; upstream closes the connection silently",
    )  # fmt: skip
    broker_proxy_read_timeout_ms = Key(
        "brokerProxyReadTimeoutMs", 75_000, whole(0, HOUR_MILLIS), since="pulsar",
        unit=MILLIS, dynamic=True,
        doc="Time after which a relayed connection is closed if no byte came from either side, and none was taken; "
        "without keep-alive also a silent client connection. 0: never, but half-closed relays after 300 s.",
    )  # fmt: skip


class TargetKeys:
    """Keys of the targets that clients may reach."""

    section = "Targets a client may reach"

    broker_proxy_allowed_host_names = Key(
        "brokerProxyAllowedHostNames", ("*",), host_patterns(), since="pulsar", dynamic=True,
        doc="Host names to which the proxy may connect a client. Narrow this list: by default a client can reach any "
        "host.",
        less=_EMPTY,
    )  # fmt: skip
    broker_proxy_allowed_ip_addresses = Key(
        "brokerProxyAllowedIPAddresses", ("*",), networks(), since="pulsar", dynamic=True,
        doc="Addresses or networks to which the proxy may connect a client, checked after name resolution. Parts may "
        "be * or ranges: 10.0.*.*, 10.0-3.*, 2001:db8:*.",
        less="what is read in several ways (10.0.0.5/8, 10.0, 010.0.0.1) and what would be more than 256 networks, "
        f"which are refused; {_EMPTY}",
    )  # fmt: skip
    broker_proxy_allowed_target_ports = Key(
        "brokerProxyAllowedTargetPorts", ("6650", "6651"), ports(), since="pulsar",
        dynamic=True,
        doc="Ports to which the proxy may connect a client.",
        less=_EMPTY,
    )  # fmt: skip
    broker_web_service_allowed_target_ports = Key(
        "brokerWebServiceAllowedTargetPorts", ("8080", "8443"), ports(), dynamic=True,
        doc="Ports to which a broker may redirect an HTTP request, in addition to those of the configured web "
        "services. For hosts and addresses, brokerProxyAllowedHostNames and brokerProxyAllowedIPAddresses apply.",
    )  # fmt: skip

    broker_proxy_credentials_to_any_target = Key(
        "brokerProxyCredentialsToAnyTarget", False, boolean(),
        doc="Send secret credentials, the proxy's own (brokerClientAuthenticationPlugin, but for TLS) and those of its "
        "clients (forwardAuthorizationCredentials), to every target "
        "that a client may name, as the Java proxy does. By default only known brokers get them: those of "
        "brokerServiceURL, those that lookup answers name, those in the list of brokerWebServiceURL, and those inside "
        "brokerProxyAllowedHostNames or brokerProxyAllowedIPAddresses if you narrow that key.",
    )  # fmt: skip


class BrokerRequestKeys:
    """Keys of requests to brokers."""

    section = "Requests to brokers"

    topic_list_max_outstanding_per_broker = Key(
        "topicListMaxOutstandingPerBroker", 64, whole(1, 100_000), unit="requests",
        dynamic=True,
        doc="Requests for topic lists that a broker gets at the same time; over HTTP all brokers together, and clients "
        "of one address seven eighths of that.",
    )  # fmt: skip
    broker_connections_total = Key(
        "brokerConnectionsTotal", 256, whole(1, 65_536), unit="connections",
        dynamic=True,
        doc="Request connections to all brokers together. Where clients need more, a connection without a request is "
        "closed for those that have waited longest.",
    )  # fmt: skip
