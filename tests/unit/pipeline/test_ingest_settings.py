"""What `ingest` and `compact` are told, and how a stream is told to stop."""

import argparse
import os
import signal
from threading import Event

import pytest

from pipeline import cli
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.ingest import IngestCounts, IngestSettings
from pipeline.ingest.settings import ingest_settings, micros
from pipeline.jobs import compact, ingest


def parsed(*words: str) -> IngestSettings:
    parser = argparse.ArgumentParser()
    ingest.add_arguments(parser)
    return ingest_settings(parser.parse_args(["--out", "o/", *words]))


def test_source_is_a_directory_or_a_topic() -> None:
    assert parsed("--source", "files:a/b").source == parsed("--source", "a/b").source == "a/b"
    assert parsed("--source", "a/b").topic is None
    topic = parsed("--source", "pulsar://127.0.0.1:6650/t/n/events").topic
    assert topic is not None
    assert topic.topic == "persistent://t/n/events"


def test_mode_follows_from_what_is_said_about_time() -> None:
    assert parsed("--source", "a").mode == "batch"
    assert parsed("--source", "a", "--once").mode == "once"
    continuous = parsed("--source", "a", "--trigger", "250ms")
    assert (continuous.mode, continuous.trigger_us) == ("continuous", 250_000)
    assert continuous.checkpoint == "o/_checkpoints/ingest"
    assert parsed("--source", "a", "--once", "--checkpoint", "c").checkpoint == "c"


@pytest.mark.parametrize("source", ["", "files:", "http://a/b", "persistent://t/n/x"])
def test_source_that_is_neither_a_place_of_files_nor_a_topic_is_refused(source: str) -> None:
    with pytest.raises(
        PipelineError, match=r"--source: got .*, expected DIR, files:DIR or pulsar://HOST:PORT/"
    ) as error:
        parsed("--source", source)
    assert error.value.code == ExitCode.USAGE


TOPIC = "pulsar://a/t/n/x"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["a", "--start", "latest", "--auth", "token"],
            r"--start, --auth: --source names files, and these are for topics",
        ),
        ([TOPIC, "--once", "--max-files", "5"], r"--max-files: --source names a topic, and these are for files"),
        (["a", "--checkpoint", "c"], r"--checkpoint: neither --once nor --trigger, and these are for a stream"),
        (
            [TOPIC, "--max-events", "5", "--admin-url", "http://a"],
            r"--max-events: neither --once nor --trigger, and these are for a stream",
        ),
    ],
)
def test_option_that_would_change_nothing_is_refused(words: list[str], problem: str) -> None:
    with pytest.raises(PipelineError, match=problem) as error:
        parsed("--source", *words)
    assert error.value.code == ExitCode.USAGE


@pytest.mark.parametrize("text", ["", "10", "-1s", "1w"])
def test_time_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(PipelineError, match=r"--trigger: got .*, expected a time like 500ms"):
        micros("--trigger", text)


@pytest.mark.parametrize(
    "words", [["--trigger", "0.1ms"], ["--once", "--max-file-age", "0s"], ["--once", "--late-after", "36501d"]]
)
def test_time_beyond_what_can_be_is_refused(words: list[str]) -> None:
    with pytest.raises(PipelineError, match=r"got '.*', expected (0|1)ms or more, and 36500d or less"):
        parsed("--source", "a", *words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--retention-days", "0"], "got 0, expected 1 or more"),
        (["--retention-days", "36501"], "--retention-days: got 36501, expected 36500 or less"),
        (["--target-file-mb", "0"], "got 0, expected 1 or more"),
    ],
)
def test_compaction_refuses_what_cannot_be_meant(words: list[str], said: str) -> None:
    parser = argparse.ArgumentParser()
    compact.add_arguments(parser)
    with pytest.raises(PipelineError, match=said):
        compact.compact_settings(parser.parse_args(["--out", "o", *words]))


def test_sigterm_tells_a_stream_to_stop(
    session: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def take(spark: object, settings: IngestSettings, *, stop: Event) -> IngestCounts:
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(60)
        return IngestCounts(3, 1, 1, {"late": 1}, 4)

    monkeypatch.setattr(ingest, "ingest", take)
    parser = argparse.ArgumentParser()
    ingest.add_arguments(parser)
    options = parser.parse_args(["--source", "a", "--out", "o", "--trigger", "1s"])
    assert ingest.run(options) == ExitCode.OK
    assert session == ["stopped"]
    assert capsys.readouterr().out == "ingest: 3 read: 1 kept, 1 duplicates, 1 late; 4 lost by proxies\n"


def test_what_a_user_can_mend_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(options: argparse.Namespace) -> int:
        raise RuntimeError(f"[{said}] Encountered error")

    monkeypatch.setattr(compact, "run", fail)
    said = "FAILED_READ_FILE.FILE_NOT_EXIST"
    assert cli.main(["compact", "--out", "o"]) == ExitCode.FAILED
    assert "compacted meanwhile: run again" in capsys.readouterr().err
    said = 'No FileSystem for scheme "foo" at x'
    assert cli.main(["compact", "--out", "foo://a"]) == ExitCode.USAGE
    assert "got a URI that begins with foo:, expected a directory" in capsys.readouterr().err
    said = "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
    assert cli.main(["compact", "--out", "s3a://a"]) == ExitCode.FAILED
    assert "found no org.apache.hadoop.fs.s3a.S3AFileSystem, expected the jar" in capsys.readouterr().err
    said = "SOMETHING_ELSE"
    with pytest.raises(RuntimeError):
        cli.main(["compact", "--out", "o"])
