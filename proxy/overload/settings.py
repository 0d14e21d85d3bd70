"""The settings of overload control, read from the configuration."""

from dataclasses import dataclass
from typing import Final, Self

from proxy.config.config import Config
from proxy.overload.adaptive import AdaptiveSettings
from proxy.overload.samples import Marks
from proxy.overload.threshold import ThresholdSettings
from proxy.overload.topic_choice import TopicChoice

# Memory of this proxy is looked at so often.
SAMPLE_SECONDS: Final = 0.5
# A paused connection passes a frame so often, or each quarter of the longest pause if that is less: both ends of a
# connection give it up after 30 s at the earliest.
DRIP_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class OverloadSettings:
    """All settings; `adaptive_enabled` and `threshold.enabled` switch the throttles."""

    sample_seconds: float
    watches_proxy: bool
    watches_brokers: bool
    threshold: ThresholdSettings
    adaptive_enabled: bool
    adaptive: AdaptiveSettings
    shows_topics: bool

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the settings of a configuration."""
        return cls(
            sample_seconds=SAMPLE_SECONDS,
            watches_proxy=config.overload_signals != "brokers",
            watches_brokers=config.overload_signals != "proxy",
            threshold=_threshold(config),
            adaptive_enabled=config.adaptive_publisher_throttling_enabled,
            adaptive=_adaptive(config),
            shows_topics=config.adaptive_publisher_throttling_per_topic_metrics_enabled,
        )


def _threshold(config: Config) -> ThresholdSettings:
    longest = config.seconds(Config.overload_max_pause_millis)
    return ThresholdSettings(
        marks=Marks(config.overload_memory_high_watermark, config.overload_memory_low_watermark),
        drip_seconds=min(DRIP_SECONDS, longest / 4),
        max_pause_seconds=longest,
        read_bytes=config.relay_buffer_bytes,
        enabled=config.overload_throttle_enabled,
        observe_only=config.overload_throttle_observe_only,
    )


def _adaptive(config: Config) -> AdaptiveSettings:
    return AdaptiveSettings(
        interval_seconds=config.seconds(Config.adaptive_publisher_throttling_interval_ms),
        memory=Marks(
            config.adaptive_publisher_throttling_memory_high_watermark_pct,
            config.adaptive_publisher_throttling_memory_low_watermark_pct,
        ),
        backlog=Marks(
            config.adaptive_publisher_throttling_backlog_high_watermark_pct,
            config.adaptive_publisher_throttling_backlog_low_watermark_pct,
        ),
        backlog_limit_bytes=config.adaptive_publisher_throttling_backlog_limit_bytes,
        min_rate_factor=config.adaptive_publisher_throttling_min_rate_factor,
        max_rate_change=config.adaptive_publisher_throttling_max_rate_change_factor,
        observe_only=config.adaptive_publisher_throttling_observe_only,
        topics=TopicChoice(config.adaptive_publisher_throttling_topics),
    )
