"""The sections about overload: who was slowed, when and why, that nobody was, and what other marks would have done."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pandas as pd

from pipeline.report.facts import Facts, Slowed
from pipeline.report.page import page_of
from pipeline.report.slowed import marks, slowed
from pipeline.report.write import sections_of
from tests.support.pipeline.report_frames import facts, overview
from tests.support.web.html_pages import Page


def page(given: Facts) -> Page:
    return Page(page_of(given, sections_of(given), datetime(2026, 1, 2, tzinfo=UTC)))


def table(given: Page, beginning: str) -> list[list[str]]:
    return next(found.rows for found in given.tables if found.caption.startswith(beginning))


def test_the_page_says_which_topic_was_slowed_how_long_how_much_and_why() -> None:
    shown = page(facts())
    (row,) = table(shown, "Topics whose rate was limited")
    assert row[1:] == [
        "did", "90 s", "2026-01-01 00:00 to 01-01 01:00", "its backlog, memory of the proxy", "83 %", "4 MiB, 4,000",
        "1 MiB, 1,000", "25 %",
    ]  # fmt: skip
    assert any("for 90 s, to 25 % of its natural rate in the mean" in text for text in shown.paragraphs)


def test_the_page_says_in_which_hours_connections_were_not_read_and_what_was_only_observed() -> None:
    shown = page(facts())
    assert table(shown, "Hours in which producers were slowed") == [
        ["2026-01-01 00:00:00", "topics", "did", "1", "90 s", "83 %", "84.5 %"],
        ["2026-01-01 00:00:00", "connections", "would have", "40", "6.67 min", "-", "86 %"],
    ]
    assert "Overload control slowed producers in 1 hour: topics limited for 90 s, summed." in shown.paragraphs
    assert any(text.startswith("In ObserveOnly it would have slowed more: connections") for text in shown.paragraphs)


def test_nobody_was_slowed_is_said_and_so_is_that_nobody_has_looked() -> None:
    nobody = slowed(replace(facts(), slowed=Slowed(pd.DataFrame(), pd.DataFrame())))
    assert nobody.sentences[0].startswith("Nobody was slowed: no event says")
    assert nobody.sheets == ()
    assert slowed(replace(facts(), slowed=None)).missing.endswith("run the job usage.")


def test_other_marks_have_a_row_each_and_a_line_in_both_charts() -> None:
    found = marks(facts(), overview())
    assert found.sheets[0].rows == (
        ("0.85 / 0.7", "5 min", "2.5 min", "50 s", "90 %", "42.5 %", "20 %"),
        ("0.95 / 0.7", "5 min", "2.5 min", "0 µs", "90 %", "47.5 %", "20 %"),
    )
    assert [chart.name for chart in found.charts] == ["marks-pressure", "marks-allowed-share"]
    for chart in found.charts:
        assert {"0.85 / 0.7", "0.95 / 0.7"} <= set(json.dumps(chart.spec["datasets"]).split('"'))


def test_without_other_marks_the_section_names_the_options_that_bring_them() -> None:
    assert "--overload-high" in marks(replace(facts(), marks=pd.DataFrame()), overview()).missing
