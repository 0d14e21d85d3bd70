"""What `usage` and `storms` are told, and what they refuse before Spark is started or anything is written."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from pipeline.cli import main
from pipeline.core.errors import ExitCode
from pipeline.core.options import CommonSettings
from pipeline.jobs import usage
from pipeline.running import progress
from pipeline.usage.settings import StreamSettings, UsageSettings, UsageSummary


class Session:
    """Stands for Spark's; knows whether it was stopped."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    before = signal.getsignal(signal.SIGTERM)
    session = Session()
    monkeypatch.setattr(progress, "open_session", lambda app, settings: session)
    yield session
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def streams(session: Session, monkeypatch: pytest.MonkeyPatch) -> list[StreamSettings]:
    """Collect what streams are told."""
    found: list[StreamSettings] = []

    def follow(
        spark: object, settings: UsageSettings, stream: StreamSettings, note: Callable[[str], None], stop: Event
    ) -> UsageSummary:
        found.append(stream)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(60)
        return UsageSummary(1, 3, 0, 0, 0.0)

    monkeypatch.setattr(usage, "follow_usage", follow)
    return found


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(app: str, settings: CommonSettings) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(progress, "open_session", fail)


@pytest.mark.parametrize(
    ("words", "trigger_us"), [([], None), (["--trigger", "10s"], 10_000_000), (["--trigger", "1.5m"], 90_000_000)]
)
def test_trigger_is_a_time_as_that_of_ingest(
    words: list[str], trigger_us: int | None, streams: list[StreamSettings]
) -> None:
    assert main(["usage", "--out", "o/", "--stream", *words]) == ExitCode.OK
    assert streams == [StreamSettings("o/_checkpoints/usage", trigger_us)]


def test_sigterm_tells_a_stream_to_stop(
    session: Session, streams: list[StreamSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["usage", "--out", "o", "--stream", "--trigger", "1s", "--checkpoint", "c"]) == ExitCode.OK
    assert streams == [StreamSettings("c", 1_000_000)]
    assert session.stopped
    assert capsys.readouterr().out.startswith("usage: 3 requests, 0 refused")


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize("word", ["abc", "", "10", "0s", "-1s", "10 seconds", "36501d"])
def test_trigger_that_is_no_time_is_refused_before_anything_is_written(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["usage", "--out", str(tmp_path), "--stream", f"--trigger={word}"]) == ExitCode.USAGE
    assert f"--trigger: got {word!r}, expected" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_refresh_is_a_time_beside_a_trigger(streams: list[StreamSettings], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "--out", "o", "--stream", "--trigger", "10s", "--refresh", "1m"]) == ExitCode.OK
    assert streams == [StreamSettings("o/_checkpoints/usage", 10_000_000, refresh_us=60_000_000)]
    assert main(["usage", "--out", "o", "--stream", "--refresh", "1m"]) == ExitCode.USAGE
    assert "--refresh: got no --trigger" in capsys.readouterr().err


@pytest.mark.usefixtures("no_session")
def test_trigger_of_no_stream_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "--out", "o", "--trigger="]) == ExitCode.USAGE
    assert "got no --stream" in capsys.readouterr().err


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize("words", [["--overload-low", "0.9"], ["--overload-high", "85"], ["--overload-low", "nan"]])
def test_marks_that_make_no_sense_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "--out", "o", *words]) == ExitCode.USAGE
    assert "--overload-low, --overload-high: got" in capsys.readouterr().err


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize(
    "words", [["--times", "nan"], ["--times", "inf"], ["--times", "0.5"], ["--floor", "0"], ["--gap=-1"], ["--top=0"]]
)
def test_rule_that_finds_no_storm_or_nothing_else_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["storms", "--out", "o", *words]) == ExitCode.USAGE
    assert "expected numbers of at least 1, 1, 0 and 1" in capsys.readouterr().err
