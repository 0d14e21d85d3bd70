"""An admin interface that is slow, busy, away, or refuses, and what it says of a topic; virtual time, a real port."""

from collections.abc import Iterator
from typing import Any, Literal

import pytest

from pipeline.core.errors import ExitCode
from pipeline.sources.pulsar.cluster import Cluster, state_of
from pipeline.sources.pulsar.errors import TopicError
from pipeline.sources.pulsar.offsets import NOWHERE, Ledger, PartitionState, Position
from pipeline.sources.pulsar.options import PulsarSettings
from tests.support.auth.tls import server_context
from tests.support.web.answering import Answer, Answering, answering

PATH = "/admin/v2/persistent/t/n/x"
STATS = {"lastConfirmedEntry": "5:1", "ledgers": [{"ledgerId": 5, "entries": 2}]}
STATE = PartitionState("persistent://t/n/x", (Ledger(5, 2),), Position(5, 1))
KEPT = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
LOST = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}


@pytest.fixture
def service() -> Iterator[Answering]:
    with answering() as made:
        yield made


class Time:
    """Passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def asking(url: str, time: Time, on_data_loss: Literal["fail", "warn"] = "fail") -> Cluster:
    settings = PulsarSettings("pulsar://a", "persistent://t/n/x", url, on_data_loss=on_data_loss)
    return Cluster(settings, 10.0, lambda: time.now, time.sleep)


def test_busy_service_is_asked_again(service: Answering) -> None:
    service.answers = [Answer(503), Answer(500), Answer(429), Answer(200, {"partitions": 0}), Answer(200, STATS)]
    assert asking(service.url, Time()).states() == {"persistent://t/n/x": STATE}


def test_service_that_stays_away_is_told_when_patience_is_over(service: Answering) -> None:
    service.answers = [Answer(503, {"reason": "not\nyet"})]
    time = Time()
    with pytest.raises(TopicError, match=rf"{PATH}/partitions: 503: not yet \(--admin-url\)$") as error:
        asking(service.url, time).states()
    assert 0 < time.now <= 10
    assert error.value.code == ExitCode.SOURCE


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer(401, b"no"), "401: log in as a role that may ask for the topic's statistics .--auth-file"),
        (Answer(403, b"no"), "403: log in as a role that may"),
        (Answer(200, b"<html>"), "got an answer that is no json .--admin-url"),
        (Answer(404, b""), "persistent://t/n/x does not exist: create it"),
    ],
)
def test_answer_that_waiting_does_not_change_is_told_at_once(service: Answering, answer: Answer, told: str) -> None:
    service.answers = [answer]
    time = Time()
    with pytest.raises(TopicError, match=told):
        asking(service.url, time).states()
    assert time.now == 0


def test_certificate_that_nobody_vouches_for_is_told_at_once() -> None:
    time = Time()
    with answering(server_context()) as secure, pytest.raises(TopicError, match=r"certificate verify.*\(--tls-trust\)"):
        asking(secure.url, time).states()
    assert time.now == 0


def test_topic_that_keeps_its_messages_is_no_news(service: Answering, capfd: pytest.CaptureFixture[str]) -> None:
    policies(service, KEPT)
    asking(service.url, Time()).require_keeping()
    assert capfd.readouterr().err == ""


def test_topic_that_loses_its_messages_is_an_error_or_a_warning(
    service: Answering, capfd: pytest.CaptureFixture[str]
) -> None:
    policies(service, LOST)
    with pytest.raises(TopicError, match="does not keep its messages: retention is 0 min and 0 MB, expected"):
        asking(service.url, Time()).require_keeping()
    asking(service.url, Time(), "warn").require_keeping()
    assert "warning: persistent://t/n/x does not keep its messages" in capfd.readouterr().err


def test_policies_that_a_role_may_not_see_are_warned_of(service: Answering, capfd: pytest.CaptureFixture[str]) -> None:
    service.answers = [Answer(403, b"no")]
    asking(service.url, Time()).require_keeping()
    assert "may not see whether the topic keeps its messages" in capfd.readouterr().err


def policies(service: Answering, retention: dict[str, Any]) -> None:
    service.answers = {
        ("GET", f"{PATH}/retention?applied=true"): Answer(200, retention),
        ("GET", f"{PATH}/inactiveTopicPolicies?applied=true"): Answer(200, {"deleteWhileInactive": False}),
    }


@pytest.mark.parametrize(
    ("confirmed", "ledgers", "held", "end"),
    [
        # The last ledger is written to: its statistics are 0 until it is closed.
        ("7:2", [(7, 0), (5, 4)], [(5, 4), (7, 3)], (7, 2)),
        # After a restart the last ledger has nothing yet.
        ("5:3", [(5, 4), (7, 0)], [(5, 4), (7, 0)], (5, 3)),
        ("7:-1", [(5, 4), (7, 0)], [(5, 4), (7, 0)], (5, 3)),
        # Nobody has confirmed the entries of the last.
        ("5:3", [(5, 4), (7, 2)], [(5, 4), (7, 0)], (5, 3)),
        ("6:-1", [(6, 0)], [(6, 0)], NOWHERE),
    ],
)
def test_statistics_end_with_the_last_entry_that_is_confirmed(
    confirmed: str, ledgers: list[tuple[int, int]], held: list[tuple[int, int]], end: tuple[int, int]
) -> None:
    told = [{"ledgerId": number, "entries": entries} for number, entries in ledgers]
    state = state_of("t", {"lastConfirmedEntry": confirmed, "ledgers": told})
    assert state == PartitionState("t", tuple(Ledger(*ledger) for ledger in held), Position(*end))
