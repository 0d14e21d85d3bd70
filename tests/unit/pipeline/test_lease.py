"""One writer at a time: the next waits for it, follows a dead one, and a late one finds out before it writes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.store.lease import Clock, Held, acquire, lock_of


class Store:
    """Files in memory, and a clock that goes on while somebody waits; `meanwhile` is what others do then."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.time = 0.0
        self.meanwhile: list[Callable[[], None]] = []
        self.before_create: Callable[[], None] | None = None

    def names(self) -> list[str]:
        return sorted(self.texts)

    def read(self, name: str) -> str | None:
        return self.texts.get(name)

    def create(self, name: str, text: str) -> bool:
        if self.before_create:
            act, self.before_create = self.before_create, None
            act()
        return self.texts.setdefault(name, text) is text

    def replace(self, name: str, text: str) -> None:
        self.texts[name] = text

    def delete(self, name: str) -> None:
        self.texts.pop(name, None)

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        if self.meanwhile:
            self.meanwhile.pop(0)()

    def clock(self, patience_seconds: float = 100, stale_seconds: float = 10) -> Clock:
        return Clock(patience_seconds, stale_seconds, 1, lambda: self.time, self.sleep)


@pytest.fixture
def store() -> Store:
    return Store()


def take(store: Store, owner: str, **times: float) -> Held:
    return acquire(store, owner, "s3a://tables", store.clock(**times))


def test_who_waits_in_vain_hears_who_writes(store: Store) -> None:
    first = take(store, "ingest, process 7 at node-3,")
    store.meanwhile = [first.beat] * 50
    with pytest.raises(PipelineError, match="s3a://tables: ingest, process 7 at node-3, has been writing") as caught:
        take(store, "second", patience_seconds=30)
    assert caught.value.code == ExitCode.FAILED
    assert store.time == 30


def test_a_dead_writer_is_followed_once_it_has_shown_nothing_for_long(store: Store) -> None:
    take(store, "killed")
    take(store, "second").require()
    assert store.time == 10


def test_a_writer_that_lives_is_not_taken_for_dead(store: Store) -> None:
    first = take(store, "first")
    store.meanwhile = [lambda: None] * 9 + [first.beat] + [lambda: None] * 9 + [first.release]
    take(store, "second")
    assert store.time == 20


def test_a_writer_that_was_held_up_finds_out_before_it_writes(store: Store) -> None:
    first = take(store, "first")
    second = take(store, "second")
    with pytest.raises(PipelineError, match="held up for 10 s and second writes there now: run again"):
        first.require()
    # Even if it shows then that it lives.
    first.beat()
    with pytest.raises(PipelineError, match="second writes there now"):
        first.require()
    second.require()


def test_lock_of_a_directory_names_its_holder(tmp_path: Path) -> None:
    waits = Clock(0, sleep=lambda _: None)
    with (
        lock_of(tmp_path, "ingest, process 7,"),
        pytest.raises(PipelineError, match=": ingest, process 7, has been"),
        lock_of(tmp_path, "compact", clock=waits),
    ):
        pass
    with lock_of(tmp_path, "compact", clock=waits):
        pass
    assert (tmp_path / "_lock").read_text() == ""
