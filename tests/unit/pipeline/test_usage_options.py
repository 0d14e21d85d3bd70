"""What `usage` and `storms` are told, and what they refuse before Spark is started or anything is written."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from pipeline.cli import main
from pipeline.core.errors import ExitCode
from pipeline.jobs import usage
from pipeline.usage.settings import StreamSettings, UsageSettings, UsageSummary


@pytest.fixture
def streams(session: list[str], monkeypatch: pytest.MonkeyPatch) -> list[StreamSettings]:
    """Collect what streams are told; each is told to stop."""
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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], {}),
        (["--trigger", "1.5m"], {"trigger_us": 90_000_000}),
        (["--trigger", "10s", "--refresh", "1m"], {"trigger_us": 10_000_000, "refresh_us": 60_000_000}),
    ],
)
def test_stream_is_told_times_as_ingest_is_and_ends_with_sigterm(
    words: list[str], told: dict[str, int], streams: list[StreamSettings], session: list[str]
) -> None:
    assert main(["usage", "--out", "o/", "--stream", *words]) == ExitCode.OK
    assert streams == [StreamSettings("o/_checkpoints/usage", **told)]
    assert session == ["stopped"]


TRIGGER = ["usage", "--stream"]
STORM_RULE = "expected numbers of at least 1, 1, 0 and 1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *(([*TRIGGER, f"--trigger={word}"], f"--trigger: got {word!r}, expected") for word in ("10", "-1s")),
        ([*TRIGGER, "--refresh", "1m"], "--refresh: got no --trigger"),
        (["usage", "--trigger="], "got no --stream"),
        (["usage", "--overload-low", "0.9"], "--overload-low, --overload-high: got"),
        (["usage", "--overload-high", "85"], "--overload-low, --overload-high: got"),
        *((["storms", *words], STORM_RULE) for words in (["--times", "nan"], ["--floor", "0"])),
        *((["storms", word], STORM_RULE) for word in ("--gap=-1", "--top=0")),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    words: list[str], said: str, tmp_path: Path, session: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--out", str(tmp_path)]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
    assert (list(tmp_path.iterdir()), session) == ([], [])
