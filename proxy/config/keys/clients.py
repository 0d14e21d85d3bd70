"""Keys that limit clients."""

from proxy.config.keys.key import Key, whole
from proxy.config.keys.units import BYTES, FRAME_OVERHEAD, HOUR_MILLIS, LARGEST, MILLIS, SECONDS


class ClientKeys:
    """Keys that limit clients."""

    section = "Client connections"

    max_concurrent_inbound_connections = Key(
        "maxConcurrentInboundConnections", 10_000, whole(0, 10_000_000), since="pulsar",
        unit="connections", dynamic=True,
        doc="Client connections open at the same time. 0: no limit. At the limit a connection of the address with "
        "most gives way to a newcomer whose address has far less: silent and idle ones first.",
        better="clients above the limit get ServiceNotReady and come again; upstream sends NotAllowedError",
    )  # fmt: skip
    max_concurrent_inbound_connections_per_ip = Key(
        "maxConcurrentInboundConnectionsPerIp", 0, whole(0, 10_000_000), since="pulsar",
        unit="connections", dynamic=True,
        doc="Client connections from one address open at the same time; an IPv6 /64 network counts as one "
        "(inboundConnectionsPerIpNetworkBits). 0: no limit.",
        better="an IPv6 /64 network counts as one address",
    )  # fmt: skip
    inbound_connections_per_ip_network_bits = Key(
        "inboundConnectionsPerIpNetworkBits", 64, whole(32, 128), unit="bits",
        doc="The length of the IPv6 network that maxConcurrentInboundConnectionsPerIp counts as one address. 128 where "
        "many hosts of yours share a /64 network, such as a subnet of a cloud or the pods of a node; 48 where clients "
        "come from the Internet with whole sites. Turns by address go by /48, then by /64.",
    )  # fmt: skip
    max_concurrent_lookup_requests = Key(
        "maxConcurrentLookupRequests", 50_000, whole(1, 10_000_000), since="pulsar",
        unit="requests", dynamic=True,
        doc="Lookup-mode requests in progress at the same time, each counted until its answer; a request above the "
        "limit gets TooManyRequests. Topic lists take at most three quarters, and the others wait.",
        better="requests count until their answers; upstream counts a request only until it has begun",
    )  # fmt: skip
    max_concurrent_lookup_request_mb = Key(
        "maxConcurrentLookupRequestMB", 16, whole(-1, 1_048_576), unit="MiB",
        doc="Memory for the commands of lookup-mode requests in progress, beside their number (KIP-72). While it is "
        "used up, clients with further commands are not read, and have turns by network; a quarter more is for clients "
        "with fewer than 2 requests outstanding. -1 or 0: no limit of bytes.",
    )  # fmt: skip
    max_message_size = Key(
        "maxMessageSize", 5_242_880, whole(1024, LARGEST - FRAME_OVERHEAD), since="pulsar",
        unit=BYTES,
        doc="Largest message; a frame may be 10240 bytes larger. Set the same value as on the brokers.",
    )  # fmt: skip
    max_lookup_frame_bytes = Key(
        "maxLookupFrameBytes", 1_048_576, whole(65_536, LARGEST), unit=BYTES,
        doc="Largest frame that a client may send in lookup mode.",
    )  # fmt: skip
    handshake_timeout_millis = Key(
        "handshakeTimeoutMillis", 10_000, whole(1, HOUR_MILLIS), unit=MILLIS, dynamic=True,
        doc="Time limit from the TCP connection to the end of the client's handshake.",
    )  # fmt: skip
    keep_alive_interval_seconds = Key(
        "keepAliveIntervalSeconds", 30, whole(0, 3600), since="pulsar", unit=SECONDS,
        dynamic=True,
        doc="Time between PINGs; a connection whose peer has not answered by the next PING is closed. 0: no PINGs.",
    )  # fmt: skip
