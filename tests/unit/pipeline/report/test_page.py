"""The report as HTML: whole, readable without scripts, harmless whatever clients call their namespaces, and alone."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from typing import Any

import pandas as pd
import pytest
import vl_convert

from pipeline.report.clock import Clock
from pipeline.report.facts import Facts
from pipeline.report.page import VEGALITE_VERSION, page_of
from pipeline.report.write import sections_of
from tests.support.pipeline.report_frames import BEGIN_US, HOSTILE, facts, only_events, overview
from tests.support.web.html_pages import Page

MADE_AT = datetime(2026, 1, 2, tzinfo=UTC)
TITLES = [
    "Summary", "Advice", "Demand and limits", "Waits", "Refusals", "Storms", "Who costs how much", "Sharing",
    "Who was slowed", "Did earlier advice hold", "What if", "Other marks", "Calibration", "Data quality",
]  # fmt: skip


def text_of(given: Facts) -> str:
    return page_of(given, sections_of(given), MADE_AT)


@pytest.fixture(scope="module")
def text() -> str:
    return text_of(facts())


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


@pytest.fixture(scope="module")
def bare() -> Page:
    return Page(text_of(only_events()))


def specs(page: Page) -> dict[str, dict[str, object]]:
    return {given["data-chart"]: json.loads(text) for given, text in page.scripts if given.get("data-chart")}


def table(page: Page, beginning: str) -> list[list[str]]:
    return next(found.rows for found in page.tables if found.caption.startswith(beginning))


def test_the_page_has_every_section_in_order(page: Page) -> None:
    assert [text for tag, text in page.headings if tag == "h2"] == TITLES
    assert [tag for tag, _ in page.headings].count("h1") == 1


def test_a_page_without_other_jobs_has_the_same_sections_and_says_what_is_missing(bare: Page) -> None:
    assert [text for tag, text in bare.headings if tag == "h2"] == TITLES
    missing = [text for text in bare.paragraphs if "run the job" in text or "No advice" in text]
    assert [word for word in ("usage", "storms", "whatif", "advise") if any(word in text for text in missing)] == [
        "usage", "storms", "whatif", "advise",
    ]  # fmt: skip


def test_the_key_numbers_come_first(text: str) -> None:
    tiles = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text))
    assert tiles["requests"] == f"{overview().requests:,}"
    assert len(tiles) == 5
    assert "" not in tiles.values()
    assert text.index("<dl") < text.index("What happened")


def test_the_page_loads_nothing(text: str, page: Page) -> None:
    assert [found for found in page.references if not found.startswith(("#", "data:"))] == []
    assert "default-src 'none'" in text
    assert page.elements.isdisjoint({"iframe", "object", "embed", "form", "base", "img"})
    assert not any(word in style for style in page.styles for word in ("url(", "@import"))
    assert len(page.ids) == len(set(page.ids))
    assert {found[1:] for found in page.references if found.startswith("#")} <= set(page.ids)


def test_a_hostile_namespace_stays_text(text: str, page: Page) -> None:
    assert "<script>alert" not in text
    assert page.handlers == []
    assert any(HOSTILE in paragraph for paragraph in page.paragraphs)
    assert any(HOSTILE in cell for found in page.tables for row in found.rows for cell in row)
    assert HOSTILE in json.dumps(specs(page)["cost-namespace"], ensure_ascii=False).replace('\\"', '"')


def test_each_chart_has_a_text_a_picture_without_scripts_and_the_runtime_is_there_once(page: Page) -> None:
    charts = specs(page)
    assert len(charts) == page.pictures >= 10
    # Once for the drawing and once for the picture.
    assert len(page.labels) == 2 * len(charts)
    assert all(page.labels)
    assert len([text for given, text in page.scripts if "vegaEmbed" in text and len(text) > 100_000]) == 1


def test_every_chart_can_be_drawn(page: Page) -> None:
    for name, spec in specs(page).items():
        datasets = spec["datasets"]
        assert isinstance(datasets, dict)
        assert sum(map(len, datasets.values())) <= 5000, "no more points than can be seen"
        drawn = vl_convert.vegalite_to_svg(json.dumps(spec), vl_version=VEGALITE_VERSION)
        assert drawn.count("<path") > 3, name


def test_the_summary_says_what_happened_who_caused_it_and_what_to_set(page: Page) -> None:
    summary = page.paragraphs[1:6]
    assert summary[0] == (
        "What happened: 1,200 requests for topic lists of 20 namespaces came to 2 proxies; 20 (1.7 %) were not "
        "answered; 99 % of the answered ones waited at most about 1.5 s for memory."
    )
    assert "1,100 requests of 275 connections within 1 s" in summary[1]
    assert "the tenant evil (70 %)" in summary[2]
    assert "heap memory. In use and waited for together came to 2.5 times the limit" in summary[3]
    assert "for 10 x the recorded load: 16 MiB of heap (now 8 MiB)" in summary[4]


def test_tables_hold_the_figures_without_scripts(page: Page) -> None:
    assert table(page, "Waits of answered requests") == [["1,180", "1 ms", "1 s", "1.5 s", "2 s"]]
    assert table(page, "Requests that were not answered") == [["timeout in heap", "20", "1.7 %"]]
    assert ["set aside: malformed", "3"] in table(page, "What the figures rest on")
    assert ["events lost before they were written", "7"] in table(page, "What the figures rest on")
    assert table(page, "The best points")[-1][1:3] == ["16 MiB", "4 MiB"]
    assert table(page, "Recorded / simulated")[0][:4] == ["all", "1,180 / 1,180", "20 / 20", "0 / 0"]


def test_the_fragment_of_proxy_conf_can_be_copied(page: Page) -> None:
    assert page.preformatted == ["# why\nmaxTopicListInFlightHeapMemSizeMB=16"]


def test_no_limit_that_holds_is_said_and_not_dressed_up_as_advice() -> None:
    given = facts()
    none = given.advice.assign(chosen=False, best=False, holds=False)
    page = Page(text_of(replace(given, advice=none)))
    assert any(text.startswith("No limits of the grid hold the target") for text in page.paragraphs)
    assert any(text.startswith("What to set: none of the limits") for text in page.paragraphs)
    assert page.preformatted == []


def rows_of(page: Page, chart: str, column: str) -> list[dict[str, Any]]:
    """Give the rows of a chart's data that have a column, in the order of time."""
    datasets = specs(page)[chart]["datasets"]
    assert isinstance(datasets, dict)
    return sorted((row for rows in datasets.values() for row in rows if column in row), key=lambda row: row["at_ms"])


def test_no_line_goes_through_times_without_requests(page: Page) -> None:
    # There were requests in the bins 0, 1 and 5.
    full = rows_of(page, "fullness", "share")
    assert [(row["share"], row["run"]) for row in full] == [(0.5, 1), (1.0, 1), (0.25, 2)]
    for name in ("fullness", "waits-over-time"):
        spec = specs(page)[name]
        assert spec["encoding"]["detail"]["field"] == "run"  # type: ignore[index]
        assert "interpolate" not in spec["mark"]  # type: ignore[operator]


def test_arrivals_are_shown_by_the_second_however_long_a_bin_is() -> None:
    fine = replace(overview(), clock=Clock(BEGIN_US, 500_000, 20))
    rates = rows_of(Page(text_of(replace(facts(), overview=fine))), "storm-timeline", "rate")
    assert [row["rate"] for row in rates[:3]] == [1200.0, 1200.0, 0.0]


def test_proxies_that_are_not_shown_count_in_the_error() -> None:
    given = facts()
    good = given.calibration.assign(outcome_error=0.0)
    bad = [good.tail(1).assign(proxy_id=f"q-{number:03}", outcome_error=1.0) for number in range(99)]
    page = Page(text_of(replace(given, calibration=pd.concat([good, *bad]))))
    shown = table(page, "Recorded / simulated")
    assert len(shown) == 50
    assert shown[0][-2] == "99 %"


def test_earlier_advice_is_judged_by_the_days_on_which_it_was_in_force(page: Page) -> None:
    said = " ".join(page.paragraphs)
    assert "2 times there was advice; 1 of these were in force on some day." in said
    assert (
        "The latest of them, of 2026-01-01 02:00, did not hold: 0.5 % of 1,000 requests were refused on 2 days" in said
    )
    rows = table(page, "Earlier advice")
    assert [row[-1] for row in rows] == ["was not in force", "did not hold"]


def test_filters_offer_what_was_named_and_all_others_as_one(text: str, page: Page) -> None:
    offered = re.findall(r'<option value="(-?\d+)">(.*?)</option>', text)
    assert [(number, unescape(name)) for number, name in offered] == [
        ("-1", "all namespaces"), ("0", HOSTILE), ("1", "t/b"), ("2", "all other namespaces"),
        ("-1", "all proxies"), ("0", "p-1"),
    ]  # fmt: skip
    assert re.findall(r'<label for="(.*?)">', text) == re.findall(r'<select id="(.*?)"', text)
    (data,) = [json.loads(text) for given, text in page.scripts if given.get("id") == "choices"]
    assert data["cells"]["0 -1"]["endings"] == {"ok": [[0], [30]], "timeout in heap": [[0], [5]]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda given: {"advice": pd.DataFrame(), "fragment": None, "no_advice": "no advice: the error is 0.5"},
            "No advice was given: the error is 0.5.",
        ),
        (
            lambda given: {"calibration": given.calibration.assign(late_p50_us=2e4, late_p99_us=4e5)},
            "The machine was late: by 20 ms in the median, and by 400 ms",
        ),
        (
            lambda given: {"calibration": given.calibration.assign(recorded_refused=43, simulated_refused=24)},
            "Under the recorded limits 43 requests were refused, 24 in the replay: it missed 19.",
        ),
        (
            lambda given: {"advices": given.advices.assign(cluster=pd.Series(["east", None]))},
            "2 times there was advice",
        ),
        (
            lambda given: {"advice": given.advice.assign(watch_direct_bytes=3 * 2**20, extrapolated="load")},
            "3 MiB of the direct memory of each proxy are for watchers",
        ),
        (lambda given: {"period": "the beginning to the end of the cluster west"}, "of the cluster west"),
        (lambda given: {"storm_count": 1057}, "1,057 storms were found"),
        (lambda given: {"overview": replace(overview(), limits_differ=True)}, "Other proxies had other limits"),
        (
            lambda given: {
                "overview": replace(overview(), answered=1200),
                "endings": pd.DataFrame({"bin": [0], "reason": ["ok"], "requests": [1200]}),
            },
            "Every one of the 1,200 requests was answered.",
        ),
    ],
)
def test_what_is_special_is_said(change: Callable[[Facts], dict[str, Any]], said: str) -> None:
    sections = sections_of(replace(facts(), **change(facts())))
    assert said in " ".join(sentence for section in sections for sentence in (*section.sentences, section.missing))
