"""Where the proxy listens and what it is called."""

from proxy.config.keys.key import Key, boolean, choice, host, text, whole, whole_or_blank
from proxy.config.keys.units import SECONDS

SERVER = "Server"


class ServerKeys:
    """Where the proxy listens and what it is called."""

    service_port = Key(
        "servicePort", 6650, whole_or_blank(0, 65535), since="pulsar", section=SERVER,
        doc="Port for Pulsar clients. Empty: none, only servicePortTls. 0 takes any free port.",
    )  # fmt: skip
    service_port_tls = Key(
        "servicePortTls", None, whole_or_blank(0, 65535), since="pulsar", section=SERVER,
        doc="Port for Pulsar clients with TLS. Empty: none. 0 takes any free port.",
    )  # fmt: skip
    web_service_port = Key(
        "webServicePort", 8080, whole_or_blank(0, 65535), since="pulsar", section=SERVER,
        doc="Port for the admin API, /metrics, /healthz, /readyz and /status.html. Empty: none. 0 takes any free port.",
    )  # fmt: skip
    web_service_port_tls = Key(
        "webServicePortTls", None, whole_or_blank(0, 65535), since="pulsar", section=SERVER,
        doc="The same as webServicePort with TLS. Empty: none. 0 takes any free port.",
    )  # fmt: skip
    bind_address = Key(
        "bindAddress", "0.0.0.0", host(), since="pulsar", section=SERVER,
        doc="Address that all ports listen on. Beside an application: 127.0.0.1.",
    )  # fmt: skip
    advertised_address = Key(
        "advertisedAddress", "", host(), since="pulsar", section=SERVER,
        doc="Name under which clients reach this proxy: what HTTP lookups answer with. Empty: the host that the client "
        "asked.",
    )  # fmt: skip
    ha_proxy_protocol_enabled = Key(
        "haProxyProtocolEnabled", False, boolean(), since="pulsar", section=SERVER,
        doc="Read the PROXY protocol (v1 or v2) in front of each client connection, if it is there, and tell brokers "
        "the client's address the same way. Only behind a load balancer: any client may claim any address with it.",
        better="v2 and IPv6 towards brokers, LOCAL on connections that no client owns",
    )  # fmt: skip
    broker_ha_proxy_protocol_version = Key(
        "brokerHaProxyProtocolVersion", "1", choice("1", "2", "none"), section=SERVER,
        doc="Version of the PROXY protocol towards brokers if haProxyProtocolEnabled; `none`: they expect none.",
    )  # fmt: skip
    max_connection_age_seconds = Key(
        "maxConnectionAgeSeconds", 0, whole(0, 31_536_000), section=SERVER, unit=SECONDS,
        doc="Age at which a client connection is closed when it is idle, so that a load balancer can spread clients "
        "anew. 0: never.",
    )  # fmt: skip
    cluster_name = Key(
        "clusterName", "", text(), since="pulsar", section=SERVER,
        doc="Pulsar cluster behind this proxy: the `cluster` label of each metric.",
    )  # fmt: skip
    status_file_path = Key(
        "statusFilePath", "", text(), since="pulsar", section=SERVER,
        doc="File that must exist for /status.html to answer OK. Empty: no such file is needed.",
    )  # fmt: skip
