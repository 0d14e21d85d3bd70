"""Keys of sockets and of the kernel's memory for them."""

from proxy.config.keys.key import Key, whole
from proxy.config.keys.units import BYTES, HOUR_MILLIS, MILLIS, SECONDS

SOCKETS = "Sockets"


class SocketKeys:
    """Keys of sockets and of the kernel's memory for them."""

    client_socket_send_buffer_bytes = Key(
        "clientSocketSendBufferBytes", 262_144, whole(0, 1 << 30), section=SOCKETS, unit=BYTES, dynamic=True,
        doc="Kernel send buffer of a lookup-mode connection, which is charged to the cgroup. 0: the kernel's choice.",
    )  # fmt: skip
    broker_socket_receive_buffer_bytes = Key(
        "brokerSocketReceiveBufferBytes", 1_048_576, whole(0, 1 << 30), section=SOCKETS, unit=BYTES,
        doc="Kernel receive buffer of a request connection to a broker, which fills up while the proxy waits for "
        "memory. 0: the kernel's choice.",
    )  # fmt: skip
    relay_buffer_bytes = Key(
        "relayBufferBytes", 262_144, whole(65_536, 1 << 24), section=SOCKETS, unit=BYTES,
        doc="Bytes of a relayed connection held for a slow peer, per direction, before the proxy stops reading the "
        "other peer. Also the size of a read on a busy connection (others read 64 KiB).",
    )  # fmt: skip
    accept_backlog = Key(
        "acceptBacklog", 4096, whole(1, 65_535), section=SOCKETS, unit="connections",
        doc="Connections that the kernel queues until the proxy accepts them (bounded by net.core.somaxconn).",
    )  # fmt: skip
    tcp_user_timeout_millis = Key(
        "tcpUserTimeoutMillis", 30_000, whole(0, HOUR_MILLIS), section=SOCKETS, unit=MILLIS,
        doc="Time after which unacknowledged bytes end a connection (TCP_USER_TIMEOUT). 0: the kernel's choice.",
    )  # fmt: skip
    tcp_keep_alive_idle_seconds = Key(
        "tcpKeepAliveIdleSeconds", 60, whole(0, 32_767), section=SOCKETS, unit=SECONDS,
        doc="Silence before the first TCP keep-alive probe (TCP_KEEPIDLE). 0: no probes.",
    )  # fmt: skip
    tcp_keep_alive_interval_seconds = Key(
        "tcpKeepAliveIntervalSeconds", 10, whole(1, 32_767), section=SOCKETS, unit=SECONDS,
        doc="Time between TCP keep-alive probes (TCP_KEEPINTVL).",
    )  # fmt: skip
    tcp_keep_alive_probes = Key(
        "tcpKeepAliveProbes", 3, whole(1, 127), section=SOCKETS, unit="probes",
        doc="Unanswered TCP keep-alive probes that end a connection (TCP_KEEPCNT).",
    )  # fmt: skip
