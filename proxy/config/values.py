"""The values of a configuration, and the values that follow from several keys."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from proxy.config.keys.key import Key, split_broker_urls
from proxy.config.keys.units import MILLIS, SECONDS
from proxy.config.keys_table import ConfigKeys
from proxy.config.sources import ReverseProxyRoute, Setting

T = TypeVar("T")

_LARGEST_FRAME_BYTES = 2**31 - 1
_MIB = 1024 * 1024
_PER_SECOND = {MILLIS: 1000, SECONDS: 1}
MOST_PASSWORD_THREADS: Final = 64
# The size that the kernel is asked for where a connection has a small send buffer; the kernel doubles the size.
SMALL_SEND_BUFFER_BYTES: Final = 16 * 1024
# Large CONNECT commands have as much beside this part of direct memory, and so have large credentials that are kept.
HANDSHAKE_PART: Final = 8
# Without a limit of direct memory: before CONNECTED everybody is a stranger.
HANDSHAKE_BYTES: Final = 16 * _MIB
# A request connection to a broker has the answers of many clients in its receive buffer.
BROKER_RECEIVE_TIMES: Final = 4
# Where the kernel chooses the buffers of clients: nothing else would bound what a broker may send.
BROKER_RECEIVE_BYTES: Final = _MIB
# The size is a C int for setsockopt.
_MOST_BUFFER_BYTES: Final = 1 << 30
# The beginning of the Java proxy's class names of providers, after the package; short names have none.
_PROVIDER: Final = "AuthenticationProvider"
# More threads than this move no more bytes: clients, brokers and the kernel's own work need processors, too.
MOST_DEFAULT_IO_THREADS: Final = 4
# A Java proxy.conf of a large machine may ask for more; the extension refuses more than these (native/src/relay).
MOST_IO_THREADS: Final = 64


class ConfigValues(ConfigKeys):
    """Each key of `ConfigKeys` has an attribute; `Config` adds the sources and the checks."""

    _reverse_proxies: tuple[ReverseProxyRoute, ...]
    _settings: Mapping[str, Setting]

    def value(self, key: Key[T]) -> T:
        """Return the value of a key."""
        found: T = getattr(self, key.attribute)
        return found

    def seconds(self, key: Key[int]) -> float:
        """Return the value of a key whose unit is milliseconds or seconds, in seconds."""
        return self.value(key) / _PER_SECOND[key.unit]

    @property
    def client_port(self) -> int:
        """The port that identifies this proxy on its machine: the plain client port, else the TLS port."""
        return (self.service_port_tls or 0) if self.service_port is None else self.service_port

    def broker_client_certificate(self) -> Key[str]:
        """Return the key of the file with the certificate that brokers are shown."""
        if self.broker_client_tls_enabled_with_key_store:
            return ConfigKeys.broker_client_tls_key_store
        return ConfigKeys.broker_client_certificate_file_path

    @property
    def has_web_port(self) -> bool:
        """Whether any port for HTTP is configured."""
        ports = (self.web_service_port, self.web_service_port_tls, self.metrics_port)
        return any(port is not None for port in ports)

    @property
    def web_addresses(self) -> tuple[str, ...]:
        """Addresses that the web ports listen on."""
        return self.web_bind_address or self.bind_address

    @property
    def metrics_addresses(self) -> tuple[str, ...]:
        """Addresses that `metricsPort` listens on."""
        return self.metrics_bind_address or self.web_addresses

    @property
    def broker_hosts(self) -> tuple[tuple[str, int], ...]:
        """Hosts and ports of the brokers in `brokerServiceURL` or `brokerServiceURLTLS`."""
        tls = self.tls_enabled_with_broker
        return split_broker_urls(self.broker_service_url_tls if tls else self.broker_service_url, tls=tls)

    @property
    def proxy_header_version(self) -> int:
        """Version of the PROXY protocol that brokers expect; 0: none."""
        version = self.broker_ha_proxy_protocol_version
        return 0 if version == "none" or not self.ha_proxy_protocol_enabled else int(version)

    @property
    def http_reverse_proxies(self) -> tuple[ReverseProxyRoute, ...]:
        """The routes of `httpReverseProxy.<name>.path` and `.proxyTo`, in the order of their names."""
        return self._reverse_proxies

    def is_set(self, key: Key[Any]) -> bool:
        """Return whether a source names a value for a key; a blank is its default."""
        setting = self._settings.get(key.name)
        return setting is not None and bool(setting.text.strip())

    @property
    def forwards_credentials(self) -> bool:
        """Whether brokers get the credentials of some clients; certificates cannot be forwarded."""
        bare = {"tls"} if self.forwards_passwords else {"tls", "basic"}
        some = any(name.rpartition(_PROVIDER)[2].lower() not in bare for name in self.authentication_providers)
        return self.authentication_enabled and self.forward_authorization_credentials and some

    @property
    def forwards_passwords(self) -> bool:
        """Whether these are passwords, too: the default forwards none, because its user has not asked for that."""
        return self.forward_authorization_credentials and self.is_set(ConfigKeys.forward_authorization_credentials)

    @property
    def password_threads(self) -> int:
        """Number of threads that check passwords."""
        return min(self.max_concurrent_authentications, MOST_PASSWORD_THREADS)

    @property
    def heap_limit_bytes(self) -> int:
        """Limit for decoded topic lists in bytes; 0 is no limit."""
        return self.max_topic_list_in_flight_heap_mem_size_mb * _MIB

    @property
    def direct_limit_bytes(self) -> int:
        """Limit for encoded topic lists in bytes; 0 is no limit."""
        return self.max_topic_list_in_flight_direct_mem_size_mb * _MIB

    @property
    def shares_by_key(self) -> bool:
        """Whether keys take turns for memory; `fifo` serves all in one line, and no key has a share there."""
        return self.topic_list_fairness != "fifo"

    @property
    def key_percent(self) -> int:
        """Percent of a limit that one key may have."""
        return self.topic_list_max_memory_percent_per_key if self.shares_by_key else 100

    @property
    def handshake_bytes(self) -> int:
        """Limit for CONNECT commands above 4096 bytes, and for large credentials that are kept, each in bytes."""
        return self.direct_limit_bytes // HANDSHAKE_PART or HANDSHAKE_BYTES

    @property
    def broker_receive_bytes(self) -> int:
        """The receive buffer of a request connection to a broker, which the kernel doubles."""
        wanted = BROKER_RECEIVE_TIMES * self.client_socket_send_buffer_bytes or BROKER_RECEIVE_BYTES
        return min(wanted, _MOST_BUFFER_BYTES)

    @property
    def relay_pool_bytes(self) -> int:
        """Limit of the memory that relays hold together, in bytes; 0 is no pool."""
        return max(0, self.relay_memory_pool_mb) * _MIB

    @property
    def relay_socket_bytes(self) -> int:
        """Limit of the kernel memory of all relayed sockets, in bytes; 0 is no bound."""
        return max(0, self.relay_socket_memory_mb) * _MIB

    @property
    def component_levels(self) -> dict[str, str]:
        """Levels of the parts of the log that have one of their own."""
        pairs = (item.partition("=") for item in self.log_level_by_component)
        return {component: level for component, _, level in pairs}

    @property
    def send_memory_bytes(self) -> int:
        """Limit of what send buffers of lookup connections take beyond small ones, in bytes.

        0: each is large from its start. So it is where all of them large do not reach the limit.
        """
        beyond = 2 * (self.client_socket_send_buffer_bytes - SMALL_SEND_BUFFER_BYTES)
        limit = max(0, self.client_socket_send_memory_mb) * _MIB
        clients = self.max_concurrent_inbound_connections
        return 0 if beyond <= 0 or (clients and limit >= clients * beyond) else limit

    @property
    def throttle_enabled(self) -> bool:
        """Whether a throttle is enabled, if only to observe."""
        return self.overload_throttle_enabled or self.adaptive_publisher_throttling_enabled

    @property
    def throttle_acts(self) -> bool:
        """Whether a throttle is enabled and does more than observe."""
        return (self.overload_throttle_enabled and not self.overload_throttle_observe_only) or (
            self.adaptive_publisher_throttling_enabled and not self.adaptive_publisher_throttling_observe_only
        )

    @property
    def command_bytes_limit(self) -> int:
        """Limit for the bytes of lookup-mode commands in progress; 0 is no limit."""
        return max(0, self.max_concurrent_lookup_request_mb) * _MIB

    @property
    def relay_threads_at_most(self) -> int:
        """The most threads that move the bytes of relays."""
        return min(MOST_DEFAULT_IO_THREADS if self.num_io_threads is None else self.num_io_threads, MOST_IO_THREADS)

    @property
    def topic_list_answer_limit_bytes(self) -> int:
        """Largest accepted answer of a broker in bytes: the key, else the smaller memory limit."""
        if self.topic_list_max_answer_bytes is not None:
            return self.topic_list_max_answer_bytes
        limits = [limit for limit in (self.heap_limit_bytes, self.direct_limit_bytes) if limit]
        return min([*limits, _LARGEST_FRAME_BYTES])
