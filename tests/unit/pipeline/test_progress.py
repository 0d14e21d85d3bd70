from collections.abc import Iterator
from io import StringIO
from threading import Event
from types import SimpleNamespace

import pytest

from pipeline.core.options import CommonSettings
from pipeline.running import progress
from pipeline.running.progress import at_work, watched, watching


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


def test_a_step_within_a_job_goes_by_its_own_name_and_the_session_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[bool] = []
    session, out = SimpleNamespace(stop=lambda: stopped.append(True)), StringIO()
    counts = iter(range(1, 1_000_000))
    monkeypatch.setattr(progress, "open_session", lambda job, common: session)
    monkeypatch.setattr(progress, "task_counts", lambda spark: (next(counts), 1_000_000))
    monkeypatch.setattr(progress, "INTERVAL_SECONDS", 0.001)
    monkeypatch.setattr("sys.stderr", out)

    def told(label: str) -> None:
        before = out.getvalue().count(f"{label}: ")
        tries = 0
        while out.getvalue().count(f"{label}: ") == before:
            assert (tries := tries + 1) < 60_000, out.getvalue()[-200:]
            Event().wait(0.001)

    with at_work("whatif", CommonSettings("out", "parquet", None, {})) as spark:
        told("whatif")
        with watched(spark, "calibration"):
            told("calibration")
        told("whatif")
        assert not stopped
    assert stopped
