"""Record what needs direct memory only: frames for watchers on relays, and lists over HTTP.

Rule: one event for each time that memory was asked for. A frame that passed without any, because its pause was over,
did reach its client: `ok`, with a wait for direct memory, no write, and nothing held. Several frames of one read share
a permit, and so an event, of the kind watch_init if a first list is among them, which of scalable topics nobody knows.
A list over HTTP waits for its turn at the broker, then for the broker, then for direct memory; its answer is never
held, so reading it is within `write_us`. `response_bytes` are those of all the frames; those that HTTP sent.
"""

from typing import Final

from proxy.core.errors import DisconnectCause
from proxy.telemetry.events.outcomes import close_cause_of, outcome_of
from proxy.telemetry.events.recorder import Recorder, RequestOrigin
from proxy.telemetry.events.timeline import Meter

__all__ = ["NO_DIRECT_RECORD", "DirectRecord", "NoDirectRecord", "direct_record"]


class NoDirectRecord:
    """The record of a wait for direct memory without an event log: nothing is noted."""

    __slots__ = ()

    def question_asked(self) -> None:
        """Record that a broker is asked, for a list over HTTP."""

    def asks(self, size: int) -> None:
        """Record that `size` bytes are asked for."""

    def granted(self, booked_bytes: int) -> None:
        """Record that they are held."""

    def released(self) -> None:
        """Record that they are held no more, while more of the frame is to come."""

    def ended(self, kind: str, outcome: str, response_bytes: int | None, gone: DisconnectCause | None = None) -> None:
        """Record the end, of a client whose connection ended for the cause `gone` if the outcome is cancelled."""

    def failed(self, kind: str, error: Exception, response_bytes: int | None) -> None:
        """Record a request that ended with `error`."""


NO_DIRECT_RECORD: Final = NoDirectRecord()


def direct_record(
    recorder: Recorder | None, who: RequestOrigin | None, namespace: str = "", *, over_http: bool = False
) -> NoDirectRecord:
    """Return the record of a wait that begins now; without an event log, or a client, the record that notes nothing."""
    if recorder is None or who is None:
        return NO_DIRECT_RECORD
    return DirectRecord(recorder, who, namespace, over_http=over_http)


class DirectRecord(NoDirectRecord):
    """Notes about one wait for direct memory, from the arrival until `ended`; `namespace` is empty on a relay."""

    __slots__ = (
        "_asked_ns", "_granted_ns", "_meter", "_moment", "_namespace", "_over_http", "_question_ns", "_recorder",
        "_size", "_who",
    )  # fmt: skip

    def __init__(self, recorder: Recorder, who: RequestOrigin, namespace: str = "", *, over_http: bool = False) -> None:
        self._recorder = recorder
        self._moment = recorder.moment()
        self._who = who
        self._namespace = namespace
        self._over_http = over_http
        self._question_ns = self._asked_ns = self._granted_ns = 0
        self._size: int | None = None
        self._meter = Meter()

    def question_asked(self) -> None:
        """Record that a broker is asked, for a list over HTTP."""
        self._question_ns = self._recorder.now()

    def asks(self, size: int) -> None:
        """Record that `size` bytes are asked for."""
        self._asked_ns = self._recorder.now()
        self._size = size

    def granted(self, booked_bytes: int) -> None:
        """Record that they are held."""
        now_ns = self._recorder.now()
        # Later bytes of a frame may be held once more.
        self._granted_ns = self._granted_ns or now_ns
        self._meter.begin(now_ns, booked_bytes)

    def released(self) -> None:
        """Record that they are held no more, while more of the frame is to come."""
        self._meter.end(self._recorder.now())

    def ended(self, kind: str, outcome: str, response_bytes: int | None, gone: DisconnectCause | None = None) -> None:
        """Make the event, of a client whose connection ended for the cause `gone` if the outcome is cancelled."""
        try:
            event = self._recorder.begun(self._moment, kind, self._who, self._namespace)
            self._add(event, outcome)
            event["response_bytes"] = response_bytes
            if outcome == "cancelled":
                event["cancelled_after_us"] = event["total_us"]
                event["close_cause"] = close_cause_of(gone)
            self._recorder.put(event)
        except Exception as error:
            self._recorder.crashed(error)

    def failed(self, kind: str, error: Exception, response_bytes: int | None) -> None:
        """Make the event of a request that ended with `error`."""
        self.ended(kind, outcome_of(error, under_way=bool(self._granted_ns)), response_bytes)

    def _add(self, event: dict[str, object], outcome: str) -> None:
        end_ns = self._recorder.now()
        at_ns, asked_ns, granted_ns = self._moment[0], self._asked_ns or end_ns, self._granted_ns or end_ns
        self._meter.end(end_ns)
        event["direct_bytes"] = self._size
        if self._over_http:
            question_ns = self._question_ns or end_ns
            event["broker_wait_us"] = question_ns // 1000 - at_ns // 1000
            event["upstream_us"] = asked_ns // 1000 - question_ns // 1000
        else:
            event["reader_wait_us"] = asked_ns // 1000 - at_ns // 1000
        event["direct_wait_us"] = granted_ns // 1000 - asked_ns // 1000
        if self._granted_ns:
            event["write_us"] = end_ns // 1000 - granted_ns // 1000
        event["total_us"] = end_ns // 1000 - at_ns // 1000
        event["carries_cost"] = True
        event["heap_held_us"] = event["heap_byte_us"] = 0
        event["direct_held_us"] = self._meter.held_us
        event["direct_byte_us"] = self._meter.byte_us
        event["outcome"] = outcome
        if outcome != "ok":
            event["outcome_stage"] = self._stage()

    def _stage(self) -> str:
        if self._granted_ns:
            return "write"
        if self._asked_ns:
            return "direct"
        if not self._over_http:
            return "reader"
        return "upstream" if self._question_ns else "broker"
