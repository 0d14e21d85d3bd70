"""Keys of overload control: signals, the threshold throttle and the adaptive publish throttle."""

from proxy.config.keys.key import Key, boolean, choice, fraction, topic_patterns, whole
from proxy.config.keys.units import BYTES, MILLIS, MINUTE_MILLIS


class OverloadKeys:
    """Keys of overload control: signals, the threshold throttle and the adaptive publish throttle."""

    section = "Overload"

    overload_signals = Key(
        "overloadSignals", "both", choice("proxy", "brokers", "both"), dynamic=True,
        doc="The memory that is watched while a throttle is enabled. `proxy`: this proxy's, against the limit of its "
        "container. `brokers`: that of the brokers in brokerWebServiceURL, and the backlog of topics. `both`: the "
        "fuller of the two counts.",
    )  # fmt: skip
    overload_throttle_enabled = Key(
        "overloadThrottleEnabled", False, boolean(), dynamic=True,
        doc="Do not read producing connections while memory is above overloadMemoryHighWatermark. Consumers, "
        "acknowledgements, lookups and topic lists go on. Enabled live, it holds for connections from then on.",
    )  # fmt: skip
    overload_throttle_observe_only = Key(
        "overloadThrottleObserveOnly", False, boolean(), dynamic=True,
        doc="Log and count what overloadThrottleEnabled would do, and pause nobody. Set live, it releases every "
        "connection at once.",
    )  # fmt: skip
    overload_memory_high_watermark = Key(
        "overloadMemoryHighWatermark", 0.85, fraction(), dynamic=True,
        doc="Part of the limit at which producing connections are no longer read.",
    )  # fmt: skip
    overload_memory_low_watermark = Key(
        "overloadMemoryLowWatermark", 0.75, fraction(), dynamic=True,
        doc="Part of the limit below which producing connections are read again, a few at a time.",
    )  # fmt: skip
    overload_max_pause_millis = Key(
        "overloadMaxPauseMillis", 20_000, whole(100, 10 * MINUTE_MILLIS), unit=MILLIS, dynamic=True,
        doc="A connection that is paused for so long passes some bytes more, which are counted, unless memory is above "
        "0.95 of the limit. Keep it below the sendTimeout of the clients (30 s). For its keep-alive it passes a whole "
        "frame each quarter of this, 5 s at most: a quarter of that time for a connection that consumes as well, five "
        "times as long after a frame above 64 KiB.",
    )  # fmt: skip
    adaptive_publisher_throttling_enabled = Key(
        "adaptivePublisherThrottlingEnabled", False, boolean(), dynamic=True,
        doc="Lower the publish rate of topics step by step while memory or their backlog is above a low mark.",
    )  # fmt: skip
    adaptive_publisher_throttling_observe_only = Key(
        "adaptivePublisherThrottlingObserveOnly", False, boolean(), dynamic=True,
        doc="Compute, log and measure rates, and apply none. Set live, it releases every topic at once.",
    )  # fmt: skip
    adaptive_publisher_throttling_interval_ms = Key(
        "adaptivePublisherThrottlingIntervalMs", 1000, whole(100, MINUTE_MILLIS), unit=MILLIS,
        dynamic=True,
        doc="Time between two evaluations of the publish rates.",
    )  # fmt: skip
    adaptive_publisher_throttling_memory_high_watermark_pct = Key(
        "adaptivePublisherThrottlingMemoryHighWatermarkPct", 0.85, fraction(), dynamic=True,
        doc="Part of the limit at which the pressure of memory is full. A fraction, whatever the name says.",
    )  # fmt: skip
    adaptive_publisher_throttling_memory_low_watermark_pct = Key(
        "adaptivePublisherThrottlingMemoryLowWatermarkPct", 0.70, fraction(), dynamic=True,
        doc="Part of the limit above which the pressure of memory begins. A fraction.",
    )  # fmt: skip
    adaptive_publisher_throttling_backlog_high_watermark_pct = Key(
        "adaptivePublisherThrottlingBacklogHighWatermarkPct", 0.90, fraction(), dynamic=True,
        doc="Part of a topic's backlog quota at which the pressure of its backlog is full. A fraction.",
    )  # fmt: skip
    adaptive_publisher_throttling_backlog_low_watermark_pct = Key(
        "adaptivePublisherThrottlingBacklogLowWatermarkPct", 0.75, fraction(), dynamic=True,
        doc="Part of a topic's backlog quota above which the pressure of its backlog begins. A fraction.",
    )  # fmt: skip
    adaptive_publisher_throttling_backlog_limit_bytes = Key(
        "adaptivePublisherThrottlingBacklogLimitBytes", 0, whole(0, 1 << 50), unit=BYTES,
        dynamic=True,
        doc="Stands in for the backlog quota of a topic that has none. 0: such topics have no pressure of backlog.",
    )  # fmt: skip
    adaptive_publisher_throttling_min_rate_factor = Key(
        "adaptivePublisherThrottlingMinRateFactor", 0.10, fraction(), dynamic=True,
        doc="Part of its natural rate that a topic keeps under full pressure; never less than 64 KiB and 100 messages "
        "a second.",
    )  # fmt: skip
    adaptive_publisher_throttling_max_rate_change_factor = Key(
        "adaptivePublisherThrottlingMaxRateChangeFactor", 0.25, fraction(), dynamic=True,
        doc="Part of its natural rate by which a topic's rate changes at most in one evaluation, up or down.",
    )  # fmt: skip
    adaptive_publisher_throttling_topics = Key(
        "adaptivePublisherThrottlingTopics", ("*",), topic_patterns(), dynamic=True,
        doc="Topics that may be slowed; `*` stands for any text, partitions go by the name of their topic. Those that "
        "a pattern behind `!` matches never are: `*,!persistent://shop/*`.",
    )  # fmt: skip
    adaptive_publisher_throttling_per_topic_metrics_enabled = Key(
        "adaptivePublisherThrottlingPerTopicMetricsEnabled", False, boolean(), dynamic=True,
        doc="Export six metrics for each of the 100 topics that are throttled most.",
    )  # fmt: skip
