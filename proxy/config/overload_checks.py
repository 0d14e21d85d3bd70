"""Checks across the keys of overload control."""

from typing import Any, Final

from proxy.config.keys.key import Key
from proxy.config.keys_table import ConfigKeys
from proxy.config.sources import Loader
from proxy.config.values import ConfigValues

# Java and C++ clients fail a message so long after it was sent.
SEND_TIMEOUT_MILLIS: Final = 30_000
# Pairs of a key and the key whose value has to be above its own.
_IN_ORDER: Final[tuple[tuple[Key[Any], Key[Any]], ...]] = (
    (ConfigKeys.overload_memory_low_watermark, ConfigKeys.overload_memory_high_watermark),
    (ConfigKeys.overload_memory_high_watermark, ConfigKeys.overload_memory_hard_watermark),
    (
        ConfigKeys.adaptive_publisher_throttling_memory_low_watermark_pct,
        ConfigKeys.adaptive_publisher_throttling_memory_high_watermark_pct,
    ),
    (
        ConfigKeys.adaptive_publisher_throttling_backlog_low_watermark_pct,
        ConfigKeys.adaptive_publisher_throttling_backlog_high_watermark_pct,
    ),
)


def check_overload(loader: Loader, config: ConfigValues) -> None:
    """Refuse marks in the wrong order and steps of nothing; warn of settings without effect."""
    for lower, higher in _IN_ORDER:
        if config.value(lower) >= config.value(higher):
            loader.fault(lower, f"{config.value(lower):g}", f"less than {higher.name} ({config.value(higher):g})")
    change = ConfigKeys.adaptive_publisher_throttling_max_rate_change_factor
    if config.value(change) <= 0:
        loader.fault(change, "0", "more than 0: rates could never change")
    drip, pause = ConfigKeys.overload_drip_millis, ConfigKeys.overload_max_pause_millis
    if config.value(pause) < config.value(drip):
        loader.fault(pause, str(config.value(pause)), f"at least {drip.name} ({config.value(drip)})")
    if not (config.overload_throttle_enabled or config.adaptive_publisher_throttling_enabled):
        return
    pauses = (
        (pause, config.overload_throttle_enabled),
        (ConfigKeys.publish_throttle_max_pause_millis, config.adaptive_publisher_throttling_enabled),
    )
    for key, is_enabled in pauses:
        if is_enabled and config.value(key) >= SEND_TIMEOUT_MILLIS:
            loader.doubt(key, f"{config.value(key)}: clients fail messages after {SEND_TIMEOUT_MILLIS} (sendTimeout)")
    tls = config.tls_enabled_with_broker
    web = ConfigKeys.broker_web_service_url_tls if tls else ConfigKeys.broker_web_service_url
    signals = ConfigKeys.overload_signals
    if config.overload_signals == "brokers" and not config.value(web):
        loader.fault(signals, "brokers", f"proxy, or the brokers in {web.name}: nothing would be watched")
    elif config.overload_signals == "both" and not config.value(web):
        loader.doubt(signals, f"brokers are not watched without {web.name}")
