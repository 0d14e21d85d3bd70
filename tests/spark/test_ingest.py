"""What a batch takes, what it sets aside, and that the counts add up."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eventlog.schema import SCHEMA_VERSION
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.tables.events import QUARANTINE
from pipeline.ingest import IngestSettings, ingest
from pipeline.store.sinks import read_table
from tests.spark.ingesting import Ingest
from tests.support.pipeline.event_lines import event, text, write_events


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Ingest:
    return Ingest(spark, tmp_path)


def test_events_of_every_version_are_kept_beside_each_other(job: Ingest) -> None:
    fixtures = Path(__file__).parents[1] / "fixtures"
    first, second = ((fixtures / f"events-v{version}.jsonl").read_text() for version in (1, 2))
    (job.source / "a.jsonl").write_text(first)
    old = job.run().kept
    assert old == first.count("\n")
    # The newer proxy is another one, so that its numbers are other events.
    (job.source / "b.jsonl").write_text(second.replace('"proxy-0"', '"proxy-1"'))
    assert job.run().kept == 3
    rows = job.events().where("kind = 'throttle'").select("throttle_action", "throttle_topic").orderBy("seq").collect()
    assert [tuple(row) for row in rows] == [("pause", None), ("activate", "persistent://acme/orders/new-partition-3")]
    assert job.events().where("throttle_by IS NULL").count() == old + 1


WRONG = {
    "no json": ("malformed", None),
    "[" + json.dumps(event(1)) + "]": ("malformed", None),
    json.dumps(event(1)) + json.dumps(event(2)): ("malformed", None),
    json.dumps(event(1)) + '},{"a":' + json.dumps(event(2)): ("malformed", None),
    json.dumps(event(1)).replace('"', "'"): ("malformed", None),
    json.dumps(event(1, schema_version=SCHEMA_VERSION + 1, kind="unheard of")): ("future_version", None),
    json.dumps(event(1) | {"seq": "7"}): ("wrong_type", "seq"),
    json.dumps(event(1, topic_count=2**31)): ("wrong_type", None),
    json.dumps(event(1, proxy_id=None, total_us=None)): ("missing_field", "proxy_id, total_us"),
    json.dumps(event(1, upstream_us=-1, kind="none")): ("bad_value", "kind, upstream_us"),
    json.dumps(event(1, total_us=2**46, direct_bytes=2**63 - 1)): ("bad_value", "direct_bytes, total_us"),
}


def test_what_is_no_event_is_set_aside_with_its_reason(job: Ingest) -> None:
    lines = "".join(line + "\n" for line in WRONG)
    (job.source / "a.jsonl").write_text(text([event(0)]) + lines + "\n" + "no json\n")
    counts = job.run()
    assert (counts.read, counts.kept, counts.duplicates) == (len(WRONG) + 2, 1, 0)
    assert sum(counts.quarantined.values()) == len(WRONG) + 1
    rows = read_table(job.spark, job.common, QUARANTINE).collect()
    found = {row.raw: (row.reason, row.detail) for row in rows}
    assert found == WRONG
    assert [row.copies for row in rows if row.raw == "no json"] == [2]
    assert {row.source for row in rows} == {str(job.source / "a.jsonl")}


def test_line_beyond_all_memory_is_set_aside_by_its_beginning(job: Ingest) -> None:
    most = 16 * 1024 * 1024
    content = f"{text([event(0)])}{'x' * (most + 1)}\n{text([event(1)])}".encode()
    (job.source / "a.jsonl.gz").write_bytes(gzip.compress(content, 1))
    # As a crash can leave one: the file begins with zeros, which are no text.
    (job.source / "b.jsonl").write_bytes(b"\0" * (most + 1) + f"\n{text([event(2)])}".encode())
    assert (job.run().quarantined, job.seqs()) == ({"malformed": 2}, [0, 1, 2])
    found = {(row.detail, row.digest) for row in read_table(job.spark, job.common, QUARANTINE).collect()}
    assert found == {("too_long", hashlib.sha256(byte * most).hexdigest()) for byte in (b"x", b"\0")}


def test_twice_the_same_input_changes_nothing(job: Ingest) -> None:
    write_events(job.source / "a.jsonl.gz", [event(seq) for seq in range(5)])
    (job.source / "b.jsonl").write_text("no json\nno json\n" + text([event(3), event(9)]))
    first = job.run()
    assert (first.read, first.kept, first.duplicates, first.quarantined) == (9, 6, 1, {"malformed": 2})
    files = sorted(Path(job.common.out).rglob("*.parquet"))
    again = job.run()
    assert (again.read, again.kept, again.duplicates, again.quarantined) == (9, 0, 7, {"malformed": 2})
    assert sorted(Path(job.common.out).rglob("*.parquet")) == files
    assert job.seqs() == [0, 1, 2, 3, 4, 9]
    assert job.quarantine() == [("malformed", None, 2)]


def test_of_copies_that_stays_which_knows_of_most_lost_events(job: Ingest) -> None:
    write_events(job.source / "a.jsonl", [event(0), event(9, dropped_before=3)])
    write_events(job.source / "b.jsonl", [event(0, dropped_before=1), event(9, dropped_before=8)])
    write_events(job.source / "c.jsonl", [event(9)])
    assert job.run().lost == 9
    assert sorted(row.dropped_before for row in job.events().collect()) == [1, 8]


def test_file_that_ends_in_the_middle_loses_only_what_is_after(job: Ingest, capsys: pytest.CaptureFixture[str]) -> None:
    members = [gzip.compress(text(event(seq) for seq in range(at, at + 50)).encode(), 1) for at in (0, 50)]
    # The name of a proxy is quoted in the name of its files.
    (job.source / "host%3A1 +.jsonl.gz").write_bytes(b"".join(members)[:-20])
    (job.source / "host%3A2 +.jsonl").write_text("no json\n")
    write_events(job.source / "whole.jsonl.gz", [event(seq) for seq in range(200, 210)])
    (job.source / "none.jsonl.gz").write_bytes(
        b"this is not gzip\n" + text(event(seq) for seq in range(300, 303)).encode()
    )
    (job.source / "noise.jsonl.gz").write_bytes(b"\0 noise")
    counts = job.run()
    assert counts.quarantined == {"truncated": 2, "malformed": 2}
    said = capsys.readouterr().err
    assert said.startswith("warning: ")
    assert "host%3A1 +.jsonl.gz, " in said
    assert "noise.jsonl.gz, " in said
    assert said.count("\n") == 1
    sources = [row.source for row in read_table(job.spark, job.common, QUARANTINE).select("source").collect()]
    damaged = {"host%3A1 +.jsonl.gz", "host%3A2 +.jsonl", "none.jsonl.gz", "noise.jsonl.gz"}
    assert {Path(source).name for source in sources} == damaged
    assert set(range(50)) | set(range(200, 210)) | set(range(300, 303)) <= set(job.seqs())
    assert counts.read == counts.kept + 4
    assert job.run().kept == 0


def test_paths_are_no_patterns(job: Ingest, tmp_path: Path) -> None:
    other = Ingest(job.spark, tmp_path / "ev[1]*{a,b}?\\x")
    write_events(tmp_path / "ev1" / "in" / "a.jsonl", [event(100)])
    names = [
        "a[1].jsonl.gz",
        "a1.jsonl",
        "a*.jsonl",
        "a{1,2}.jsonl",
        "a?.jsonl",
        "a\\1.jsonl",
        "a:1.jsonl",
        "b:1.jsonl.gz",
    ]
    for seq, name in enumerate(names):
        write_events(other.source / name, [event(seq)])
    counts = other.run()
    assert (counts.read, counts.kept, other.seqs()) == (len(names), len(names), list(range(len(names))))
    again = other.run("once")
    assert (again.read, again.duplicates) == (len(names), len(names))


def test_unfinished_files_are_left_alone(job: Ingest) -> None:
    write_events(job.source / "a.jsonl.gz", [event(0)])
    write_events(job.source / ".b.jsonl.gz", [event(1)])
    write_events(job.source / "c.jsonl.gz.open", [event(2)])
    assert job.run().read == 1


def test_input_that_makes_no_sense_is_one_error(job: Ingest) -> None:
    with pytest.raises(PipelineError, match=r"found no event files, expected \*\.jsonl\.gz"):
        job.run()
    (job.source / "empty.jsonl").write_text("\n\n")
    with pytest.raises(PipelineError, match="got 0 lines and no event"):
        job.run()
    (job.source / "b.jsonl").write_text('{"level": "info"}\n' * 3)
    with pytest.raises(PipelineError, match=r"got 3 lines and no event among them \(3 missing_field\)") as caught:
        job.run()
    assert caught.value.code == ExitCode.USAGE
    assert [(reason, copies) for reason, _, copies in job.quarantine()] == [("missing_field", 3)]
    job.spark.range(3).write.parquet(str(job.source / "c"))
    with pytest.raises(PipelineError, match="expected the fields of events"):
        job.run()
    with pytest.raises(PipelineError, match="found nothing there"):
        ingest(job.spark, IngestSettings(job.common, str(job.source / "none")))
    with pytest.raises(PipelineError, match="found no table `events`"):
        job.events()


def test_unknown_fields_braces_in_texts_and_blanks_around_are_no_fault(job: Ingest) -> None:
    unlimited = event(1, client_version="}{", memory_limit_bytes=2**63 - 4096)
    write_events(job.source / "a.jsonl", [event(0, of_tomorrow={"a": [1]}), unlimited])
    accents = json.dumps(event(2, client_version="\u00e9\u00e9"), ensure_ascii=False)
    (job.source / "b.jsonl").write_text(f" {accents}  \n   \n{json.dumps(event(3))}\t\n", encoding="utf-8")
    assert job.run().kept == 4


def test_parquet_of_events_is_taken_as_well(job: Ingest, tmp_path: Path) -> None:
    write_events(job.source / "a.jsonl", [event(seq) for seq in range(4)])
    job.run()
    other = Ingest(job.spark, tmp_path / "other")
    job.events().drop("date", "hour").replace({2: -2}, subset=["seq"]).write.mode("overwrite").parquet(
        str(other.source)
    )
    counts = other.run()
    assert (counts.kept, counts.quarantined) == (3, {"bad_value": 1})
    assert other.quarantine() == [("bad_value", "seq", 1)]
