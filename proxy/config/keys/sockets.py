"""Keys of sockets and of the kernel's memory for them."""

from proxy.config.keys.key import Key, whole, whole_or_blank
from proxy.config.keys.units import BYTES, HOUR_MILLIS, MIB, MILLIS


class SocketKeys:
    """Keys of sockets and of the kernel's memory for them."""

    section = "Sockets"

    client_socket_send_buffer_bytes = Key(
        "clientSocketSendBufferBytes", 262_144, whole(0, 1 << 30), unit=BYTES, dynamic=True,
        doc="Largest kernel send buffer of a lookup connection, charged to the cgroup; the kernel doubles the size. "
        "A connection begins with 16 KiB, and gets this for a large answer (clientSocketSendMemoryMB). The receive "
        "buffer of a request connection to a broker, which fills up while the proxy waits for memory, is four times as "
        "large, beyond a third of brokerConnectionsTotal as large. 0: the kernel's choice, and 1 MiB for the latter.",
    )  # fmt: skip
    client_socket_send_memory_mb = Key(
        "clientSocketSendMemoryMB", 256, whole(-1, 1 << 20), unit=MIB, dynamic=True,
        doc="Memory that the kernel's send buffers of all lookup-mode connections may take beyond 32 KiB each. Answers "
        "that find none wait a moment, and are then written with a smaller buffer. -1 or 0: no bound in sum, each "
        "connection has clientSocketSendBufferBytes from its start; so it is, too, where that is no more.",
    )  # fmt: skip
    relay_buffer_bytes = Key(
        "relayBufferBytes", 262_144, whole(65_536, 1 << 24), unit=BYTES,
        doc="Bytes of a relayed connection held for a slow peer, per direction, before the proxy stops reading the "
        "other peer. Also the size of a read on a busy connection (others read 64 KiB).",
    )  # fmt: skip
    relay_unsent_bytes = Key(
        "relayUnsentBytes", 131_072, whole(0, 1 << 30), unit=BYTES,
        doc="Bytes that the kernel may keep for a relayed socket beside those under way to its peer "
        "(TCP_NOTSENT_LOWAT), on both sides of a relay from its start. 0: the kernel's choice, up to "
        "net.ipv4.tcp_wmem for each side.",
    )  # fmt: skip
    relay_memory_pool_mb = Key(
        "relayMemoryPoolMB", 128, whole(-1, 1 << 20), unit=MIB,
        doc="Memory for bytes that relays have read and their receivers have not taken, in all (KIP-72). While it is "
        "used up, connections are read only as far as their receivers take bytes; others wait, and are read in turns. "
        "-1 or 0: no pool, each relay holds up to relayBufferBytes in each direction.",
    )  # fmt: skip
    relay_socket_memory_mb = Key(
        "relaySocketMemoryMB", 384, whole(-1, 1 << 20), unit=MIB,
        doc="Memory that the kernel may hold for all relayed sockets, both sides. From half of it on windows of "
        "relays that stand still are narrowed, and none is widened; above it those that hold most and stand still are "
        "ended. A relay begins with a narrow window towards its broker, until the client has taken 1 MiB. -1 or 0: no "
        "bound in sum, each socket holds what the kernel allows.",
    )  # fmt: skip
    num_io_threads = Key(
        "numIOThreads", None, whole_or_blank(1, 1024), since="pulsar", unit="threads",
        doc="Threads of the native extension that move the bytes of relayed connections, and write large topic lists "
        "that several clients share. Empty: a thread for each processor that affinity and the container's quota allow, "
        "at most 4.",
        better="threads for relayed connections and shared topic lists only; empty means a thread for each "
        "processor, at most 4 (the Java proxy: two for each); everything else is done by one event loop",
    )  # fmt: skip
    tcp_user_timeout_millis = Key(
        "tcpUserTimeoutMillis", 30_000, whole(0, HOUR_MILLIS), unit=MILLIS,
        doc="Time after which unacknowledged bytes end a connection (TCP_USER_TIMEOUT). 0: the kernel's choice.",
    )  # fmt: skip
