"""Keys of the listening ports and of the proxy's names."""

from proxy.config.keys.key import (
    Key,
    boolean,
    choice,
    host,
    hosts,
    mode,
    networks_or_unix,
    text,
    whole,
    whole_or_blank,
)
from proxy.config.keys.units import SECONDS


class ServerKeys:
    """Keys of the listening ports and of the proxy's names."""

    section = "Server"

    service_port = Key(
        "servicePort", 6650, whole_or_blank(0, 65535), since="pulsar",
        doc="Port for Pulsar clients. Empty: no such port, only servicePortTls. 0: any free port.",
    )  # fmt: skip
    service_port_tls = Key(
        "servicePortTls", None, whole_or_blank(0, 65535), since="pulsar",
        doc="Port for Pulsar clients with TLS. Empty: no such port. 0: any free port.",
    )  # fmt: skip
    web_service_port = Key(
        "webServicePort", 8080, whole_or_blank(0, 65535), since="pulsar",
        doc="Port for the admin API, /metrics, /healthz, /readyz and /status.html. Empty: no such port. 0: any free "
        "port.",
    )  # fmt: skip
    web_service_port_tls = Key(
        "webServicePortTls", None, whole_or_blank(0, 65535), since="pulsar",
        doc="Like webServicePort, but with TLS. Empty: no such port. 0: any free port.",
    )  # fmt: skip
    bind_address = Key(
        "bindAddress", ("0.0.0.0",), hosts(needed=True), since="pulsar",
        doc="Addresses that all ports listen on, separated by commas (but webBindAddress, metricsBindAddress). Set "
        "127.0.0.1 for a proxy beside an application. `0.0.0.0,::` is every address of IPv4 and IPv6.",
        better="several addresses, separated by commas",
    )  # fmt: skip
    web_bind_address = Key(
        "webBindAddress", (), hosts(),
        doc="Addresses that the web ports listen on, separated by commas. Empty: bindAddress. The ports for clients "
        "may so be on loopback and /metrics on the address of the pod.",
    )  # fmt: skip
    metrics_port = Key(
        "metricsPort", None, whole_or_blank(0, 65535),
        doc="Port for /metrics, /healthz, /readyz and /status.html alone, without TLS: nothing is passed on there and "
        "no configuration is shown. A sidecar can be scraped and probed there while all else is on loopback. Empty: no "
        "such port. 0: any free port.",
    )  # fmt: skip
    metrics_bind_address = Key(
        "metricsBindAddress", (), hosts(),
        doc="Addresses that metricsPort listens on, separated by commas. Empty: as webBindAddress.",
    )  # fmt: skip
    service_socket_path = Key(
        "serviceSocketPath", "", text(),
        doc="Unix socket for Pulsar clients without TLS, beside the ports: for a load balancer or a program on this "
        "machine that connects to one. The address of such a client is `unix:` and its user's number. Empty: none.",
    )  # fmt: skip
    service_socket_mode = Key(
        "serviceSocketMode", "0600", mode(),
        doc="Permissions of the file at serviceSocketPath: who may write to it may connect.",
    )  # fmt: skip
    advertised_address = Key(
        "advertisedAddress", "", host(), since="pulsar",
        doc="Host name under which clients reach this proxy; answers to HTTP lookups contain it. Empty: the host "
        "that the client used.",
    )  # fmt: skip
    ha_proxy_protocol_enabled = Key(
        "haProxyProtocolEnabled", False, boolean(), since="pulsar",
        doc="Read a PROXY protocol header (v1 or v2) at the start of client connections, if there is one, and send "
        "brokers the client's address in the same way. Set this only behind a load balancer: any client can claim "
        "any address in the header, unless trustedLoadBalancerIPAddresses names the balancers.",
        better="v2 and IPv6 for brokers, LOCAL on connections without a client",
    )  # fmt: skip
    trusted_load_balancer_ip_addresses = Key(
        "trustedLoadBalancerIPAddresses", ("*",), networks_or_unix(),
        doc="Addresses and networks of load balancers. Only their connections may begin with a PROXY protocol header, "
        "and only they are believed in X-Forwarded-For, of which the last address counts that is not listed here. "
        "`unix`: clients of serviceSocketPath. `*`: any address.",
    )  # fmt: skip
    broker_ha_proxy_protocol_version = Key(
        "brokerHaProxyProtocolVersion", "1", choice("1", "2", "none"),
        doc="Version of the PROXY protocol header sent to brokers if haProxyProtocolEnabled. `none`: no header.",
    )  # fmt: skip
    max_connection_age_seconds = Key(
        "maxConnectionAgeSeconds", 0, whole(0, 31_536_000), unit=SECONDS,
        doc="Age at which an idle client connection is closed, so that a load balancer can spread clients again. 0: "
        "never.",
    )  # fmt: skip
    cluster_name = Key(
        "clusterName", "", text(), since="pulsar",
        doc="Name of the Pulsar cluster behind this proxy; each metric has it as the label `cluster`.",
    )  # fmt: skip
    status_file_path = Key(
        "statusFilePath", "", text(), since="pulsar",
        doc="File that must exist for /status.html to answer OK. Empty: no file is needed.",
    )  # fmt: skip
