"""The report as HTML: whole, without scripts, harmless whatever clients call their namespaces, and alone."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pytest

from pipeline.report.charts import RED
from pipeline.report.clock import Clock
from pipeline.report.facts import Advised, Facts, Found
from pipeline.report.page import page_of
from pipeline.report.rankings import as_json
from pipeline.report.write import sections_of
from tests.support.pipeline.report_frames import (
    BEGIN_US,
    HOSTILE,
    calibration,
    facts,
    only_events,
    overview,
    points,
    storm,
)
from tests.support.web.html_pages import Page

TITLES = [
    "Summary", "Advice", "Memory", "Waits and refusals", "Storms", "Who costs how much", "Who was slowed",
    "Data quality",
]  # fmt: skip
MOST_BYTES = 300_000


def text_of(given: Facts) -> str:
    return page_of(given, sections_of(given), "tables", datetime(2026, 1, 2, tzinfo=UTC))


@pytest.fixture(scope="module")
def text() -> str:
    return text_of(facts())


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def found(**named: Any) -> Facts:
    return replace(facts(), found=replace(facts().found, **named))


def advised(**named: Any) -> Facts:
    return replace(facts(), advised=replace(facts().advised, **named))


def table(page: Page, beginning: str) -> list[list[str]]:
    return next(found.rows for found in page.tables if found.caption.startswith(beginning))


def figure(text: str, name: str) -> str:
    (drawn,) = re.findall(rf'<figure id="{name}">.*?</figure>', text, re.DOTALL)
    return str(drawn)


def test_the_page_has_every_section_in_order(page: Page) -> None:
    assert [text for tag, text in page.headings if tag == "h2"] == TITLES
    assert [tag for tag, _ in page.headings].count("h1") == 1


def test_a_page_without_other_jobs_has_the_same_sections_and_says_what_is_missing() -> None:
    bare = Page(text_of(only_events()))
    assert [text for tag, text in bare.headings if tag == "h2"] == TITLES
    said = " ".join(bare.paragraphs)
    assert "No advice was given: the jobs whatif and advise have not run." in said
    assert said.count("run the job usage.") == 2
    assert said.count("run the job storms.") == 1


def test_the_page_is_of_a_cluster_and_a_time(text: str) -> None:
    assert "Cluster east, 2026-01-01 00:00:00 to 2026-01-01 00:00:09 UTC" in text


def test_the_page_loads_nothing_and_runs_nothing(text: str, page: Page) -> None:
    assert [found for found in page.references if not found.startswith(("#", "data:"))] == []
    assert "default-src 'none'" in text
    assert "script-src" not in text
    assert page.elements.isdisjoint({"script", "iframe", "object", "embed", "form", "base", "img"})
    assert not any(word in style for style in page.styles for word in ("url(", "@import"))
    assert len(page.ids) == len(set(page.ids))
    assert {found[1:] for found in page.references if found.startswith("#")} <= set(page.ids)


def test_a_hostile_namespace_stays_text(page: Page) -> None:
    assert page.handlers == []
    assert any(HOSTILE in paragraph for paragraph in page.paragraphs)
    assert any(HOSTILE in cell for found in page.tables for row in found.rows for cell in row)


def test_each_chart_is_one_picture_with_a_text(page: Page) -> None:
    assert page.pictures == len(page.labels) == 6
    assert all(page.labels)


def test_a_busy_page_is_small() -> None:
    clock = Clock(BEGIN_US, 1_000_000, 240)
    memory = pd.concat(
        pd.DataFrame({"bin": range(240), "at_ms": clock.begin_ms}).assign(
            kind=kind, held_mib=lambda rows: 100 / (1 + rows["bin"]), waiting_mib=7.77, limit_mib=64.0
        )
        for kind in ("heap", "direct")
    )
    waits = pd.DataFrame(
        [(each, clock.begin_ms[each], what, each / 7) for each in range(0, 240, 2) for what in ("p50", "p95", "p99")],
        columns=["bin", "at_ms", "what", "value"],
    )
    endings = pd.DataFrame(
        [(each, f"reason {number}", each * number) for each in range(240) for number in range(7)],
        columns=["bin", "reason", "requests"],
    )
    recorded = replace(facts().recorded, memory=memory, waits=waits, endings=endings)
    tried = [point | {"memory_bytes": each << 20} for each, point in enumerate(points() * 50, 1)]
    storms = [storm() | {"members": storm()["members"] * 6} for _ in range(20)]
    given = replace(advised(points=tried), found=replace(facts().found, storms=storms))
    busy = replace(given, overview=replace(overview(), clock=clock), recorded=recorded)
    assert len(text_of(busy)) < MOST_BYTES


def test_the_summary_says_what_happened_who_did_it_who_suffered_and_what_to_set(text: str, page: Page) -> None:
    assert page.paragraphs[1:9] == [
        "What happened: 1,200 requests for topic lists of 20 namespaces came to 2 proxies; 20 (1.7 %) were not "
        "answered; 99 % of all waited at most about 1.5 s for memory.",
        "The largest storm began at 2026-01-01 00:00:01: 1,100 requests of 275 connections within 1 s, the last of "
        "them served or refused after 4.5 s.",
        f"Who cost most (heap memory times how long it was held): the namespace {HOSTILE} (70 B s, 70 %).",
        f"Who waited most, summed over requests: the namespace {HOSTILE} (70 s, 70 %).",
        f"Who was refused most: the namespace {HOSTILE} (70, 70 %).",
        "Why requests waited for memory: 90 % of that waiting was for heap memory. In use and waited for together came "
        "to 2.5 times its limit, mean of 1 s.",
        "Why requests waited for memory: 10 % of that waiting was for direct memory.",
        "What to set, for 10 times the recorded load: 16 MiB of heap (now 8 MiB) and 4 MiB of direct memory (now no "
        "limit), as many proxies. The lines of proxy.conf are under Advice.",
    ]
    victims = table(page, "Who waited and who was refused most, by namespace")
    assert victims[1] == ["2", "t/b: 20 s (20 %)", "t/b: 20 (20 %)"]
    tiles = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text))
    assert tiles["requests"] == "1,200"
    assert tiles["99 % of all requests waited for memory at most"] == "about 1.5\u00a0s"


def test_a_wait_of_99_percent_is_of_all_requests_or_says_of_whom(text: str) -> None:
    of_whom = re.findall(r"(?:99 %|p99)[^.;<]*", text)
    assert len(of_whom) >= 6
    others = [said for said in of_whom if "of all" not in said and "answered" not in said]
    # The name of a line.
    assert {said.strip() for said in others} == {"p99"}


def test_tables_hold_the_figures(page: Page) -> None:
    assert table(page, "Requests that were not answered") == [["timeout in heap", "20", "1.7 %"]]
    assert ["watch frames", "3"] in table(page, "What the figures rest on")
    assert ["set aside: malformed", "3"] in table(page, "What the figures rest on")
    assert ["events lost before they were written", "7"] in table(page, "What the figures rest on")
    assert table(page, "The best limits")[-1][1:3] == ["16 MiB", "4 MiB"]
    assert table(page, "Recorded / replayed")[0][:4] == ["all", "1,180 / 1,180", "20 / 20", "0 / 0"]
    assert table(page, "The most that one proxy held")[0] == ["heap", "topic lists", "7 MiB", "8 MiB"]
    assert table(page, "Most by namespace")[0][1] == f"{HOSTILE}: 70 B s (70 %)"
    assert table(page, "Who came in each storm")[0][2] == f"{HOSTILE} (300)"


def test_limits_that_differ_are_not_shown_as_one() -> None:
    page = Page(text_of(replace(facts(), overview=replace(overview(), limits_differ=True))))
    assert {row[-1] for row in table(page, "The most that one proxy held")} == {"differs"}


def test_no_wait_is_drawn_where_all_were_refused() -> None:
    refused = points()[0] | {"refused": 1200, "wait_p99_us": 0.0}
    tried = points(), [*points(), refused]
    before, after = (figure(text_of(advised(points=each)), "trade-off").count("<path") for each in tried)
    # Its refusals are drawn.
    assert after - before == 1


def test_the_lines_of_proxy_conf_can_be_copied(page: Page) -> None:
    assert page.preformatted == ["# why\nmaxTopicListInFlightHeapMemSizeMB=16"]


def test_no_limit_that_holds_is_said_and_not_dressed_up_as_advice() -> None:
    none = [point | {"chosen": False, "best": False, "holds": False} for point in points()]
    page = Page(text_of(advised(points=none)))
    assert any(text.startswith("No limits of the grid hold the target") for text in page.paragraphs)
    assert any(text.startswith("What to set: none of the limits") for text in page.paragraphs)
    assert page.preformatted == []


def test_no_line_goes_through_times_without_requests(text: str) -> None:
    # There were requests in the bins 0, 1 and 5: a line of two steps, and one of one.
    (line,) = re.findall(rf'<path d="([^"]*)" stroke="{RED}"', figure(text, "waits-over-time").split("role-legend")[0])
    assert [part.count("L") for part in line.split("M")[1:]] == [3, 1]


def test_arrivals_are_shown_by_the_second_however_long_a_bin_is() -> None:
    fine = replace(facts(), overview=replace(overview(), clock=Clock(BEGIN_US, 500_000, 20)))
    assert "Requests a second over time, mean of an interval at most 1,200.0." in figure(text_of(fine), "arrivals")


def test_proxies_that_are_not_shown_count_in_the_error() -> None:
    good = [row | {"outcome_error": 0.0} for row in calibration()]
    bad = [good[1] | {"proxy_id": f"q-{number:03}", "outcome_error": 1.0} for number in range(99)]
    shown = table(Page(text_of(advised(calibration=good + bad))), "Recorded / replayed")
    assert len(shown) == 50
    assert shown[0][-1] == "99 %"


def test_rankings_and_advice_are_there_as_json() -> None:
    said = json.loads(as_json(facts()))
    assert (said["cluster"], said["requests"], said["memory_wait_p99_us"]) == ("east", 1200, 1.5e6)
    assert {
        "dimension": "namespace",
        "measure": "refused",
        "rank": 2,
        "name": "t/b",
        "value": 20.0,
        "share": 0.2,
    } in said["rankings"]
    assert said["storms"][0]["requests"] == 1100
    assert said["advice"]["heap_limit_bytes"] == 16 << 20
    assert json.loads(as_json(only_events()))["rankings"] == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda: replace(facts(), advised=Advised((), calibration(), none_since="no advice: the error is 0.5")),
            "No advice was given: the error is 0.5.",
        ),
        (
            lambda: advised(calibration=[row | {"late_p50_us": 2e4, "late_p99_us": 4e5} for row in calibration()]),
            "The machine itself delayed requests: by 20 ms in the median, and by 400 ms",
        ),
        (
            lambda: advised(
                calibration=[row | {"recorded_refused": 43, "simulated_refused": 24} for row in calibration()]
            ),
            "Under the recorded limits 43 requests were refused, 24 in the replay: it missed 19.",
        ),
        (
            lambda: advised(
                points=[point | {"watch_direct_bytes": 3 << 20, "extrapolated": "load"} for point in points()]
            ),
            "3 MiB of the direct memory of each proxy are for watchers",
        ),
        (lambda: replace(facts(), period="the beginning to the end"), "Of the events from the beginning to the end."),
        (
            lambda: replace(facts(), period="the beginning to the end"),
            "of all clusters and of all time, since a text that is no event names none.",
        ),
        (
            lambda: advised(points=[point | {"extrapolated": "load"} for point in points()]),
            "What to set, extrapolated, for 10 times the recorded load:",
        ),
        (
            lambda: advised(points=[point | {"extrapolated": "heap_limit_bytes, load"} for point in points()]),
            "Extrapolated, beyond half to twice of what was recorded: heap memory, load.",
        ),
        (lambda: found(storms=[storm() | {"of_all": 1057}]), "1,057 storms were found"),
        (lambda: found(storms=[]), "No storm was found"),
        (
            lambda: replace(facts(), overview=replace(overview(), limits_differ=True)),
            "limits were not the same everywhere, or changed",
        ),
        (
            lambda: replace(
                facts(),
                recorded=replace(
                    facts().recorded, endings=pd.DataFrame({"bin": [0], "reason": ["ok"], "requests": [1200]})
                ),
            ),
            "Every one of the 1,200 requests was answered.",
        ),
        (
            lambda: replace(facts(), found=Found([], [], [], [])),
            "Nothing was set aside: every event that was read is in the tables.",
        ),
    ],
)
def test_what_is_special_is_said(change: Callable[[], Facts], said: str) -> None:
    assert said in " ".join(Page(text_of(change())).paragraphs)
