"""What `--without-extension` leaves out: the keys that only the native extension obeys.

Rule: such a key is off, whatever its default. One that a source sets to anything else is refused by name, and one
warning names those whose default is left out, or smaller.
"""

from typing import Any, Final

from proxy.config.keys.key import Key
from proxy.config.keys_table import ConfigKeys
from proxy.config.sources import ConfigWarning, Loader, Setting
from proxy.config.values import ConfigValues
from proxy.core.native import DO_WITHOUT, INSTALL

# Each key, and the values with which it asks for nothing; the first is taken.
_OFF: Final[tuple[tuple[Key[Any], tuple[str, ...]], ...]] = (
    (ConfigKeys.service_port_tls, ("",)),
    (ConfigKeys.web_service_port_tls, ("",)),
    (ConfigKeys.tls_enabled_with_broker, ("false",)),
    (ConfigKeys.relay_memory_pool_mb, ("-1", "0")),
    (ConfigKeys.relay_socket_memory_mb, ("-1", "0")),
    (ConfigKeys.watch_topic_list_limit_enabled, ("false",)),
    (ConfigKeys.overload_throttle_enabled, ("false",)),
    (ConfigKeys.adaptive_publisher_throttling_enabled, ("false",)),
    (ConfigKeys.proxy_log_level, ("0",)),
)

# Relays have no bound in sum there, so each holds less, unless its operator says otherwise.
_SMALLER: Final[tuple[tuple[Key[Any], str], ...]] = (
    (ConfigKeys.relay_buffer_bytes, "65536"),
    (ConfigKeys.relay_unsent_bytes, "32768"),
)


def leave_out(loader: Loader) -> None:
    """Set the keys that no source sets to their values without the extension, and warn of the defaults left out."""
    lost = []
    for key, off in (*((key, off) for key, (off, *_) in _OFF), *_SMALLER):
        setting = loader.settings.get(key.name)
        if (setting is None or not setting.text.strip()) and key.default_text != off:
            loader.take(Setting(key.name, off, "flag", DO_WITHOUT))
            lost.append(f"{key.name}={off}")
    text = f"the native extension does more: {INSTALL}"
    loader.warnings.append(ConfigWarning(DO_WITHOUT, None, ", ".join(lost), text))


def check_without_extension(loader: Loader, config: ConfigValues) -> None:
    """Refuse each key that asks for what only the extension does."""
    for key, off in _OFF:
        if (got := key.kind.write(config.value(key))) not in off:
            expected = f"{off[0] or 'an empty value'} with {DO_WITHOUT}, or the native extension: {INSTALL}"
            loader.fault(key, got, expected)
