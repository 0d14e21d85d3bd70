"""Report what overload control decides: log lines with a pace, and events. A decision never waits for either."""

from collections.abc import Callable, Mapping
from typing import Final

from proxy.core.log import LinePace, Logger
from proxy.overload.adaptive import Change, RateDecision
from proxy.overload.samples import OTHER_TOPICS, Marks, Signals
from proxy.overload.threshold import ThresholdDecisions, ThrottleState

# A line about a topic's transition at most once a minute (A10), for so many topics.
TOPIC_SECONDS: Final = 60.0
MOST_TOPICS: Final = 1024
# The bit of `throttle_reasons` for a topic's backlog; those of memory are `Signals.bits`.
BACKLOG: Final = 4
# Events of rates at one evaluation; those of topics beyond that have none.
MOST_EVENTS: Final = 200
_TRANSITIONS: Final = {
    Change.ACTIVATE: "publish rate of a topic is limited",
    Change.DEACTIVATE: "publish rate of a topic is free again",
    Change.RELEASE: "publish rate of a topic is free again",
    Change.WOULD_ACTIVATE: "would-activate: publish rate of a topic would be limited",
    Change.WOULD_DEACTIVATE: "would-deactivate: publish rate of a topic would be free again",
}
_STATES: Final = {
    ThrottleState.PAUSED: "memory is short: producing connections are not read",
    ThrottleState.RESUMING: "memory is free again: producing connections are read, a few at a time",
    ThrottleState.NORMAL: "all producing connections are read",
}


# Makes an event of fields, and never raises.
Record = Callable[[Mapping[str, object]], None]


class ThrottleReport:
    """Writes lines and events."""

    def __init__(self, log: Logger, record: Record | None) -> None:
        self._log = log
        self._record = record
        self._pace = LinePace()
        self._topics: dict[str, float] = {}
        self._evaluation = 0.0
        self._events_left = 0
        self._reasons = 0

    def threshold(self, now: float, made: ThresholdDecisions, signals: Signals, high: float, *, observes: bool) -> None:
        """Report a change of state, and of connections that are paused or released; `high` is the high mark."""
        # Connections that are still paused are so for what paused them.
        self._reasons |= signals.bits(lambda ratio: ratio >= high)
        reasons = self._reasons
        if made.after is ThrottleState.NORMAL:
            self._reasons = 0
        if made.before is not made.after:
            self._state(now, made, signals, observes=observes)
        if not (made.paused or made.resumed or made.before is not made.after):
            return
        if made.paused and made.resumed:
            # Connections changed places. In this order the sum of those that are paused never looks like a new pause.
            self._connections("resume", len(made.resumed), made, signals, reasons)
            self._connections("pause", len(made.paused), made, signals, reasons)
            return
        action = "pause" if made.paused or (made.after is ThrottleState.PAUSED and not made.resumed) else "resume"
        # The switch to ObserveOnly itself does release.
        if observes and not made.resumed:
            self._connections(f"would_{action}", made.would_pause, made, signals, reasons, would=True)
        else:
            self._connections(action, len(made.paused) + len(made.resumed), made, signals, reasons)

    def _connections(
        self, action: str, count: int, made: ThresholdDecisions, signals: Signals, reasons: int, *, would: bool = False
    ) -> None:
        self._event(
            signals,
            throttle_by="threshold",
            throttle_action=action,
            throttle_connections=count,
            throttle_reasons=reasons if made.after is not ThrottleState.NORMAL else 0,
            throttle_paused=made.would_pause if would else made.paused_now,
        )

    def _state(self, now: float, made: ThresholdDecisions, signals: Signals, *, observes: bool) -> None:
        if not self._pace.due(now, f"state {made.after}"):
            return
        ratio = None if signals.ratio is None else round(signals.ratio, 3)
        event = f"would-{'pause' if made.after is ThrottleState.PAUSED else 'release'}: " if observes else ""
        line = self._log.warning if made.after is ThrottleState.PAUSED else self._log.info
        count = made.would_pause if observes else len(made.paused)
        line(event + _STATES[made.after], state=str(made.after), ratio=ratio, connections=count, reason=signals.source)

    def rate(self, now: float, made: RateDecision, signals: Signals, marks: Marks) -> None:
        """Report a topic's new rate; `marks` are those of memory."""
        if made.change in _TRANSITIONS and self._topic_is_due(now, made.topic):
            self._log.info(
                _TRANSITIONS[made.change], topic=made.topic or OTHER_TOPICS, bytes_per_second=_rounded(made.bytes_rate),
                messages_per_second=_rounded(made.messages_rate),
                pressure=round(max(made.memory_pressure, made.backlog_pressure), 3),
            )  # fmt: skip
        # An evaluation has many topics: without an event log their fields are not made.
        if self._record is not None and self._has_event(now):
            pressing = signals.bits(lambda ratio: marks.pressure(ratio) > 0) if made.memory_pressure > 0 else 0
            self._event(
                signals,
                throttle_by="adaptive",
                throttle_action=str(made.change),
                throttle_topic=made.topic or OTHER_TOPICS,
                throttle_reasons=pressing + (BACKLOG if made.backlog_pressure > 0 else 0),
                throttle_pressure_permille=round(1000 * max(made.memory_pressure, made.backlog_pressure)),
                natural_bytes_per_second=round(made.natural_bytes),
                natural_messages_per_second=round(made.natural_messages),
                allowed_bytes_per_second=_rounded(made.bytes_rate),
                allowed_messages_per_second=_rounded(made.messages_rate),
            )

    def forgotten(self, topics: int, signals: Signals) -> None:
        """Report how many topics were forgotten at an evaluation, if any."""
        if topics:
            self._event(signals, throttle_by="adaptive", throttle_action="forget", throttle_forgotten=topics)

    def _event(self, signals: Signals, **fields: object) -> None:
        if self._record is None:
            return
        fields["throttle_ratio_permille"] = None if signals.ratio is None else round(1000 * signals.ratio)
        fields["memory_used_bytes"] = signals.used_bytes if signals.limit_bytes else None
        fields["memory_limit_bytes"] = signals.limit_bytes or None
        self._record(fields)

    def _has_event(self, now: float) -> bool:
        if now != self._evaluation:
            self._evaluation, self._events_left = now, MOST_EVENTS
        self._events_left -= 1
        return self._events_left >= 0

    def _topic_is_due(self, now: float, topic: str) -> bool:
        # A storm over thousands of topics leaves a line a second.
        if now < self._topics.get(topic, 0.0) or not self._pace.due(now, "topic"):
            return False
        if len(self._topics) >= MOST_TOPICS:
            self._topics.clear()
        self._topics[topic] = now + TOPIC_SECONDS
        return True

    def failed(self, now: float, where: str, error: BaseException) -> None:
        """Report an evaluation that failed."""
        if self._pace.due(now, f"failed {where}"):
            self._log.error("overload control failed, it goes on", where=where, exc_info=error, detail=str(error))

    def unreadable(self, now: float, signal: str, error: BaseException) -> None:
        """Report a signal that cannot be read."""
        if self._pace.due(now, f"signal {signal}"):
            self._log.warning("a signal of overload control cannot be read", where=signal, detail=str(error))

    def not_trimmed(self, now: float, error: BaseException) -> None:
        """Report that the allocator did not return free pages."""
        if self._pace.due(now, "trim"):
            self._log.warning("free memory was not returned to the system", where="proxy", detail=str(error))

    def refused(self, error: BaseException) -> None:
        """Report, once, that the brokers' memory stays unknown for lack of rights."""
        self._log.warning(
            "brokers do not show their memory to this proxy: only the backlog of topics counts",
            detail=str(error), expected="a superuser in brokerClientAuthenticationPlugin, or overloadSignals=proxy",
        )  # fmt: skip


def _rounded(rate: float | None) -> int | None:
    return None if rate is None else round(rate)
