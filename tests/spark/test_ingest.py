"""What an ingest takes, what it sets aside, and that each event is there once, whatever comes again."""

import gzip
import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from eventlog.schema import SCHEMA_VERSION
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.tables.events import EVENTS, QUARANTINE
from pipeline.ingest.write import IngestCounts, write
from pipeline.store.tables import read_table
from pipeline.transforms.events import from_lines
from tests.spark.ingesting import Ingest
from tests.support.pipeline.event_lines import HOUR_US, T0_US, event, text, write_events
from tests.support.pipeline.usage_events import event as row
from tests.support.pipeline.usage_events import frame

FIXTURES = Path(__file__).parents[1] / "fixtures"
WRONG = {
    "no json": ("malformed", None),
    "[" + json.dumps(event(1)) + "]": ("malformed", None),
    json.dumps(event(1)) + json.dumps(event(2)): ("malformed", None),
    json.dumps(event(1)) + '},{"a":' + json.dumps(event(2)): ("malformed", None),
    json.dumps(event(1)).replace('"', "'"): ("malformed", None),
    json.dumps(event(1, schema_version=SCHEMA_VERSION + 1, kind="unheard of")): ("future_version", None),
    json.dumps(event(1, schema_version=2)): ("past_version", None),
    json.dumps(event(1) | {"seq": "7"}): ("wrong_type", "seq"),
    json.dumps(event(1, topic_count=2**31)): ("wrong_type", None),
    json.dumps(event(1, proxy_id=None, total_us=None)): ("missing_field", "proxy_id, total_us"),
    json.dumps(event(1, upstream_us=-1, kind="none")): ("bad_value", "kind, upstream_us"),
    json.dumps(event(1, total_us=2**46, direct_bytes=2**63 - 1)): ("bad_value", "direct_bytes, total_us"),
    "x" * (2 << 20): ("malformed", "too_long"),
}


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Ingest:
    return Ingest(spark, tmp_path)


def aged(path: Path, second: int) -> Path:
    """Give a file its place in the order in which a stream takes files."""
    os.utime(path, (second, second))
    return path


def test_what_is_no_event_is_set_aside_with_its_reason(job: Ingest) -> None:
    lines = "".join(line + "\n" for line in WRONG)
    (job.source / "a.jsonl").write_text(text([event(0)]) + lines + "\n" + "no json\n")
    counts = job.run()
    assert (counts.read, counts.kept, counts.duplicates) == (len(WRONG) + 2, 1, 0)
    assert sum(counts.quarantined.values()) == len(WRONG) + 1
    assert str(counts).endswith(f"which knows events up to version {SCHEMA_VERSION}: upgrade it")
    rows = read_table(job.spark, job.common, QUARANTINE).collect()
    assert {row.raw: (row.reason, row.detail) for row in rows} == {line[:65_536]: why for line, why in WRONG.items()}
    assert [row.copies for row in rows if row.raw == "no json"] == [2]
    assert {row.source for row in rows} == {str(job.source / "a.jsonl")}


def test_files_are_taken_once_and_what_they_share_is_there_once(job: Ingest) -> None:
    for number in range(3):
        lines = [event(seq, ts_us=T0_US + seq * HOUR_US // 4) for seq in range(number * 4, number * 4 + 6)]
        aged(write_events(job.source / f"{number}.jsonl.gz", lines), number + 1)
    (job.source / "3.jsonl").write_text("no json\nno json\n" + json.dumps(event(1, kind="none")) + "\n")
    counts = job.run(max_files=2)
    assert (counts.read, counts.kept, counts.duplicates) == (21, 14, 4)
    assert counts.quarantined == {"malformed": 2, "bad_value": 1}
    assert job.seqs() == list(range(14))
    assert [line.split(":")[0] for line in job.lines] == ["batch 0", "batch 1"]
    assert job.run() == IngestCounts()


def test_files_that_are_read_again_add_nothing(job: Ingest) -> None:
    write_events(job.source / "a.jsonl.gz", [event(seq) for seq in range(5)])
    (job.source / "b.jsonl").write_text("no json\nno json\n" + text([event(3), event(9)]))
    job.run()
    job.checkpoint = job.checkpoint.with_name("another")
    counts = job.run()
    assert (counts.read, counts.kept, counts.duplicates, counts.quarantined) == (9, 0, 7, {"malformed": 2})
    assert job.seqs() == [0, 1, 2, 3, 4, 9]
    assert job.quarantine() == [("malformed", None, 2)]


def test_batch_that_comes_again_is_known(job: Ingest) -> None:
    aged(write_events(job.source / "a.jsonl", [event(0)]), 1)
    job.run()
    aged(write_events(job.source / "b.jsonl", [event(1), event(0)]), 2)
    (job.source / "c.jsonl").write_text("no json\n")
    assert job.run().kept == 1
    # As after a crash between the batch and Spark's note that it is done.
    for name in ("1", ".1.crc"):
        (job.checkpoint / "commits" / name).unlink()
    again = job.run()
    assert (again.kept, again.duplicates, again.quarantined) == (0, 2, {"malformed": 1})
    assert (job.seqs(), len(job.quarantine())) == ([0, 1], 1)


def test_more_that_is_no_event_than_is_allowed_fails_again_on_a_retry(job: Ingest) -> None:
    write_events(job.source / "a.jsonl", [event(0), event(1)])
    (job.source / "b.jsonl").write_text("no json\n")
    for _ in range(2):
        with pytest.raises(PipelineError, match=r"got 33\.3 % of 3 rows that are no events") as error:
            job.run(most_quarantined=33)
        assert error.value.code == ExitCode.QUARANTINED
    assert (job.seqs(), job.run(most_quarantined=34).read, job.run()) == ([0, 1], 3, IngestCounts())
    assert job.quarantine() == [("malformed", None, 1)]


def test_two_writers_with_the_same_events_keep_each_once(job: Ingest) -> None:
    places = [Ingest(job.spark.newSession(), job.source / name, Path(job.common.out)) for name in "abc"]
    for number, each in enumerate(places):
        write_events(each.source / "a.jsonl", [event(seq) for seq in range(40)])
        write_events(each.source / "b.jsonl", [event(100 + number)])
    with ThreadPoolExecutor(len(places)) as pool:
        counts = list(pool.map(Ingest.run, places))
    assert sum(each.kept for each in counts) == 43
    assert job.seqs() == [*range(40), 100, 101, 102]


def test_a_writer_that_was_killed_before_its_first_commit_stops_no_other(job: Ingest) -> None:
    write_events(job.source / "a.jsonl", [event(0)])
    (Path(job.common.out) / EVENTS.name / "_delta_log").mkdir(parents=True)
    assert job.run().kept == 1


def test_of_copies_that_stays_which_knows_of_most_lost_events(job: Ingest) -> None:
    write_events(job.source / "a.jsonl", [event(0), event(9, dropped_before=3)])
    write_events(job.source / "b.jsonl", [event(0, dropped_before=1), event(9, dropped_before=8)])
    write_events(job.source / "c.jsonl", [event(9)])
    assert job.run().lost == 9
    assert sorted(row.dropped_before for row in job.events().collect()) == [1, 8]


def test_damaged_files_are_read_up_to_the_damage(job: Ingest) -> None:
    members = [gzip.compress(text(event(seq) for seq in range(at, at + 50)).encode(), 1) for at in (0, 50)]
    # The name of a proxy is quoted in the name of its files.
    (job.source / "host%3A1 +.jsonl.gz").write_bytes(b"".join(members)[:-20])
    (job.source / "host%3A2 +.jsonl").write_text("no json\n" + json.dumps(event(100))[:50])
    write_events(job.source / "whole.jsonl.gz", [event(seq) for seq in range(200, 210)])
    (job.source / "none.jsonl.gz").write_bytes(b"this is not gzip\n")
    counts = job.run()
    assert counts.quarantined == {"malformed": 2}
    assert set(range(50)) | set(range(200, 210)) <= set(job.seqs())
    assert counts.read == counts.kept + 2
    sources = {row.source for row in read_table(job.spark, job.common, QUARANTINE).collect()}
    assert sources == {str(job.source / "host%3A2 +.jsonl")}


def test_paths_are_no_patterns(job: Ingest, tmp_path: Path) -> None:
    other = Ingest(job.spark, tmp_path / "ev[1]*{a,b}?\\x")
    write_events(tmp_path / "ev1" / "in" / "a.jsonl", [event(100)])
    names = ["a[1].jsonl.gz", "a1.jsonl", "a*.jsonl", "a{1,2}.jsonl", "a?.jsonl", "a\\1.jsonl"]
    for seq, name in enumerate(names):
        write_events(other.source / name, [event(seq)])
    assert (other.run().read, other.seqs()) == (len(names), list(range(len(names))))


def test_unfinished_files_are_left_alone(job: Ingest) -> None:
    write_events(job.source / "a.jsonl.gz", [event(0)])
    write_events(job.source / ".b.jsonl.gz", [event(1)])
    write_events(job.source / "c.jsonl.gz.open", [event(2)])
    assert job.run().read == 1


def test_source_without_events_is_one_error(job: Ingest) -> None:
    with pytest.raises(PipelineError, match=r"found no events, expected \*\.jsonl\.gz"):
        job.run()
    (job.source / "b.jsonl").write_text('{"level": "info"}\n' * 3)
    with pytest.raises(PipelineError, match=r"got 3 lines and no event among them \(3 missing_field\)") as caught:
        job.run()
    assert caught.value.code == ExitCode.USAGE
    assert [(reason, copies) for reason, _, copies in job.quarantine()] == [("missing_field", 3)]
    job.source.rename(job.source.with_name("moved"))
    with pytest.raises(PipelineError, match="found nothing there"):
        job.run()


def test_text_that_is_no_event_is_set_aside_once_though_it_comes_again_on_another_day(job: Ingest) -> None:
    records = from_lines(job.spark.createDataFrame([("no json", "a.jsonl")], "value string, source string"))
    for day in (1, 2):
        write(job.spark, job.common, records, datetime(2026, 1, day, tzinfo=UTC))
    assert read_table(job.spark, job.common, QUARANTINE).count() == 1


@pytest.mark.parametrize("version", [1, 2])
def test_files_of_an_older_schema_are_one_error(job: Ingest, version: int) -> None:
    (job.source / "a.jsonl").write_text((FIXTURES / f"events-v{version}.jsonl").read_text())
    with pytest.raises(PipelineError, match=r"no event among them \(\d+ past_version\), expected events of version 3"):
        job.run()


def test_files_of_a_fleet_in_which_some_proxies_are_of_0_1_0_are_read_as_one(job: Ingest) -> None:
    write_events(job.source / "events-a.jsonl.gz", [event(7), event(8)])
    lines = (FIXTURES / "events-of-0.1.0.jsonl").read_bytes()
    (job.source / "events-b.jsonl.gz").write_bytes(gzip.compress(lines))
    counts = job.run()
    assert (counts.read, counts.kept, counts.quarantined) == (4, 4, {})
    assert job.seqs() == [1, 2, 7, 8]


def test_tables_of_an_older_layout_are_one_error_and_stay(job: Ingest) -> None:
    write_events(job.source / "a.jsonl", [event(0)])
    rows = frame(job.spark, [row(0)])
    place = f"{job.common.out}/{EVENTS.name}"
    rows.write.partitionBy("date").parquet(place)
    for other in (None, rows.drop("throttle_reasons"), rows.withColumn("hour", F.lit(1))):
        if other is not None:
            writer = other.write.format("delta").partitionBy("date").mode("overwrite")
            writer.option("overwriteSchema", "true").save(place)
        before = sorted(Path(place).rglob("*"))
        with pytest.raises(PipelineError, match="wrote it; choose another --out") as caught:
            job.run()
        assert "\n" not in str(caught.value)
        assert sorted(Path(place).rglob("*")) == before
        for path in Path(place).rglob("*.parquet"):
            path.unlink()


def test_unknown_fields_braces_in_texts_and_blanks_around_are_no_fault(job: Ingest) -> None:
    unlimited = event(1, client_version="}{", memory_limit_bytes=2**63 - 4096)
    write_events(job.source / "a.jsonl", [event(0, of_tomorrow={"a": [1]}), unlimited])
    accents = json.dumps(event(2, client_version="\u00e9\u00e9"), ensure_ascii=False)
    (job.source / "b.jsonl").write_text(f" {accents}  \n   \n{json.dumps(event(3))}\t\n", encoding="utf-8")
    assert job.run().kept == 4
