"""What `ingest` and `compact` are told, and how a stream is told to stop."""

import argparse
import os
import signal
from collections.abc import Callable, Iterator
from threading import Event

import pytest

from pipeline import cli
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.ingest.settings import IngestSettings, ingest_settings, micros
from pipeline.ingest.write import IngestCounts
from pipeline.jobs import compact, ingest


def parsed(*words: str) -> IngestSettings:
    parser = argparse.ArgumentParser()
    ingest.add_arguments(parser)
    return ingest_settings(parser.parse_args(["--out", "o/", *words]))


def test_source_is_a_directory_or_a_topic() -> None:
    assert parsed("--source", "files:a/b").source == parsed("--source", "a/b").source == "a/b"
    assert parsed("--source", "a/b").topic is None
    topic = parsed("--source", "pulsar://127.0.0.1:6650/t/n/events", "--admin-url", "http://a:8080").topic
    assert topic is not None
    assert topic.topic == "persistent://t/n/events"


def test_checkpoint_is_beside_the_tables_unless_it_is_said() -> None:
    assert parsed("--source", "a").checkpoint == "o/_checkpoints/files"
    topic = parsed("--source", TOPIC, "--admin-url", "http://a:8080")
    assert topic.checkpoint == "o/_checkpoints/topic"
    assert parsed("--source", "a", "--checkpoint", "c").checkpoint == "c"
    assert parsed("--source", "a", "--trigger", "250ms").trigger_us == 250_000


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
            ["a", "--max-entries", "5", "--auth-file", "f"],
            r"--max-entries, --auth-file: --source names files, and these are for topics",
        ),
        (
            [TOPIC, "--admin-url", "http://a:8080", "--max-files", "5"],
            r"--max-files: --source names a topic, and these are for files",
        ),
        (["a", "--trigger", "1s", "--fail-if-quarantined", "1"], r"--fail-if-quarantined: got it with --trigger"),
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


@pytest.mark.parametrize("time", ["0.1ms", "36501d"])
def test_time_beyond_what_can_be_is_refused(time: str) -> None:
    with pytest.raises(PipelineError, match=r"got '.*', expected 1ms or more, and 36500d or less"):
        parsed("--source", "a", "--trigger", time)


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


@pytest.fixture
def taken(session: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Event]]:
    """Have a stream take three lines, one of which is no event; gives what it is told to stop by."""
    told: list[Event] = []

    def take(spark: object, settings: IngestSettings, say: object, stop: Event, health: object) -> IngestCounts:
        told.append(stop)
        return IngestCounts(3, 1, 1, {"malformed": 1}, 4)

    monkeypatch.setattr(ingest, "follow", take)
    yield told
    assert session == ["stopped"]


def test_sigterm_tells_a_stream_to_stop(taken: list[Event], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ingest", "--source", "a", "--out", "o", "--trigger", "1s"]) == ExitCode.OK
    assert not taken[0].is_set()
    os.kill(os.getpid(), signal.SIGTERM)
    assert taken[0].wait(60)
    assert capsys.readouterr().out == "ingest: 3 read: 1 kept, 1 duplicates, 1 malformed; 4 lost by proxies\n"


def test_an_ingest_of_all_there_is_that_is_told_to_stop_has_failed(
    taken: list[Event], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = Event()
    stop.set()
    monkeypatch.setattr(ingest, "set_by_sigterm", lambda: stop)
    assert cli.main(["ingest", "--source", "a", "--out", "o"]) == ExitCode.FAILED
    assert "told to stop before all was read: run again" in capsys.readouterr().err


def test_no_more_may_be_quarantined_than_is_allowed() -> None:
    counts = IngestCounts(3, 1, 1, {"malformed": 1})
    counts.refuse_more_than(parsed("--source", "a", "--fail-if-quarantined", "34").most_quarantined)
    for percent in ("0", "33"):
        with pytest.raises(PipelineError, match=r"got 33\.3 % of 3 rows that are no events \(1 malformed\)") as error:
            counts.refuse_more_than(parsed("--source", "a", "--fail-if-quarantined", percent).most_quarantined)
        assert error.value.code == ExitCode.QUARANTINED


@pytest.mark.parametrize("percent", ["-1", "100", "nan"])
def test_share_that_is_none_is_refused(percent: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ingest", "--source", "a", "--out", "o", f"--fail-if-quarantined={percent}"]) == ExitCode.USAGE
    assert "--fail-if-quarantined: got" in capsys.readouterr().err


def test_what_a_user_can_mend_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(said: str) -> Callable[[argparse.Namespace], int]:
        def fail(options: argparse.Namespace) -> int:
            raise RuntimeError(f"[{said}] Encountered error")

        return fail

    s3a = "org.apache.hadoop.fs.s3a.S3AFileSystem"
    for said, out, code, told in (
        ("FAILED_READ_FILE.FILE_NOT_EXIST", "o", ExitCode.FAILED, "a file was deleted while it was read: run again"),
        ('No FileSystem for scheme "foo" at x', "foo://a", ExitCode.USAGE,
         "got a URI that begins with foo:, expected a directory"),
        (f"java.lang.ClassNotFoundException: Class {s3a} not found", "s3a://a", ExitCode.FAILED,
         f"found no {s3a}, expected the jar"),
        ("java.io.IOException: No space left on device", "o", ExitCode.FAILED,
         "no space left on a disk, expected some for --out"),
        ("java.io.FileNotFoundException: /log/a.jsonl.gz (Permission denied)", "o", ExitCode.USAGE,
         "got no permission for /log/a.jsonl.gz, expected to read --source"),
    ):  # fmt: skip
        monkeypatch.setattr(compact, "run", failing(said))
        assert cli.main(["compact", "--out", out]) == code
        assert told in capsys.readouterr().err
    monkeypatch.setattr(compact, "run", failing("SOMETHING_ELSE"))
    with pytest.raises(RuntimeError):
        cli.main(["compact", "--out", "o"])
