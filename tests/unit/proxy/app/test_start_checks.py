"""What the keys of the event log mean together, and what it and the native engine need that may not be there."""

from pathlib import Path

import pytest

from proxy.app.start_checks import start_faults
from proxy.telemetry.events import requirements
from tests.support.configured import configured, refusal

TOPIC = "persistent://public/log/events"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"eventLogTopic": "events"}, "persistent://tenant/namespace/topic"),
        *(
            ({"eventLogTopic": TOPIC, "eventLogTopicServiceURL": url}, "pulsar://host:port")
            for url in (
                "pulsar://h:1 garbage",
                "pulsar://h:99999",
                "http://h:1",
                "pulsar://h?x",
                "pulsar://h:6650/path",
                "pulsar+ssl://a:6651,pulsar://b:6650",
            )
        ),
        (
            {"eventLogTopic": TOPIC, "eventLogTopicAuthenticationPlugin": "sasl"},
            "eventLogTopicAuthenticationPlugin: got",
        ),
        (
            {"eventLogTopic": TOPIC, "eventLogTopicAuthenticationPlugin": "token"},
            "eventLogTopicAuthenticationParameters: got nothing",
        ),
    ],
)
def test_contradictions_are_faults(keys: dict[str, object], expected: str) -> None:
    assert expected in str(refusal(**keys))


@pytest.mark.parametrize(
    ("keys", "warning"),
    [
        ({"eventLogTopicServiceURL": "pulsar://b:6650"}, "eventLogTopicServiceURL: has no effect without"),
        (
            {
                "eventLogTopic": TOPIC, "eventLogTopicServiceURL": "pulsar://b:6650",
                "brokerClientAuthenticationPlugin": "token", "brokerClientAuthenticationParameters": "token:secret",
            },
            "brokers there are shown no credentials",
        ),
        (
            {
                "eventLogTopic": TOPIC, "tlsEnabledWithBroker": "true", "brokerServiceURLTLS": "pulsar+ssl://b:6651",
                "brokerClientTlsProtocols": "TLSv1.3",
            },
            "brokerClientTlsProtocols: not for eventLogTopic",
        ),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_a_warning(keys: dict[str, object], warning: str) -> None:
    assert any(warning in str(found) for found in configured(**keys).warnings)


def test_password_in_a_url_is_a_fault_and_not_shown() -> None:
    told = str(refusal(eventLogTopic=TOPIC, eventLogTopicServiceURL="pulsar://user:s3cret@broker:6650"))
    assert "eventLogTopicServiceURL: got user info (hidden)" in told
    assert "s3cret" not in told


def test_urls_that_can_work_are_taken() -> None:
    for url in ("pulsar://a:6650,b", "pulsar+ssl://a,b:7000", "pulsar://[::1]:6650", "pulsar://a:6650/"):
        configured(eventLogTopic=TOPIC, eventLogTopicServiceURL=url)


def test_missing_client_library_is_told_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "find_spec", lambda name: None)
    (fault,) = start_faults(configured(eventLogTopic=TOPIC))
    assert (fault.key, "the extra `events`" in fault.problem) == ("eventLogTopic", True)


def test_directory_that_is_a_file_is_told_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        (fault,) = start_faults(configured(eventLogDirectory=path))
        assert fault.key == "eventLogDirectory"


def test_directory_that_can_be_made_is_no_fault(tmp_path: Path) -> None:
    assert start_faults(configured(eventLogDirectory=tmp_path / "a" / "b", eventLogTopic=TOPIC)) == []
