"""Facts of a small storm, worked out by hand, as the report gathers them: what its sections are tested with."""

from dataclasses import replace
from typing import Any

import pandas as pd

from pipeline.report.clock import Clock
from pipeline.report.facts import EVERYBODY, Advised, Facts, Found, Overview, Recorded

MIB = 2**20
BEGIN_US = 1_767_225_600_000_000  # 2026-01-01 00:00:00 UTC
SECOND_US = 1_000_000
# What a client may call its namespace if nobody looks.
HOSTILE = 'evil/</script><script>alert("x")</script><img src=//x.example/p.png>'


def overview() -> Overview:
    return Overview(
        clock=Clock(BEGIN_US, SECOND_US, 10),
        cluster="east",
        begin_us=BEGIN_US,
        end_us=BEGIN_US + 9_500_000,
        requests=1200,
        answered=1180,
        longest_wait_us=2_000_000,
        heap_wait_us=9_000_000,
        direct_wait_us=1_000_000,
        watch_frames=3,
        dropped=7,
        proxies=2,
        starts=3,
        namespaces=20,
        heap_limit=8 * MIB,
        direct_limit=0,
    )


def facts() -> Facts:
    return Facts(
        overview(),
        Recorded(
            memory(),
            waits(),
            pd.DataFrame({"bin": [0, 1, 1], "reason": ["ok", "ok", "timeout in heap"], "requests": [600, 580, 20]}),
            {("lists", "heap"): 7 * MIB, ("lists", "direct"): 3 * MIB, ("watch", "direct"): MIB},
            p50_us=1000.0,
            p99_us=1.5e6,
        ),
        Found(
            rankings(),
            [storm()],
            [topic(), connections()],
            [{"reason": "malformed", "copies": 3}, {"reason": "future_version", "copies": 2}],
        ),
        Advised(points(), calibration(), 250_000.0, "# why\nmaxTopicListInFlightHeapMemSizeMB=16\n"),
    )


def only_events() -> Facts:
    """Give the same before any job but ingest has run."""
    return replace(facts(), found=Found(None, None, None, []), advised=Advised())


def memory() -> pd.DataFrame:
    rows = [
        (number, at, kind, held, waiting, limit)
        for kind, limit, held, waiting in (("heap", 16.0, 12.0, 28.0), ("direct", 0.0, 3.0, 0.0))
        for number, at in enumerate(overview().clock.begin_ms)
    ]
    return pd.DataFrame(rows, columns=["bin", "at_ms", "kind", "held_mib", "waiting_mib", "limit_mib"])


def waits() -> pd.DataFrame:
    """Give the waits of three seconds, of which the last is alone."""
    begin_ms = overview().clock.begin_ms
    rows = [
        (number, begin_ms[number], what, value * (number + 1))
        for number in (0, 1, 5)
        for what, value in (("p50", 0.001), ("p95", 0.5), ("p99", 0.75))
    ]
    return pd.DataFrame(rows, columns=["bin", "at_ms", "what", "value"])


def ranked(dimension: str, measure: str, *named: tuple[str | None, float], of: float = 100.0) -> list[dict[str, Any]]:
    """Give the rows of a ranking; `of` is the sum over all."""
    return [
        {"dimension": dimension, "measure": measure, "rank": rank, "name": name, "value": value, "share": value / of}
        for rank, (name, value) in enumerate(named, 1)
    ]


def rankings() -> list[dict[str, Any]]:
    first = (HOSTILE, 70.0), ("t/b", 20.0), ("t/c", 10.0)
    even = [(f"role-{number}", 2.0) for number in range(10)]
    measures = ("heap_byte_seconds", "requests", "refused", "memory_wait_seconds")
    return [
        row
        for measure in measures
        for rows in (
            ranked(EVERYBODY, measure, (None, 100.0)),
            ranked("tenant", measure, ("t", 100.0)),
            ranked("namespace", measure, *first),
            ranked("principal", measure, *even),
        )
        for row in rows
    ] + [
        row
        for measure, value in (
            ("coalesced", 40.0), ("questions_saved", 40.0), ("upstream_bytes_saved", 40.0 * MIB),
            ("heap_byte_seconds_saved", 80.0 * MIB),
        )
        for row in ranked(EVERYBODY, measure, (None, value), of=value)
    ]  # fmt: skip


def storm() -> dict[str, Any]:
    return {
        "storm": 1, "begin_us": BEGIN_US + SECOND_US, "arrival_seconds": 1.0, "served_seconds": 4.5, "peak_rate": 900,
        "requests": 1100, "refused": 20, "clients": 275, "max_heap_queue_len": 90, "max_direct_queue_len": 0,
        "max_memory_wait_us": 1_900_000, "of_all": 1,
        "members": [
            {"dimension": "namespace", "rank": 1, "name": HOSTILE, "requests": 300, "refused": 20},
            {"dimension": "proxy_id", "rank": 1, "name": "p-1", "requests": 900, "refused": 20},
        ],
    }  # fmt: skip


def topic() -> dict[str, Any]:
    return {
        "topic": f"persistent://{HOSTILE}", "observed": False, "reasons": "backlog and memory", "seconds": 90.0,
        "natural_bytes_per_second": 4.0 * MIB, "allowed_bytes_per_second": 1.0 * MIB,
        "natural_messages_per_second": 4000.0, "allowed_messages_per_second": 1000.0, "max_pressure_permille": 830,
        "max_ratio_permille": 845, "most_connections": None, "begin_us": BEGIN_US, "end_us": BEGIN_US, "of_all": 1,
    }  # fmt: skip


def connections() -> dict[str, Any]:
    return topic() | {
        "topic": None, "observed": True, "reasons": "memory", "seconds": 400.0, "max_pressure_permille": None,
        "max_ratio_permille": 860, "most_connections": 40,
    }  # fmt: skip


def calibration() -> list[dict[str, Any]]:
    sides = {
        f"{side}_{name}": value
        for side in ("recorded", "simulated")
        for name, value in (("ok", 1180), ("refused", 20), ("cancelled", 0), ("p50_us", 1e3), ("p95_us", 1e6),
                            ("p99_us", 1.5e6), ("max_us", 2e6))
    }  # fmt: skip
    errors = {"requests": 1200, "outcome_error": 0.01, "imputed_share": 0.02}
    errors |= {"limiter_p99_us": 1.5e6, "late_p50_us": 0.0, "late_p99_us": 2e3}
    return [{"proxy_id": name} | sides | errors for name in ("", "p-1")]


def points() -> list[dict[str, Any]]:
    return [
        {"heap_limit_bytes": heap * MIB, "direct_limit_bytes": 4 * MIB, "load": 10, "fleet": 1, "requests": 1200,
         "refused": max(0, 12 - heap), "wait_p99_us": 2e5, "memory_bytes": (heap + 4) * 2 * MIB,
         "holds": heap >= 12, "best": heap == 12, "chosen": heap == 16, "watch_direct_bytes": 0, "extrapolated": ""}
        for heap in (8, 12, 16)
    ]  # fmt: skip
