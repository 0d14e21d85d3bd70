"""Checks across keys: contradictions are faults, settings without effect are warnings."""

from typing import Any, Final

from proxy.config import java_keys
from proxy.config.credential_parameters import (
    BadParameters,
    odd_spelling,
    parse_credentials,
    shown_certificate,
)
from proxy.config.credential_targets import list_urls, narrowed_keys, plain_targets, secret_keys, url_keys
from proxy.config.keys.key import TLS_SCHEME, BadValue, Key, split_address, split_broker_urls
from proxy.config.keys_table import ConfigKeys
from proxy.config.sources import Loader
from proxy.config.values import MOST_PASSWORD_THREADS, ConfigValues
from proxy.config.without_extension import check_without_extension
from proxy.core.secrets import HIDDEN

_MIB: Final = 1024 * 1024
# Java and C++ clients fail a message so long after it was sent.
_SEND_TIMEOUT_MILLIS: Final = 30_000
# Pairs of a key and the key whose value has to be above its own.
_IN_ORDER: Final[tuple[tuple[Key[Any], Key[Any]], ...]] = (
    (ConfigKeys.overload_memory_low_watermark, ConfigKeys.overload_memory_high_watermark),
    (
        ConfigKeys.adaptive_publisher_throttling_memory_low_watermark_pct,
        ConfigKeys.adaptive_publisher_throttling_memory_high_watermark_pct,
    ),
    (
        ConfigKeys.adaptive_publisher_throttling_backlog_low_watermark_pct,
        ConfigKeys.adaptive_publisher_throttling_backlog_high_watermark_pct,
    ),
)
# Whether there are stores, the keys that name them, and those of the files that they replace.
_STORES: Final[tuple[tuple[Key[bool], tuple[Key[str], ...], tuple[Key[str], ...]], ...]] = (
    (
        ConfigKeys.tls_enabled_with_key_store,
        (ConfigKeys.tls_key_store, ConfigKeys.tls_trust_store),
        (ConfigKeys.tls_certificate_file_path, ConfigKeys.tls_key_file_path, ConfigKeys.tls_trust_certs_file_path),
    ),
    (
        ConfigKeys.broker_client_tls_enabled_with_key_store,
        (ConfigKeys.broker_client_tls_key_store, ConfigKeys.broker_client_tls_trust_store),
        (
            ConfigKeys.broker_client_certificate_file_path,
            ConfigKeys.broker_client_key_file_path,
            ConfigKeys.broker_client_trust_certs_file_path,
        ),
    ),
)


def cross_check(loader: Loader, config: ConfigValues) -> None:
    """Check the keys that depend on each other; do not report a refused key again."""
    loader.refused = {problem.key for problem in loader.problems}
    key = ConfigKeys.broker_service_url_tls if config.tls_enabled_with_broker else ConfigKeys.broker_service_url
    _check_discovery(loader, key.name, given=bool(config.value(key)))
    if not config.value(key) and not loader.unread:
        loader.fault(key, "nothing", f"{key.kind.expected}: this key is required")
    _check_ports(loader, config)
    _check_memory(loader, config)
    _check_times(loader, config)
    _check_overload(loader, config)
    _check_relay_pool(loader, config)
    _check_authorization(loader, config)
    _check_admin_api(loader, config)
    _check_password_threads(loader, config)
    _check_stores(loader, config)
    _check_broker_tls(loader, config)
    _check_broker_client(loader, config)
    _check_event_topic(loader, config)
    if loader.without_extension:
        check_without_extension(loader, config)


def _check_discovery(loader: Loader, urls: str, *, given: bool) -> None:
    """Refuse a metadata store as the only way to find brokers; warn that it is unused beside a list of brokers."""
    for name in java_keys.METADATA_STORES:
        found = loader.unknown.get(name)
        if found is None or not found.text.strip():
            continue
        if given:
            loader.warn(found, f"not used: this proxy finds brokers by {urls}")
        else:
            expected = f"{urls} with the brokers or a name that leads to them: this proxy asks no metadata store"
            loader.problem(found.file, found.line, name, repr(found.text), expected)


def _check_ports(loader: Loader, config: ConfigValues) -> None:
    if config.service_port is None and config.service_port_tls is None and not config.service_socket_path:
        expected = (
            f"a port here or in {ConfigKeys.service_port_tls.name}, or {ConfigKeys.service_socket_path.name}: without "
            "one no client can connect"
        )
        loader.fault(ConfigKeys.service_port, "nothing", expected)
    if not config.has_web_port:
        text = "nothing, and no webServicePortTls: no /readyz, /healthz, /metrics, /status.html and admin API anywhere"
        loader.doubt(ConfigKeys.web_service_port, text)
    taken: dict[int, str] = {}
    for key in (
        ConfigKeys.service_port,
        ConfigKeys.service_port_tls,
        ConfigKeys.web_service_port,
        ConfigKeys.web_service_port_tls,
        ConfigKeys.metrics_port,
    ):
        port = config.value(key)
        if port and port in taken:
            loader.fault(key, str(port), f"a port other than {taken[port]}")
        elif port:
            taken[port] = key.name
    if config.metrics_bind_address and config.metrics_port is None:
        loader.doubt(ConfigKeys.metrics_bind_address, f"has no effect without {ConfigKeys.metrics_port.name}")
    path, control = ConfigKeys.service_socket_path, ConfigKeys.control_socket_path
    if config.service_socket_path and config.service_socket_path == config.control_socket_path:
        loader.fault(path, config.service_socket_path, f"a path other than {control.name}")


def _check_authorization(loader: Loader, config: ConfigValues) -> None:
    # As in upstream, the proxy does not start: clients would have no role, so the pages would not be protected.
    if config.authorization_enabled and not config.authentication_enabled:
        expected = (
            f"false, or {ConfigKeys.authentication_enabled.name}=true: without authentication no client has a role"
        )
        loader.fault(ConfigKeys.authorization_enabled, "true", expected)


def _check_admin_api(loader: Loader, config: ConfigValues) -> None:
    address, token_file = ConfigKeys.admin_api_address, ConfigKeys.admin_api_token_file_path
    if not config.admin_api_address:
        if config.admin_api_token_file_path:
            loader.doubt(token_file, f"has no effect without {address.name}")
        return
    if not config.admin_api_token_file_path:
        # All programs of the machine, and all containers of a pod, can connect to its loopback address.
        expected = f"nothing, or {token_file.name} beside it: any client of that port may end connections and the proxy"
        loader.fault(address, config.admin_api_address, expected)
    elif not split_address(config.admin_api_address)[2]:
        text = f"{config.admin_api_address} is not a loopback address: without TLS the token can be read on the way"
        loader.doubt(address, text)


def _check_password_threads(loader: Loader, config: ConfigValues) -> None:
    given = config.max_concurrent_authentications
    if given > MOST_PASSWORD_THREADS:
        text = f"got {given}: {MOST_PASSWORD_THREADS} threads check passwords, other clients wait in turns"
        loader.doubt(ConfigKeys.max_concurrent_authentications, text)


def _check_stores(loader: Loader, config: ConfigValues) -> None:
    for enabled, stores, pems in _STORES:
        given = config.value(enabled)
        for key in pems if given else stores:
            if config.value(key):
                loader.doubt(key, f"has no effect with {enabled.name}={enabled.kind.write(given)}")


def _check_broker_tls(loader: Loader, config: ConfigValues) -> None:
    if not config.tls_enabled_with_broker:
        return
    if config.tls_allow_insecure_connection:
        text = "true: certificates of brokers are not checked, anybody on the network path can pose as a broker"
        loader.doubt(ConfigKeys.tls_allow_insecure_connection, text)
    elif not config.tls_hostname_verification_enabled:
        text = "false: a broker may present any certificate of a trusted authority"
        loader.doubt(ConfigKeys.tls_hostname_verification_enabled, text)


def _check_broker_client(loader: Loader, config: ConfigValues) -> None:
    plugin = ConfigKeys.broker_client_authentication_plugin
    if config.broker_client_authentication_plugin:
        _check_credentials(loader, config)
    elif config.authentication_enabled:
        loader.doubt(plugin, "nothing: brokers take an original principal only from a role in their proxyRoles")
    forwards = ConfigKeys.forward_authorization_credentials
    if config.forwards_passwords and not config.authentication_enabled:
        loader.doubt(forwards, "has no effect without authenticationEnabled")
    _check_credential_targets(loader, config)


def _check_credentials(loader: Loader, config: ConfigValues) -> None:
    plugin = ConfigKeys.broker_client_authentication_plugin
    if not _fit(loader, config, plugin, ConfigKeys.broker_client_authentication_parameters):
        return
    given = config.broker_client_authentication_parameters
    shown = shown_certificate(config.broker_client_authentication_plugin, given)
    if shown is not None and not config.tls_enabled_with_broker:
        loader.doubt(plugin, "brokers see a certificate only with tlsEnabledWithBroker=true")


def _fit(loader: Loader, config: ConfigValues, plugin: Key[str], parameters: Key[str]) -> bool:
    """Return whether a plugin and its parameters are credentials; what is wrong or odd about them is recorded."""
    name, given = config.value(plugin), config.value(parameters)
    try:
        parse_credentials(name, given)
    except BadParameters as error:
        if error.key == ConfigKeys.broker_client_authentication_plugin.name:
            loader.fault(plugin, repr(name), error.expected)
        else:
            got = "something else (hidden)" if given else "nothing"
            loader.fault(parameters, got, error.expected, needed_by=plugin)
        return False
    if (odd := odd_spelling(name, given)) is not None:
        loader.doubt(parameters, odd)
    return True


def _check_credential_targets(loader: Loader, config: ConfigValues) -> None:
    """Warn where secret credentials go too far, or not far enough for several proxies behind one address."""
    any_target, secret = ConfigKeys.broker_proxy_credentials_to_any_target, secret_keys(config)
    if not secret:
        return
    names = " and ".join(key.name for key in secret)
    if plain := plain_targets(config):
        text = f"false: {names} send credentials in plain text to {' and '.join(plain)}: anybody on the path has them"
        loader.doubt(ConfigKeys.tls_enabled_with_broker, text)
    hosts, networks = ConfigKeys.broker_proxy_allowed_host_names, ConfigKeys.broker_proxy_allowed_ip_addresses
    if config.broker_proxy_credentials_to_any_target:
        if not config.check_active_brokers and not narrowed_keys(config):
            text = (
                f"true: the proxy sends the credentials of {names} to every host that a client names: set it to "
                f"false, or restrict {hosts.name} or {networks.name}, which are now *"
            )
            loader.doubt(any_target, text)
        return
    # The clients of a sidecar have no other proxy.
    alone = config.proxy_role == "sidecar" or config.check_active_brokers
    if not (alone or narrowed_keys(config) or list_urls(config)):
        urls, web = url_keys(config)
        # Brokers that authorize do not show their list to a proxy that speaks for its clients.
        way = (
            f"name all brokers in {urls.name} and set {ConfigKeys.check_active_brokers.name}=true"
            if config.authentication_enabled
            else f"set {web.name}"
        )
        # Another proxy behind the same address has not seen the lookup.
        text = (
            f"a broker outside {urls.name} gets these credentials only after a lookup through this process: for "
            f"several proxies behind one address {way}, or restrict {hosts.name} or {networks.name}"
        )
        loader.doubt(secret[0], text)


def _check_memory(loader: Loader, config: ConfigValues) -> None:
    limits = (
        (ConfigKeys.max_topic_list_in_flight_heap_mem_size_mb, config.heap_limit_bytes),
        (ConfigKeys.max_topic_list_in_flight_direct_mem_size_mb, config.direct_limit_bytes),
    )
    largest = config.topic_list_answer_limit_bytes
    for key, limit in limits:
        if not limit:
            loader.doubt(key, "0 means no limit: the memory of topic lists is not bounded")
        elif largest > limit:
            expected = f"at most {key.name} ({limit} bytes)"
            loader.fault(ConfigKeys.topic_list_max_answer_bytes, str(largest), expected)


def _check_times(loader: Loader, config: ConfigValues) -> None:
    whole_time = config.topic_list_request_timeout_millis
    for key, wait in (
        (
            ConfigKeys.max_topic_list_in_flight_heap_mem_size_permits_acquire_timeout_millis,
            config.max_topic_list_in_flight_heap_mem_size_permits_acquire_timeout_millis,
        ),
        (
            ConfigKeys.max_topic_list_in_flight_direct_mem_size_permits_acquire_timeout_millis,
            config.max_topic_list_in_flight_direct_mem_size_permits_acquire_timeout_millis,
        ),
    ):
        if wait > whole_time:
            loader.doubt(key, f"{wait} is never reached: topicListRequestTimeoutMillis is {whole_time}")
    silence = config.broker_proxy_read_timeout_ms
    if silence and config.keep_alive_interval_seconds * 1000 >= silence:
        text = f"{silence} is not above keepAliveIntervalSeconds: idle connections end before their PING"
        loader.doubt(ConfigKeys.broker_proxy_read_timeout_ms, text)


def _check_overload(loader: Loader, config: ConfigValues) -> None:
    """Refuse marks in the wrong order and steps of nothing; warn of settings without effect."""
    for lower, higher in _IN_ORDER:
        if config.value(lower) >= config.value(higher):
            loader.fault(lower, f"{config.value(lower):g}", f"less than {higher.name} ({config.value(higher):g})")
    change = ConfigKeys.adaptive_publisher_throttling_max_rate_change_factor
    if config.value(change) <= 0:
        loader.fault(change, "0", "more than 0: rates could never change")
    pause = ConfigKeys.overload_max_pause_millis
    if not (config.overload_throttle_enabled or config.adaptive_publisher_throttling_enabled):
        return
    if config.overload_throttle_enabled and config.value(pause) >= _SEND_TIMEOUT_MILLIS:
        loader.doubt(pause, f"{config.value(pause)}: clients fail messages after {_SEND_TIMEOUT_MILLIS} (sendTimeout)")
    tls = config.tls_enabled_with_broker
    web = ConfigKeys.broker_web_service_url_tls if tls else ConfigKeys.broker_web_service_url
    signals = ConfigKeys.overload_signals
    if config.overload_signals == "brokers" and not config.value(web):
        loader.fault(signals, "brokers", f"proxy, or the brokers in {web.name}: nothing would be watched")
    elif config.overload_signals == "both" and not config.value(web):
        loader.doubt(signals, f"brokers are not watched without {web.name}")


def _check_relay_pool(loader: Loader, config: ConfigValues) -> None:
    """Refuse a pool that one read of each thread fills: every read would be an overshoot."""
    pool, buffer = ConfigKeys.relay_memory_pool_mb, ConfigKeys.relay_buffer_bytes
    threads = config.relay_threads_at_most
    least = config.relay_buffer_bytes * threads
    if 0 < config.relay_pool_bytes < least and not loader.refused & {pool.name, buffer.name}:
        expected = (
            f"-1 (no pool), or at least {-(-least // _MIB)}: {buffer.name} ({config.relay_buffer_bytes} bytes) for "
            f"each of {threads} relay threads; lower {buffer.name} or {ConfigKeys.num_io_threads.name}"
        )
        loader.fault(pool, str(config.relay_memory_pool_mb), expected)


def _check_event_topic(loader: Loader, config: ConfigValues) -> None:
    topic, url = ConfigKeys.event_log_topic, ConfigKeys.event_log_topic_service_url
    if not config.event_log_topic:
        if config.event_log_topic_service_url:
            loader.doubt(url, f"has no effect without {topic.name}")
        return
    # The HTTP client beside it is slow to import.
    from eventlog.topic_admin import topic_name

    if config.broker_client_tls_enabled_with_key_store:
        expected = f"false, and PEM files, with {topic.name}: pulsar-client reads no stores"
        loader.fault(ConfigKeys.broker_client_tls_enabled_with_key_store, "true", expected)
    try:
        topic_name(config.event_log_topic)
    except ValueError:
        loader.fault(topic, repr(config.event_log_topic), "persistent://tenant/namespace/topic")
    if not _is_service_url(config.event_log_topic_service_url):
        expected = "pulsar://host:port or pulsar+ssl://host:port"
        loader.fault(url, _shown_url(config.event_log_topic_service_url), expected)
    if config.event_log_topic_authentication_plugin:
        plugin, parameters = (
            ConfigKeys.event_log_topic_authentication_plugin,
            ConfigKeys.event_log_topic_authentication_parameters,
        )
        _fit(loader, config, plugin, parameters)
    elif config.event_log_topic_service_url and config.broker_client_authentication_plugin:
        text = "brokers there are shown no credentials: set eventLogTopicAuthenticationPlugin"
        loader.doubt(url, text)
    for chosen in (ConfigKeys.broker_client_tls_protocols, ConfigKeys.broker_client_tls_ciphers):
        if config.tls_enabled_with_broker and config.value(chosen):
            loader.doubt(chosen, f"not for {topic.name}: pulsar-client makes its own choice")


def _is_service_url(url: str) -> bool:
    try:
        return not url or bool(split_broker_urls(url, tls=url.startswith(TLS_SCHEME)))
    except BadValue:
        return False


def _shown_url(url: str) -> str:
    """Return the text for a refused URL, without a password in it."""
    return f"user info {HIDDEN}, which nobody uses: see eventLogTopicAuthenticationPlugin" if "@" in url else repr(url)
