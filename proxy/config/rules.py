"""Rules across keys: contradictions are faults, settings without effect are doubts, which are warnings.

Rule: each is a row of `RULES`. A rule is not judged if one of its keys was refused, whose default is in force then.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Any, Final, NamedTuple

from proxy.config import java_keys
from proxy.config.credential_parameters import BadParameters, odd_spelling, parse_credentials, shown_certificate
from proxy.config.credential_targets import list_urls, narrowed_keys, plain_targets, secret_keys, url_keys
from proxy.config.keys.key import TLS_SCHEME, Key, split_address, split_broker_urls
from proxy.config.keys_table import ConfigKeys
from proxy.config.sources import Loader
from proxy.config.values import MOST_PASSWORD_THREADS, ConfigValues
from proxy.config.without_extension import check_without_extension
from proxy.core.secrets import HIDDEN

Holds = Callable[[ConfigValues], bool]
Text = str | Callable[[ConfigValues], str]
Keys = ConfigKeys

_MIB: Final = 1024 * 1024
# Java and C++ clients fail a message so long after it was sent.
_SEND_TIMEOUT_MILLIS: Final = 30_000


class Rule(NamedTuple):
    """What holds of some keys, or the first of them is refused: with its value, or `got`, and what is `expected`.

    A text may name values, as `{config.num_io_threads}`. A doubt is a warning with the text alone. `needed_by`: the key
    that is of no use without the first.
    """

    keys: tuple[Key[Any], ...]
    holds: Holds
    expected: Text
    doubt: bool = False
    got: Callable[[ConfigValues], str] | None = None
    needed_by: Key[Any] | None = None

    def judge(self, loader: Loader, config: ConfigValues) -> None:
        """Record a fault or a warning if the rule does not hold."""
        if any(key.name in loader.refused for key in self.keys) or self.holds(config):
            return
        text = self.expected.format(config=config) if isinstance(self.expected, str) else self.expected(config)
        key = self.keys[0]
        if self.doubt:
            loader.doubt(key, text)
        else:
            got = _shown(key, config) if self.got is None else self.got(config)
            loader.fault(key, got, text, needed_by=self.needed_by)


def judge(loader: Loader, config: ConfigValues) -> None:
    """Judge the keys that depend on each other; a refused key is not told of again."""
    loader.refused = {problem.key for problem in loader.problems}
    _judge_discovery(loader, config)
    for rule in RULES:
        rule.judge(loader, config)
    if loader.without_extension:
        check_without_extension(loader, config)


def _judge_discovery(loader: Loader, config: ConfigValues) -> None:
    """Refuse a metadata store as the only way to find brokers, and no way; a store beside brokers is not used."""
    key = Keys.broker_service_url_tls if config.tls_enabled_with_broker else Keys.broker_service_url
    given = bool(config.value(key))
    for name in java_keys.METADATA_STORES:
        found = loader.unknown.get(name)
        if found is None or not found.text.strip():
            continue
        if given:
            loader.warn(found, f"not used: this proxy finds brokers by {key.name}")
        else:
            expected = f"{key.name} with the brokers or a name that leads to them: this proxy asks no metadata store"
            loader.refuse(found, repr(found.text), expected)
    if not given and not loader.unread:
        loader.fault(key, "nothing", f"{key.kind.expected}: this key is required")


def _shown(key: Key[Any], config: ConfigValues) -> str:
    value = config.value(key)
    return f"{value:g}" if isinstance(value, float) else key.kind.write(value) or "nothing"


def _doubt(key: Key[Any], holds: Holds, text: Text) -> Rule:
    return Rule((key,), holds, text, doubt=True)


def _other_port(key: Key[int | None], earlier: Key[int | None], first: tuple[Key[int | None], ...]) -> Rule:
    """Return the rule that `key` has not the port of `earlier`; where one of `first` has it, that is told instead."""
    return Rule(
        (key, earlier),
        lambda config: (
            not config.value(key)
            or config.value(key) != config.value(earlier)
            or config.value(key) in map(config.value, first)
        ),
        f"a port other than {earlier.name}",
    )


def _below(lower: Key[float], higher: Key[float]) -> Rule:
    return Rule(
        (lower, higher),
        lambda config: config.value(lower) < config.value(higher),
        lambda config: f"less than {higher.name} ({config.value(higher):g})",
    )


def _without(key: Key[Any], needed: Key[Any]) -> Rule:
    """Return the doubt of a key that has no effect without another."""
    return _doubt(
        key,
        lambda config: not config.value(key) or config.value(needed) not in (None, ""),
        f"has no effect without {needed.name}",
    )


def _unused(key: Key[str], switch: Key[bool], *, value: bool) -> Rule:
    """Return the doubt of a key that has no effect with a value of a switch."""
    return _doubt(
        key,
        lambda config: not config.value(key) or config.value(switch) is not value,
        f"has no effect with {switch.name}={switch.kind.write(value)}",
    )


def _list_memory(key: Key[int], limit: Callable[[ConfigValues], int]) -> tuple[Rule, ...]:
    return (
        _doubt(key, lambda config: limit(config) > 0, "0 means no limit: the memory of topic lists is not bounded"),
        Rule(
            (Keys.topic_list_max_answer_bytes, key),
            lambda config: not limit(config) or config.topic_list_answer_limit_bytes <= limit(config),
            lambda config: f"at most {key.name} ({limit(config)} bytes)",
        ),
    )


def _reached(key: Key[int]) -> Rule:
    return _doubt(
        key,
        lambda config: config.value(key) <= config.topic_list_request_timeout_millis,
        lambda config: (
            f"{config.value(key)} is never reached: topicListRequestTimeoutMillis is "
            f"{config.topic_list_request_timeout_millis}"
        ),
    )


def _credentials(plugin: Key[str], parameters: Key[str], used: Holds) -> tuple[Rule, ...]:
    """Return the rules for a plugin and its parameters, which are judged where they are `used`."""

    def wrong(config: ConfigValues, key: Key[str]) -> str | None:
        """Return what is expected of a key, None if it is right."""
        error = _bad_parameters(config.value(plugin), config.value(parameters)) if used(config) else None
        of_plugin = error is not None and error.key == Keys.broker_client_authentication_plugin.name
        return error.expected if error is not None and of_plugin is (key is plugin) else None

    def odd(config: ConfigValues) -> str | None:
        name, given = config.value(plugin), config.value(parameters)
        return odd_spelling(name, given) if used(config) and _bad_parameters(name, given) is None else None

    return (
        Rule(
            (plugin, parameters),
            lambda config: wrong(config, plugin) is None,
            lambda config: wrong(config, plugin) or "",
            got=lambda config: repr(config.value(plugin)),
        ),
        Rule(
            (parameters, plugin),
            lambda config: wrong(config, parameters) is None,
            lambda config: wrong(config, parameters) or "",
            got=lambda config: "something else (hidden)" if config.value(parameters) else "nothing",
            needed_by=plugin,
        ),
        _doubt(parameters, lambda config: odd(config) is None, lambda config: odd(config) or ""),
    )


def _bad_parameters(plugin: str, parameters: str) -> BadParameters | None:
    try:
        parse_credentials(plugin, parameters)
    except BadParameters as error:
        return error
    return None


def _shows_certificate(config: ConfigValues) -> bool:
    plugin, parameters = config.broker_client_authentication_plugin, config.broker_client_authentication_parameters
    good = bool(plugin) and _bad_parameters(plugin, parameters) is None
    return good and shown_certificate(plugin, parameters) is not None


def _keeps_to_known(config: ConfigValues) -> bool:
    """Return whether a broker that is not configured gets secret credentials only after a lookup by this process."""
    if not secret_keys(config) or config.broker_proxy_credentials_to_any_target:
        return False
    # The clients of a sidecar have no other proxy.
    alone = config.proxy_role == "sidecar" or config.check_active_brokers
    return not (alone or narrowed_keys(config) or list_urls(config))


def _way_to_brokers(config: ConfigValues) -> str:
    urls, web = url_keys(config)
    # Brokers that authorize do not show their list to a proxy that speaks for its clients.
    way = (
        f"name all brokers in {urls.name} and set checkActiveBrokers=true"
        if config.authentication_enabled
        else f"set {web.name}"
    )
    # Another proxy behind the same address has not seen the lookup.
    return (
        f"a broker outside {urls.name} gets these credentials only after a lookup through this process: for several "
        f"proxies behind one address {way}, or restrict brokerProxyAllowedHostNames or brokerProxyAllowedIPAddresses"
    )


def _known_only(key: Key[Any]) -> Rule:
    return _doubt(key, lambda config: not _keeps_to_known(config) or secret_keys(config)[0] is not key, _way_to_brokers)


def _of_the_client(key: Key[tuple[str, ...]]) -> Rule:
    return _doubt(
        key,
        lambda config: not (config.event_log_topic and config.tls_enabled_with_broker and config.value(key)),
        "not for eventLogTopic: pulsar-client makes its own choice",
    )


def _names(config: ConfigValues) -> str:
    return " and ".join(key.name for key in secret_keys(config))


def _least_pool(config: ConfigValues) -> int:
    return config.relay_buffer_bytes * config.relay_threads_at_most


def _watches(config: ConfigValues, signals: str) -> bool:
    """Return whether brokers are to be watched by these signals, and none is known."""
    return config.throttle_enabled and config.overload_signals == signals and not config.value(url_keys(config)[1])


def _spares_only(patterns: tuple[str, ...]) -> bool:
    return bool(patterns) and all(pattern.startswith("!") for pattern in patterns)


def _is_topic(name: str) -> bool:
    # The HTTP client beside it is slow to import.
    from eventlog.topic_admin import topic_name

    try:
        topic_name(name)
    except ValueError:
        return False
    return True


def _is_service_url(url: str) -> bool:
    try:
        return not url or bool(split_broker_urls(url, tls=url.startswith(TLS_SCHEME)))
    except ValueError:
        return False


def _shown_url(config: ConfigValues) -> str:
    """Return the text for a refused URL, without a password in it."""
    url = config.event_log_topic_service_url
    return f"user info {HIDDEN}, which nobody uses: see eventLogTopicAuthenticationPlugin" if "@" in url else repr(url)


_PORTS: Final[tuple[Key[int | None], ...]] = (
    Keys.service_port, Keys.service_port_tls, Keys.web_service_port, Keys.web_service_port_tls, Keys.metrics_port,
)  # fmt: skip
_SERVER_RULES: Final = (
    Rule(
        (Keys.service_port, Keys.service_port_tls, Keys.service_socket_path),
        lambda config: (
            config.service_port is not None or config.service_port_tls is not None or bool(config.service_socket_path)
        ),
        "a port here or in servicePortTls, or serviceSocketPath: without one no client can connect",
    ),
    _doubt(
        Keys.web_service_port,
        lambda config: config.has_web_port,
        "nothing, and no webServicePortTls: no /readyz, /healthz, /metrics, /status.html and admin API anywhere",
    ),
    *(_other_port(_PORTS[late], _PORTS[early], _PORTS[:early]) for early, late in combinations(range(len(_PORTS)), 2)),
    _without(Keys.metrics_bind_address, Keys.metrics_port),
    Rule(
        (Keys.service_socket_path, Keys.control_socket_path),
        lambda config: not config.service_socket_path or config.service_socket_path != config.control_socket_path,
        "a path other than controlSocketPath",
    ),
    _without(Keys.admin_api_token_file_path, Keys.admin_api_address),
    # All programs of the machine, and all containers of a pod, can connect to its loopback address.
    Rule(
        (Keys.admin_api_address, Keys.admin_api_token_file_path),
        lambda config: not config.admin_api_address or bool(config.admin_api_token_file_path),
        "nothing, or adminApiTokenFilePath beside it: any client of that port may end connections and the proxy",
    ),
    _doubt(
        Keys.admin_api_address,
        lambda config: (
            not (config.admin_api_address and config.admin_api_token_file_path)
            or split_address(config.admin_api_address)[2]
        ),
        "{config.admin_api_address} is not a loopback address: without TLS the token can be read on the way",
    ),
)
_LIST_RULES: Final = (
    *_list_memory(Keys.max_topic_list_in_flight_heap_mem_size_mb, lambda config: config.heap_limit_bytes),
    *_list_memory(Keys.max_topic_list_in_flight_direct_mem_size_mb, lambda config: config.direct_limit_bytes),
    _reached(Keys.max_topic_list_in_flight_heap_mem_size_permits_acquire_timeout_millis),
    _reached(Keys.max_topic_list_in_flight_direct_mem_size_permits_acquire_timeout_millis),
    _doubt(
        Keys.broker_proxy_read_timeout_ms,
        lambda config: not 0 < config.broker_proxy_read_timeout_ms <= config.keep_alive_interval_seconds * 1000,
        "{config.broker_proxy_read_timeout_ms} is not above keepAliveIntervalSeconds: idle connections end before "
        "their PING",
    ),
)
_OVERLOAD_RULES: Final = (
    _below(Keys.overload_memory_low_watermark, Keys.overload_memory_high_watermark),
    _below(
        Keys.adaptive_publisher_throttling_memory_low_watermark_pct,
        Keys.adaptive_publisher_throttling_memory_high_watermark_pct,
    ),
    _below(
        Keys.adaptive_publisher_throttling_backlog_low_watermark_pct,
        Keys.adaptive_publisher_throttling_backlog_high_watermark_pct,
    ),
    Rule(
        (Keys.adaptive_publisher_throttling_max_rate_change_factor,),
        lambda config: config.adaptive_publisher_throttling_max_rate_change_factor > 0,
        "more than 0: rates could never change",
    ),
    _doubt(
        Keys.overload_max_pause_millis,
        lambda config: not config.overload_throttle_enabled or config.overload_max_pause_millis < _SEND_TIMEOUT_MILLIS,
        f"{{config.overload_max_pause_millis}}: clients fail messages after {_SEND_TIMEOUT_MILLIS} (sendTimeout)",
    ),
    _doubt(
        Keys.adaptive_publisher_throttling_topics,
        lambda config: not _spares_only(config.adaptive_publisher_throttling_topics),
        "all patterns spare topics, so that none is slowed: * among them stands for all others",
    ),
    Rule(
        (Keys.overload_signals,),
        lambda config: not _watches(config, "brokers"),
        lambda config: f"proxy, or the brokers in {url_keys(config)[1].name}: nothing would be watched",
    ),
    _doubt(
        Keys.overload_signals,
        lambda config: not _watches(config, "both"),
        lambda config: f"brokers are not watched without {url_keys(config)[1].name}",
    ),
)
_RELAY_RULES: Final = (
    # Every read would be an overshoot.
    Rule(
        (Keys.relay_memory_pool_mb, Keys.relay_buffer_bytes, Keys.num_io_threads),
        lambda config: not 0 < config.relay_pool_bytes < _least_pool(config),
        lambda config: (
            f"-1 (no pool), or at least {-(-_least_pool(config) // _MIB)}: relayBufferBytes "
            f"({config.relay_buffer_bytes} bytes) for each of {config.relay_threads_at_most} relay threads; lower "
            "relayBufferBytes or numIOThreads"
        ),
    ),
)
_AUTHENTICATION_RULES: Final = (
    # As in upstream, the proxy does not start: clients would have no role, so the pages would not be protected.
    Rule(
        (Keys.authorization_enabled, Keys.authentication_enabled),
        lambda config: not config.authorization_enabled or config.authentication_enabled,
        "false, or authenticationEnabled=true: without authentication no client has a role",
    ),
    _doubt(
        Keys.max_concurrent_authentications,
        lambda config: config.max_concurrent_authentications <= MOST_PASSWORD_THREADS,
        f"got {{config.max_concurrent_authentications}}: {MOST_PASSWORD_THREADS} threads check passwords, other "
        "clients wait in turns",
    ),
)
# The switches to stores, and the keys without effect with a value of each.
_STORES: Final[tuple[tuple[Key[bool], bool, tuple[Key[str], ...]], ...]] = (
    (
        Keys.tls_enabled_with_key_store,
        True,
        (Keys.tls_certificate_file_path, Keys.tls_key_file_path, Keys.tls_trust_certs_file_path),
    ),
    (Keys.tls_enabled_with_key_store, False, (Keys.tls_key_store, Keys.tls_trust_store)),
    (
        Keys.broker_client_tls_enabled_with_key_store,
        True,
        (
            Keys.broker_client_certificate_file_path,
            Keys.broker_client_key_file_path,
            Keys.broker_client_trust_certs_file_path,
        ),
    ),
    (
        Keys.broker_client_tls_enabled_with_key_store,
        False,
        (Keys.broker_client_tls_key_store, Keys.broker_client_tls_trust_store),
    ),
)
_TLS_RULES: Final = (
    *(_unused(key, switch, value=value) for switch, value, keys in _STORES for key in keys),
    _doubt(
        Keys.tls_allow_insecure_connection,
        lambda config: not (config.tls_enabled_with_broker and config.tls_allow_insecure_connection),
        "true: certificates of brokers are not checked, anybody on the network path can pose as a broker",
    ),
    _doubt(
        Keys.tls_hostname_verification_enabled,
        lambda config: (
            not config.tls_enabled_with_broker
            or config.tls_allow_insecure_connection
            or config.tls_hostname_verification_enabled
        ),
        "false: a broker may present any certificate of a trusted authority",
    ),
)
_CREDENTIAL_RULES: Final = (
    *_credentials(
        Keys.broker_client_authentication_plugin,
        Keys.broker_client_authentication_parameters,
        lambda config: bool(config.broker_client_authentication_plugin),
    ),
    _doubt(
        Keys.broker_client_authentication_plugin,
        lambda config: config.tls_enabled_with_broker or not _shows_certificate(config),
        "brokers see a certificate only with tlsEnabledWithBroker=true",
    ),
    _doubt(
        Keys.broker_client_authentication_plugin,
        lambda config: bool(config.broker_client_authentication_plugin) or not config.authentication_enabled,
        "nothing: brokers take an original principal only from a role in their proxyRoles",
    ),
    _doubt(
        Keys.forward_authorization_credentials,
        lambda config: config.authentication_enabled or not config.forwards_passwords,
        "has no effect without authenticationEnabled",
    ),
    # Where secret credentials go too far, or not far enough for several proxies behind one address.
    _doubt(
        Keys.tls_enabled_with_broker,
        lambda config: not plain_targets(config),
        lambda config: (
            f"false: {_names(config)} send credentials in plain text to {' and '.join(plain_targets(config))}: anybody "
            "on the path has them"
        ),
    ),
    _doubt(
        Keys.broker_proxy_credentials_to_any_target,
        lambda config: (
            not (secret_keys(config) and config.broker_proxy_credentials_to_any_target)
            or config.check_active_brokers
            or bool(narrowed_keys(config))
        ),
        lambda config: (
            f"true: the proxy sends the credentials of {_names(config)} to every host that a client names: set it to "
            "false, or restrict brokerProxyAllowedHostNames or brokerProxyAllowedIPAddresses, which are now *"
        ),
    ),
    _known_only(Keys.broker_client_authentication_plugin),
    _known_only(Keys.forward_authorization_credentials),
)
_EVENT_RULES: Final = (
    _without(Keys.event_log_topic_service_url, Keys.event_log_topic),
    Rule(
        (Keys.broker_client_tls_enabled_with_key_store, Keys.event_log_topic),
        lambda config: not (config.event_log_topic and config.broker_client_tls_enabled_with_key_store),
        "false, and PEM files, with eventLogTopic: pulsar-client reads no stores",
    ),
    Rule(
        (Keys.event_log_topic,),
        lambda config: not config.event_log_topic or _is_topic(config.event_log_topic),
        "persistent://tenant/namespace/topic",
        got=lambda config: repr(config.event_log_topic),
    ),
    Rule(
        (Keys.event_log_topic_service_url, Keys.event_log_topic),
        lambda config: not config.event_log_topic or _is_service_url(config.event_log_topic_service_url),
        "pulsar://host:port or pulsar+ssl://host:port",
        got=_shown_url,
    ),
    *_credentials(
        Keys.event_log_topic_authentication_plugin,
        Keys.event_log_topic_authentication_parameters,
        lambda config: bool(config.event_log_topic and config.event_log_topic_authentication_plugin),
    ),
    _doubt(
        Keys.event_log_topic_service_url,
        lambda config: (
            not (config.event_log_topic and config.event_log_topic_service_url)
            or bool(config.event_log_topic_authentication_plugin)
            or not config.broker_client_authentication_plugin
        ),
        "brokers there are shown no credentials: set eventLogTopicAuthenticationPlugin",
    ),
    _of_the_client(Keys.broker_client_tls_protocols),
    _of_the_client(Keys.broker_client_tls_ciphers),
)
RULES: Final[tuple[Rule, ...]] = (
    *_SERVER_RULES,
    *_LIST_RULES,
    *_OVERLOAD_RULES,
    *_RELAY_RULES,
    *_AUTHENTICATION_RULES,
    *_TLS_RULES,
    *_CREDENTIAL_RULES,
    *_EVENT_RULES,
)
