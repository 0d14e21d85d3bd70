"""The whole way: a storm through the real proxy, its events in files and in a topic, the jobs, and one page.

What the page and the tables say is what the proxy itself counted (its /metrics) and what the clients saw.
"""

from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from eventlog.topic_admin import topic_name
from pipeline.core.options import CommonSettings
from pipeline.core.tables import TABLES
from pipeline.ingest.settings import IngestSettings
from pipeline.ingest.stream import follow
from pipeline.ingest.write import IngestCounts
from pipeline.jobs.storms import StormSettings, find_storms
from pipeline.jobs.usage import UsageSettings, make_usage
from pipeline.report.write import ReportSettings, write_report
from pipeline.sources.pulsar import PulsarSettings
from pipeline.store.tables import read_table
from tests.pulsar.admin import Admin
from tests.pulsar.recorded_storm import Seen, record
from tests.pulsar.slow_machine import was_too_slow
from tests.pulsar.standalone import Broker
from tests.support.web.html_pages import Page
from tests.support.web.web_pages import Scrape

# A JVM starts within, on a machine that may have much else to do.
pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(600)]

# Each list outcome of the metrics, and the columns of `usage` that tell it apart.
KINDS: Final = {
    "answered": ("answered",),
    "refused_heap": ("timeout_heap", "timeout_heap_update", "queue_full_heap"),
    "refused_direct": ("timeout_direct", "queue_full_direct"),
    "timed_out": ("timeout_other",),
    "failed": ("oversize", "upstream_error", "failed"),
    "cancelled": ("cancelled",),
}


def test_report_of_a_recorded_storm_says_what_the_proxy_counted(
    broker: Broker,
    admin: Admin,
    namespace: str,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    topic = PulsarSettings(broker.service_url, f"persistent://{namespace}-events/log", broker.admin_url)
    admin.create_namespace(f"{namespace}-events")
    admin.keep_messages(f"{namespace}-events")
    admin.create_topic(topic.topic, 2)
    # Who asks first has the broker load the topic, for which neither the proxy nor a job would wait long enough.
    admin.call("GET", f"{topic_name(topic.topic).path}/partitioned-internalStats")
    events = {"eventLogDirectory": str(tmp_path / "events"), "eventLogTopic": topic.topic}
    seen = record(tmp_path, broker, admin, namespace, events)
    must_be_whole(seen)

    common = CommonSettings(str(tmp_path / "tables"), None, {})
    files = IngestSettings(common, events["eventLogDirectory"], str(tmp_path / "checkpoint-of-files"))
    from_files = followed(spark, files)
    of_topic = replace(files, source=topic.topic, checkpoint=str(tmp_path / "checkpoint-of-topic"), topic=topic)
    from_topic = followed(spark, of_topic)
    assert told(from_files) == (seen.asked, seen.asked, 0, {}, 0)
    assert told(from_topic) == (seen.asked, 0, seen.asked, {}, 0)

    page = run_jobs(spark, common, tmp_path / "report.html")
    events_must_agree(read_table(spark, common, TABLES["events"]), seen.metrics)
    tables_must_agree(spark, common, seen)
    page_must_agree(page, seen)


def followed(spark: SparkSession, settings: IngestSettings) -> IngestCounts:
    """Ingest what there is, with as many starts as a slow machine takes."""
    while True:
        try:
            return follow(spark, settings, print, Event())
        except PySparkException as error:
            if not was_too_slow(str(error)):
                raise


def must_be_whole(seen: Seen) -> None:
    """Check that the storm had some of everything, and that the proxy counted what its clients saw."""
    metrics = seen.metrics
    endings = {kind: metrics("lists_answers_total", outcome=kind) for kind in KINDS}
    assert metrics("get_topics_of_namespace_requests_total") == sum(endings.values()) == seen.asked
    assert (endings["answered"], endings["cancelled"]) == (seen.answered, 1)
    assert seen.refused == seen.asked - seen.answered - 1
    assert all(endings[kind] > 0 for kind in ("answered", "refused_heap", "refused_direct", "failed"))
    assert metrics("lists_joined_total") > 0
    for sink in ("files", "topic"):
        assert metrics("event_log_dropped_total", sink=sink) == 0
    assert metrics("event_log_topic_keeps") == 1


def told(counts: IngestCounts) -> tuple[int, int, int, dict[str, int], int]:
    return counts.read, counts.kept, counts.duplicates, dict(counts.quarantined), counts.lost


def run_jobs(spark: SparkSession, common: CommonSettings, to: Path) -> Page:
    """Run the jobs behind `ingest` whose figures can be counted, and give the page."""
    make_usage(spark, UsageSettings(common))
    find_storms(spark, StormSettings(common))
    write_report(spark, ReportSettings(common, to))
    return Page(to.read_text("utf-8"))


def events_must_agree(events: DataFrame, metrics: Scrape) -> None:
    """Check what only single events tell: groups, each by the one event that carries its cost."""
    groups = events.where("carries_cost and group_id is not null")

    def number(condition: str) -> int:
        return groups.where(condition).count()

    # A broker that was silent for long is asked again, for the same group.
    asked = metrics("lists_questions_total") - metrics("lists_asked_again_total")
    assert number("upstream_us is not null") == asked
    for limiter, stages in (("heap", "'heap', 'heap_update'"), ("direct", "'direct'")):
        at_it = f"outcome_stage in ({stages})"
        assert number(f"outcome = 'timeout' and {at_it}") == metrics(f"topic_list_{limiter}_timeout_total")
        assert number(f"outcome = 'queue_full' and {at_it}") == metrics("lists_queue_full_total", limiter=limiter)
    # A name has a tag and a length of one or two bytes; the flags of an answer are at most 14 bytes.
    at_least, at_most = groups.agg(
        F.sum(F.col("name_bytes") + 2 * F.col("topic_count")),
        F.sum(F.col("name_bytes") + 3 * F.col("topic_count") + 14),
    ).collect()[0]
    assert at_least <= metrics("lists_answer_bytes_total") <= at_most


def tables_must_agree(spark: SparkSession, common: CommonSettings, seen: Seen) -> None:
    def rows(name: str) -> list[Any]:
        return read_table(spark, common, TABLES[name]).collect()

    def total(name: str, column: str) -> int:
        return sum(row[column] for row in rows(name))

    assert total("usage", "requests") == seen.asked
    for outcome, columns in KINDS.items():
        counted = sum(total("usage", column) for column in columns)
        assert counted == seen.metrics("lists_answers_total", outcome=outcome), outcome
    assert total("usage", "refused") == seen.refused
    assert total("usage", "response_bytes") == seen.frame_bytes
    for name in ("usage", "sharing"):
        assert total(name, "coalesced") == seen.metrics("lists_joined_total")
    assert total("sharing", "requests") == seen.asked
    assert total("arrivals", "requests") == seen.asked
    of_tenant = [row for row in rows("top_costs") if row["hour_start"] is None and row["dimension"] == "tenant"]
    for measure, expected in (
        ("requests", seen.asked),
        ("refused", seen.refused),
        ("response_bytes", seen.frame_bytes),
    ):
        assert sum(row["value"] for row in of_tenant if row["measure"] == measure) == expected


def page_must_agree(page: Page, seen: Seen) -> None:
    tables = {table.caption: table.rows for table in page.tables}
    figures = {row[0]: row[1] for row in tables["What the figures rest on"]}
    assert whole(figures["requests"]) == seen.asked
    assert (figures["proxies"], figures["events lost before they were written"]) == ("1", "0")
    assert not any(name.startswith("set aside") for name in figures)
    reasons = {row[0]: whole(row[1]) for row in tables["Requests that were not answered"]}
    assert sum(reasons.values()) == seen.asked - seen.answered
    for outcome in ("refused_heap", "refused_direct"):
        stages = (outcome.removeprefix("refused_"), f"{outcome.removeprefix('refused_')} update")
        ways = [f"{way} in {stage}" for way in ("timeout", "queue full") for stage in stages]
        assert sum(reasons.get(way, 0) for way in ways) == seen.metrics("lists_answers_total", outcome=outcome)
    shared = whole_number(seen.metrics("lists_joined_total"))
    text = f"{shared} of {whole_number(seen.asked)} requests shared the answer of another"
    assert any(paragraph.startswith(text) for paragraph in page.paragraphs), page.paragraphs


def whole(text: str) -> int:
    return int(text.replace(",", ""))


def whole_number(number: float) -> str:
    return f"{number:,.0f}"
