"""Events of overload control: what they have of a list's event, and what is theirs."""

from typing import Any

from eventlog.schema import FIELDS
from eventlog.sink import STAMPED
from proxy.telemetry.events.throttle_records import ThrottleEvents
from tests.unit.eventlog.test_schema import faults


class FakeRecorder:
    """The part of a recorder that makes an event of nothing."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.errors: list[BaseException] = []

    def moment(self) -> None:
        return None

    def begun(self, moment: None, kind: str, origin: object, namespace: str) -> dict[str, object]:
        event: dict[str, object] = {
            field.name: None if field.nullable else {"bool": False, "string": ""}.get(field.type, 0)
            for field in FIELDS
            if field.name not in STAMPED and field.since == 1
        }
        tenant = namespace.partition("/")[0]
        return event | {"kind": kind, "tenant": tenant, "namespace": namespace, "client_id": "x", "fairness": "fifo"}

    def put(self, event: dict[str, Any]) -> None:
        self.events.append(event)

    def crashed(self, error: BaseException) -> None:
        self.errors.append(error)


def made(**fields: object) -> dict[str, Any]:
    recorder = FakeRecorder()
    ThrottleEvents(recorder).record(fields)  # type: ignore[arg-type]
    assert recorder.errors == []
    stamp = {"schema_version": 3, "proxy_id": "p", "boot_id": "b", "seq": 1, "dropped_before": 0}
    event = recorder.events[0] | stamp
    assert faults(event) == []
    return event


def test_event_of_a_pause_names_no_client_and_no_namespace() -> None:
    event = made(throttle_by="threshold", throttle_action="pause", throttle_connections=3)
    assert (event["kind"], event["outcome"], event["namespace"], event["client_id"]) == ("throttle", "ok", "", None)
    assert event["throttle_connections"] == 3


def test_event_of_a_rate_names_topic_and_namespace() -> None:
    event = made(throttle_by="adaptive", throttle_action="adjust", throttle_topic="persistent://t/n/a-partition-1")
    assert (event["tenant"], event["namespace"]) == ("t", "t/n")
    assert event["throttle_topic"] == "persistent://t/n/a-partition-1"


def test_name_of_a_topic_is_bounded_and_may_be_anything() -> None:
    event = made(throttle_by="adaptive", throttle_action="release", throttle_topic="x" * 100_000)
    assert len(event["throttle_topic"]) < 2000
    assert event["namespace"] == ""


def test_error_costs_the_event_only() -> None:
    recorder = FakeRecorder()
    recorder.begun = lambda *_: None  # type: ignore[assignment, method-assign]
    ThrottleEvents(recorder).record({"throttle_by": "adaptive"})  # type: ignore[arg-type]
    assert len(recorder.errors) == 1
