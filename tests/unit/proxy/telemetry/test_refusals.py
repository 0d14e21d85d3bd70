from typing import Any

import pytest

from limiter.errors import (
    PermitAcquireAlreadyClosed,
    PermitAcquireError,
    PermitAcquireQueueFull,
    PermitAcquireTimeout,
)
from limiter.semaphore import AsyncSemaphore
from protocol.errors import ServerError
from proxy.config.config import Config
from proxy.core.errors import OverLimit
from proxy.telemetry.refusals import LONGEST_TEXT, MOST_RECENT, RefusalLog, Stage
from tests.support.log_lines import LogLines
from tests.support.loops.clock import ManualClock


class Book:
    """A refusal log with its clock, its limiter and the lines it wrote."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.heap = AsyncSemaphore("heap", 1000, max_queue=5, timeout_seconds=1.0, clock=self.clock)
        self._lines = LogLines()
        self.log = RefusalLog(self._lines.log, self.clock, now=lambda: 1.5)

    def refuse(self, error: Exception | None = None, stage: Stage = Stage.HEAP) -> None:
        given = error if error is not None else PermitAcquireTimeout("heap", 1000, 900, 300, 2)
        self.log.note(given, stage, self.heap, "192.0.2.1:5000", "public/default")

    @property
    def lines(self) -> list[dict[str, Any]]:
        return self._lines.said


def test_a_line_says_who_was_refused_by_what_and_what_to_change() -> None:
    book = Book()
    held = [book.heap.try_acquire(size, key=key) for key, size in (("a:1", 100), ("b:2", 500), ("c:3", 200), ("d", 50))]
    book.refuse()
    (line,) = book.lines
    assert line["level"] == "warning"
    told = {name: line[name] for name in ("limiter", "limit", "held", "asked", "queued", "client", "subject", "change")}
    assert told == {
        "limiter": "heap",
        "limit": 1000,
        "held": 850,
        "asked": 300,
        "queued": 0,
        "client": "192.0.2.1:5000",
        "subject": "public/default",
        "change": "maxTopicListInFlightHeapMemSizeMB",
    }
    assert line["top_holders"] == [["b:2", 500], ["c:3", 200], ["a:1", 100]]
    assert all(permit is not None for permit in held)


def test_the_end_of_a_storm_is_told_when_the_pace_allows() -> None:
    book = Book()
    for _ in range(7):
        book.refuse()
    book.log.flush()
    assert [line["refusals_since_last_line"] for line in book.lines] == [1]
    book.clock.advance(1.0)
    book.log.flush()
    book.clock.advance(1.0)
    book.log.flush()
    assert [line["refusals_since_last_line"] for line in book.lines] == [1, 6]


def test_no_stage_is_counted_to_another_and_none_waits_for_another() -> None:
    book = Book()
    for _ in range(5):
        book.refuse(stage=Stage.HEAP)
        book.refuse(stage=Stage.DIRECT)
    book.clock.advance(1.0)
    book.refuse(stage=Stage.DIRECT)
    book.log.flush()
    counted = [(line["stage"], line["refusals_since_last_line"]) for line in book.lines]
    assert counted == [("heap", 1), ("direct", 1), ("direct", 5), ("heap", 4)]


def test_a_refusal_that_no_limiter_made_has_no_books() -> None:
    book = Book()
    book.log.note(TimeoutError(), Stage.BROKER, None, "192.0.2.1:5000", "public/default")
    (line,) = book.lines
    assert not line.keys() & {"limiter", "limit", "held", "asked", "queued", "top_holders"}
    assert line["change"] == "topicListRequestTimeoutMillis"
    last = book.log.recent[-1]
    assert (last.limiter, last.limit, last.held, last.asked, last.queued) == (None,) * 5


def test_a_refusal_by_a_fixed_limit_brings_its_own_words_and_numbers() -> None:
    book = Book()
    error = OverLimit(ServerError.TooManyRequests, "too many", "lookups", "maxConcurrentLookupRequests", 1001, 1000)
    for _ in range(1000):
        book.log.note_over_limit(error, "c" * 100_000, "n" * 100_000)
    (line,) = book.lines
    told = {name: line[name] for name in ("stage", "change", "reason", "asked", "limit")}
    assert told == {
        "stage": "lookups",
        "change": "maxConcurrentLookupRequests",
        "reason": "too many",
        "asked": 1001,
        "limit": 1000,
    }
    assert {len(refusal.client + refusal.subject) for refusal in book.log.recent} == {2 * LONGEST_TEXT}


@pytest.mark.parametrize(
    ("cap_percent", "held", "change"),
    [
        (50, 700, "topicListMaxMemoryPercentPerKey"),
        (50, 701, "maxTopicListInFlightHeapMemSizeMB"),
        (100, 700, "maxTopicListInFlightHeapMemSizeMB"),
    ],
)
def test_a_refusal_for_which_there_was_room_names_the_cap(cap_percent: int, held: int, change: str) -> None:
    book = Book()
    book.heap.set_sharing(True, cap_percent)
    book.refuse(PermitAcquireTimeout("heap", 1000, held, 300, 2))
    assert book.lines[0]["change"] == change


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("kind", [PermitAcquireTimeout, PermitAcquireQueueFull, PermitAcquireAlreadyClosed])
def test_the_key_to_change_is_one_that_exists(stage: Stage, kind: type[PermitAcquireError]) -> None:
    known = {key.name for key in Config.keys()}  # noqa: SIM118
    assert stage.key_to_change(kind("heap", 1, 1, 1, 1)) in known


@pytest.mark.parametrize(("stage", "memory"), [(Stage.HEAP, "Heap"), (Stage.DIRECT, "Direct")])
def test_a_full_queue_and_a_full_memory_are_changed_by_different_keys(stage: Stage, memory: str) -> None:
    full = stage.key_to_change(PermitAcquireQueueFull("heap", 1, 1, 1, 1))
    late = stage.key_to_change(PermitAcquireTimeout("heap", 1, 1, 1, 1))
    assert full == f"maxTopicListInFlight{memory}MemSizePermitsAcquireQueueSize"
    assert late == f"maxTopicListInFlight{memory}MemSizeMB"


def test_clients_are_told_the_proposals_words() -> None:
    assert Stage.HEAP.refusal == "Failed due to heap memory limit exceeded"
    assert Stage.DIRECT.refusal == "Failed due to direct memory limit exceeded"


def test_no_storm_and_no_client_can_make_the_kept_refusals_large() -> None:
    book = Book()
    permit = book.heap.try_acquire(1, key="k" * 100_000)
    for number in range(1000):
        book.log.note(TimeoutError(), Stage.BROKER, book.heap, "c" * 100_000, f"{number}/" + "n" * 100_000)
    assert len(book.log.recent) == MOST_RECENT
    assert book.log.recent[-1].subject.startswith("999/")
    for refusal in book.log.recent:
        texts = (refusal.client, refusal.subject, refusal.top_holders[0][0])
        assert max(map(len, texts)) == LONGEST_TEXT
        assert refusal.asked is None
    assert permit is not None
