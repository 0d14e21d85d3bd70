"""What the page can be filtered by: counted for each choice, and bounded however many namespaces there are."""

from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from pipeline.report import gather_choices
from pipeline.report.clock import Clock
from pipeline.report.facts import ALL
from pipeline.report.gather import over_time
from pipeline.report.gather_choices import MOST_NAMED
from tests.support.pipeline.replay_events import REFUSED, START_US, frame

SECOND = 1_000_000
MIB = 2**20
CLOCK = Clock(START_US, SECOND, 40)


def gathered(spark: SparkSession, *some: dict[str, Any], clock: Clock = CLOCK) -> dict[str, Any]:
    return over_time(frame(spark, *some), clock)


def of(cells: pd.DataFrame, namespace: int, proxy: int, chart: str, series: str) -> dict[int, float]:
    """Give the values of a choice by bin."""
    wanted = {"namespace": namespace, "proxy": proxy, "chart": chart, "series": series}
    found = cells[(cells[list(wanted)] == pd.Series(wanted)).all(axis=1)]
    return dict(zip(found["bin"].tolist(), found["value"].tolist(), strict=True))


def test_each_choice_has_what_its_events_say(spark: SparkSession) -> None:
    held = {"heap_estimate_bytes": MIB, "heap_actual_bytes": MIB, "heap_held_us": SECOND, "heap_byte_us": MIB * SECOND,
            "upstream_us": SECOND, "read_us": 0, "write_us": 0, "total_us": SECOND, "heap_wait_us": 0}  # fmt: skip
    limits = {"heap_limit_bytes": 8 * MIB, "direct_limit_bytes": 0}
    found = gathered(
        spark,
        *({"at_us": at * SECOND, "namespace": "t/a", "proxy_id": "p1", "heap_used_bytes": used} | held | limits
          for at, used in ((0, 0), (0, 4 * MIB), (1, 0))),
        {"at_us": SECOND, "namespace": "t/b", "proxy_id": "p2"} | held | limits,
        REFUSED | {"at_us": SECOND, "namespace": "t/b", "proxy_id": "p1"} | limits,
    )  # fmt: skip
    choices = found["choices"]
    assert (choices.namespaces, choices.proxies, choices.clock) == (("t/a", "t/b"), ("p1", "p2"), CLOCK)
    cells = choices.cells
    assert of(cells, 0, ALL, "heap", "held") == {0: 2.0, 1: 1.0}
    assert of(cells, 1, 1, "heap", "held") == {1: 1.0}
    assert of(cells, ALL, 0, "endings", "ok") == {0: 2.0, 1: 1.0}
    assert of(cells, 1, ALL, "endings", "ok") == {1: 1.0}
    assert of(cells, 1, 0, "endings", "timeout in heap") == {1: 1.0}
    assert of(cells, 0, ALL, "fullness", "heap") == {0: 0.5, 1: 0.0}
    assert of(cells, 0, ALL, "waits", "p99") == {0: 0.0, 1: 0.0}
    assert of(cells, ALL, ALL, "heap", "limit")[1] == 16.0
    assert of(cells, ALL, 0, "heap", "limit")[1] == 8.0
    assert of(cells, ALL, 0, "direct", "limit") == {}
    # What the whole page shows is not there a second time.
    assert set(cells[(cells["namespace"] == ALL) & (cells["proxy"] == ALL)]["series"]) == {"limit"}
    memory = found["memory"]
    assert memory[memory["kind"] == "heap"]["held_mib"].tolist()[:3] == [2.0, 2.0, 0.0]


def test_choices_are_bounded_however_many_namespaces_and_proxies_there_are(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather_choices, "MOST_CELLS", 1_000)
    some = [
        {"at_us": number % 40 * SECOND, "namespace": f"t/{number % 60:02}", "proxy_id": f"p{number % 30:02}"}
        for number in range(240)
    ]
    # One more of the last, so that it is not the last any more.
    choices = gathered(spark, *some, {"namespace": "t/59", "proxy_id": "p29"})["choices"]
    assert choices.namespaces[:2] == ("t/59", "t/00")
    assert len(choices.namespaces) == len(choices.proxies) == MOST_NAMED
    assert choices.clock == Clock(START_US, 14 * SECOND, 3)
    keys = choices.cells[["namespace", "proxy", "bin"]].drop_duplicates()
    assert len(keys) <= 17 * 17 * 3
    assert keys["bin"].max() == 2
    others = of(choices.cells, MOST_NAMED, ALL, "endings", "ok")
    assert sum(others.values()) == 45 * 4
    assert sum(of(choices.cells, ALL, MOST_NAMED, "endings", "ok").values()) == 15 * 8
