"""The rows of metrics about overload control; a throttle that is not enabled has no family of its own.

The metrics of the adaptive throttle have the names of pulsar-25239, with `pulsar.proxy` for `pulsar.broker` and without
`broker.` before `topic`; two of them are gauges that upstream registers as up-down counters.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from proxy.core.counters import PREFIX, Counters, Derived
from proxy.core.instrument import Kind, Unit
from proxy.overload.counters import OverloadCounters, TopicNumbers
from proxy.overload.samples import OTHER_TOPICS

if TYPE_CHECKING:
    from proxy.overload.control import OverloadControl

__all__ = ["OVERLOAD_ROWS"]

# The control that runs, and what was counted of it and of those before.
_Seen = tuple["OverloadControl", OverloadCounters]
_Row = Derived[_Seen]


def _row(
    name: str,
    kind: Kind,
    text: str,
    read: "Callable[[OverloadControl, OverloadCounters], Mapping[str, float] | float]",
    unit: Unit = "",
    label: str = "",
    otel: str = "",
) -> _Row:
    """Declare a metric with one label or none."""
    labels = (label,) if label else ()
    return Derived(
        PREFIX + name, kind, text, lambda seen: read(*seen), optional=True, labels=labels, unit=unit, otel=otel
    )


def _ratios(view: "OverloadControl", _: OverloadCounters) -> Mapping[str, float]:
    signals = view.signals
    found = {"proxy": signals.proxy_ratio, "brokers": signals.broker_ratio}
    return {name: ratio for name, ratio in found.items() if ratio is not None}


_STATES: Final = ("normal", "paused", "resuming")

_SIGNAL_ROWS: Final = (
    _row("overload_memory_ratio", "gauge",
         "Memory that cannot be reclaimed as a part of its limit, as the throttles count it (docs/overload.md); absent "
         "while it is not known.",
         _ratios, "ratio", "signal"),
    _row("overload_memory_used_bytes", "gauge", "Memory of the container, the machine or this process, by owner.",
         lambda view, _: view.signals.owners, "bytes", "owner"),
    _row("overload_memory_limit_bytes", "gauge", "The limit that memory is compared with; 0 while it is not known.",
         lambda view, _: view.signals.limit_bytes, "bytes"),
    _row("overload_signal_failures", "counter", "Signals that could not be read, by signal.",
         lambda _, counters: counters.signal_failures, label="signal"),
    _row("overload_allocator_trims", "counter", "Times that free memory was returned to the system at the high mark.",
         lambda _, counters: counters.trims),
)  # fmt: skip
_THRESHOLD_ROWS: Final = (
    _row("overload_state", "gauge", "1 for the state of the threshold throttle, 0 for the others.",
         lambda view, _: {state: int(view.threshold_state == state) for state in _STATES}, label="state"),
    _row("overload_paused_connections", "gauge",
         "Producing connections that are not read, and those that would not be if it did more than observe.",
         lambda view, _: view.paused, label="what"),
    _row("overload_longest_pause_seconds", "gauge", "How long the connection that was paused first has been.",
         lambda view, _: view.longest_pause_seconds, "seconds"),
    _row("overload_pauses", "counter", "Pauses of producing connections.",
         lambda _, counters: counters.pauses),
    _row("overload_paused_seconds", "counter", "Seconds of all pauses, added up; pauses that last count.",
         lambda _, counters: counters.paused_seconds, "seconds"),
    _row("overload_drips", "counter", "Frames that passed a pause so that its connection stays open.",
         lambda _, counters: counters.drips),
    _row("overload_pause_overshoots", "counter",
         "Pauses of overloadMaxPauseMillis, after which more than a frame passed.",
         lambda _, counters: counters.pause_overshoots),
    _row("overload_evaluations", "counter", "Evaluations of the threshold throttle.",
         lambda _, counters: counters.threshold.evaluations),
    _row("overload_evaluation_failures", "counter", "Evaluations of the threshold throttle that failed.",
         lambda _, counters: counters.threshold.failures),
    _row("overload_evaluation_duration_seconds", "gauge", "Duration of the last evaluation of the threshold throttle.",
         lambda _, counters: counters.threshold.last_seconds, "seconds"),
    _row("overload_last_evaluation_timestamp_seconds", "gauge",
         "Unix time of the last evaluation of the threshold throttle.",
         lambda _, counters: counters.threshold.last_at, "seconds"),
)  # fmt: skip
_RELAY_ROWS: Final = (
    _row("overload_estimated_delay_seconds", "gauge",
         "Estimated delay of the next message of producing connections: what waits in the kernel by what passes, or "
         "overloadMaxPauseMillis while nothing passes.",
         lambda _, counters: counters.delays, "seconds", "rank"),
    _row("overload_stopped_relays", "gauge", "Relays of which a direction is not read, by reason; of the last second.",
         lambda _, counters: counters.paused_by, label="reason"),
)  # fmt: skip
_OTEL: Final = "pulsar.proxy.adaptive.throttle."
_ADAPTIVE_ROWS: Final = (
    _row("adaptive_throttle_memory_pressure_ratio", "gauge", "Pressure of memory from 0 to 1, between the two marks.",
         lambda view, _: view.memory_pressure or 0.0, "ratio", otel=f"{_OTEL}memory.pressure"),
    _row("adaptive_throttle_active_topic_count", "gauge", "Topics whose publish rate is limited; 0 in ObserveOnly.",
         lambda view, _: view.active_topics, otel=f"{_OTEL}active.topic.count"),
    _row("adaptive_throttle_activation_count", "counter", "Topics whose publish rate began to be limited.",
         lambda _, counters: counters.activations, otel=f"{_OTEL}activation.count"),
    _row("adaptive_throttle_controller_evaluation_count", "counter", "Evaluations of the adaptive throttle.",
         lambda _, counters: counters.adaptive.evaluations, otel=f"{_OTEL}controller.evaluation.count"),
    _row("adaptive_throttle_controller_last_evaluation_timestamp_seconds", "gauge",
         "Unix time of the last evaluation of the adaptive throttle.",
         lambda _, counters: counters.adaptive.last_at, "seconds",
         otel=f"{_OTEL}controller.last.evaluation.timestamp"),
    _row("adaptive_throttle_controller_evaluation_duration_seconds", "gauge",
         "Duration of the last evaluation of the adaptive throttle.",
         lambda _, counters: counters.adaptive.last_seconds, "seconds",
         otel=f"{_OTEL}controller.evaluation.duration"),
    _row("adaptive_throttle_controller_evaluation_failure_count", "counter",
         "Evaluations of the adaptive throttle, or of single topics, that failed.",
         lambda _, counters: counters.adaptive.failures,
         otel=f"{_OTEL}controller.evaluation.failure.count"),
    _row("adaptive_throttle_forced_frames", "counter",
         "Frames that passed without tokens, because their pause was 5 s long.",
         lambda view, _: view.rate_counts.forced),
    _row("adaptive_throttle_unslotted_producers", "counter",
         "Producers that count as one topic, (others): more than 65,536 topics, or a name of more than 512 bytes.",
         lambda view, _: view.rate_counts.without_slot + view.rate_counts.unasked),
    _row("adaptive_throttle_unreadable_connections", "counter",
         "Connections that count as one unknown producer, because the sizes of their frames made no sense.",
         lambda view, _: view.rate_counts.unreadable),
)  # fmt: skip


def _shown(topic: str) -> str:
    # A topic may be named by bytes that are no text.
    return topic.encode(errors="replace").decode() or OTHER_TOPICS


def _topic_row(name: str, text: str, read: Callable[[TopicNumbers], float], unit: Unit = "") -> _Row:
    """Declare a gauge with a number for each of the topics that are throttled most."""
    return Derived(
        f"{PREFIX}topic_adaptive_throttle_{name}", "gauge", f"{text} (by topic, the 100 throttled most).",
        lambda seen: {_shown(row.topic): read(row) for row in seen[0].topics()}, optional=True,
        labels=("topic",), unit=unit,
        # Both pressures have no unit in their name there, and the reduction has one.
        otel="pulsar.proxy.topic.adaptive.throttle." + name.replace("_pressure_ratio", "_pressure").replace("_", "."),
    )  # fmt: skip


_TOPIC_ROWS: Final = (
    _topic_row("active", "1 while the publish rate of the topic is limited", lambda row: int(row.active)),
    _topic_row("natural_publish_rate", "Bytes a second that the topic sends when nobody slows it",
               lambda row: row.natural_rate),
    _topic_row("effective_publish_rate", "Bytes a second that the topic may send",
               lambda row: row.effective_rate),
    _topic_row("memory_pressure_ratio", "Pressure of memory that the topic is slowed for",
               lambda row: row.memory_pressure, "ratio"),
    _topic_row("backlog_pressure_ratio", "Pressure of the topic's backlog", lambda row: row.backlog_pressure, "ratio"),
    _topic_row("rate_reduction_ratio", "Part of the natural rate that is taken away",
               lambda row: row.reduction, "ratio"),
)  # fmt: skip
OVERLOAD_ROWS: Final = (
    *_SIGNAL_ROWS,
    *_RELAY_ROWS,
    *_THRESHOLD_ROWS,
    *_ADAPTIVE_ROWS,
    *_TOPIC_ROWS,
)


def show_overload(counters: Counters, numbers: OverloadCounters) -> None:
    """Show the metrics of each throttle that is enabled, from now on."""

    def seen(shows: "Callable[[OverloadControl], bool]") -> Callable[[], _Seen | None]:
        return lambda: None if numbers.view is None or not shows(numbers.view) else (numbers.view, numbers)

    counters.derive((*_SIGNAL_ROWS, *_RELAY_ROWS), seen(lambda view: True))
    counters.derive(_THRESHOLD_ROWS, seen(lambda view: view.threshold_state is not None))
    counters.derive(_ADAPTIVE_ROWS, seen(lambda view: view.memory_pressure is not None))
    counters.derive(_TOPIC_ROWS, seen(lambda view: view.memory_pressure is not None and view.shows_topics))
