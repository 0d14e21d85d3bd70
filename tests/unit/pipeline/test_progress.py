from collections.abc import Iterator
from io import StringIO
from threading import Event

from pipeline.running.progress import watching


def test_progress_is_told_when_it_changes_and_not_before_there_is_any() -> None:
    steps: Iterator[tuple[int, int]] = iter([(0, 0), (0, 4), (1, 4), (1, 4), (4, 4)])
    all_seen = Event()

    def count() -> tuple[int, int]:
        step = next(steps, None)
        if step is None:
            all_seen.set()
        return step or (4, 4)

    out = StringIO()
    with watching(lambda: "replay", count, out, interval_seconds=0.001):
        assert all_seen.wait(30)
    assert out.getvalue().splitlines() == ["replay: 0 of 4 tasks", "replay: 1 of 4 tasks", "replay: 4 of 4 tasks"]
