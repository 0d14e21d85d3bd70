"""Record what needs direct memory only: frames for watchers on relays, and lists over HTTP.

Rule: one event for each time that memory was asked for. A frame that passed without any, because its pause was over,
did reach its client: `ok`, with a wait for direct memory, no write, and nothing held. Several frames of one read share
a permit, and so an event, of the kind watch_init if a first list is among them, which of scalable topics nobody knows.
A list over HTTP waits for its turn at the broker, then for the broker, then for direct memory; its answer is never
held, so reading it is within `write_us`. `response_bytes` are those of all the frames; those that HTTP sent.
"""

from proxy.core.errors import DisconnectCause
from proxy.telemetry.events.recorder import End, Record, Recorder, RequestOrigin
from proxy.telemetry.events.timeline import Step, Timeline

__all__ = ["DirectRecord"]


class DirectRecord(Record):
    """Notes about one wait for direct memory, from the arrival until `ended`; `namespace` is empty on a relay."""

    __slots__ = ("_namespace", "_over_http", "_path")

    def __init__(self, recorder: Recorder, who: RequestOrigin, namespace: str = "", *, over_http: bool = False) -> None:
        super().__init__(recorder, who)
        self._namespace = namespace
        self._over_http = over_http
        self._path = Timeline(recorder.now, Step.SLOT if over_http else Step.READER)

    def question_asked(self) -> None:
        """Record that a broker is asked, for a list over HTTP."""
        self._path.enter(Step.QUESTION)

    def asks(self, size: int) -> None:
        """Record that `size` bytes are asked for."""
        self._path.enter(Step.DIRECT)
        self._path.direct_bytes = size

    def granted(self, booked_bytes: int) -> None:
        """Record that they are held; later bytes of a frame may be held once more."""
        self._path.enter(Step.WRITE)
        self._path.direct_is(booked_bytes)

    def released(self) -> None:
        """Record that they are held no more, while more of the frame is to come."""
        self._path.direct_is(None)

    def ended(self, kind: str, outcome: str, response_bytes: int | None, gone: DisconnectCause | None = None) -> None:
        """Make the event, of a client whose connection ended for the cause `gone` if the outcome is cancelled."""
        try:
            end = End(outcome, self._recorder.now(), gone=gone)
            event = self._event(kind, self._namespace, (self._path, self._moment[0]), end)
            if self._over_http and event["upstream_us"] is None:
                event["upstream_us"] = 0
            event["response_bytes"] = response_bytes
            self._path.add_cost(event)
            self._recorder.put(event)
        except Exception as error:
            self._recorder.crashed(error)
