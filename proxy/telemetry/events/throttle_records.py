"""Record what overload control decides: one event for each pause, release and rate, of the kind throttle.

Rule: such an event belongs to no client and holds no memory: its client is null, its times are 0, its outcome is `ok`.
The fields of decisions came with version 2 of the schema, and are absent from the events of topic lists.
"""

from collections.abc import Mapping
from typing import Final

from proxy.telemetry.events.identities import bounded
from proxy.telemetry.events.recorder import Recorder, RequestOrigin

__all__ = ["ThrottleEvents"]

_NOBODY: Final = RequestOrigin(None, "", None)
_TOPIC: Final = "throttle_topic"


class ThrottleEvents:
    """Makes events of decisions, which are mappings of the fields that begin with version 2."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def record(self, fields: Mapping[str, object]) -> None:
        """Make an event of a decision."""
        recorder = self._recorder
        try:
            topic = fields.get(_TOPIC)
            event = recorder.begun(recorder.moment(), "throttle", _NOBODY, _namespace(topic))
            event["principal"] = event["client_id"] = None
            event["outcome"] = "ok"
            event.update(fields)
            if isinstance(topic, str):
                event[_TOPIC] = bounded(topic)
            recorder.put(event)
        except Exception as error:
            recorder.crashed(error)


def _namespace(topic: object) -> str:
    """Return `tenant/namespace` of a topic; empty where it cannot be told."""
    if not isinstance(topic, str):
        return ""
    parts = topic.rpartition("://")[2].split("/")
    return "/".join(parts[:2]) if len(parts) >= 3 else ""
