"""Facts of a small storm, worked out by hand, as the report gathers them: what its sections are tested with."""

from dataclasses import replace

import pandas as pd

from pipeline.report.clock import Clock, when
from pipeline.report.facts import ALL, Choices, Facts, Overview, Slowed

MIB = 2**20
BEGIN_US = 1_767_225_600_000_000  # 2026-01-01 00:00:00 UTC
# What a client may call its namespace if nobody looks.
HOSTILE = 'evil/</script><script>alert("x")</script><img src=//x.example/p.png>'
LIMITS = {
    "heap_timeout_us": 2_000_000,
    "direct_timeout_us": 2_000_000,
    "heap_queue": 10_000,
    "direct_queue": 10_000,
    "request_timeout_us": 28_000_000,
    "max_outstanding_per_broker": 64,
    "coalescing": True,
    "fairness": "fifo",
    "key_cap_percent": 100,
}


def overview() -> Overview:
    return Overview(
        clock=Clock(BEGIN_US, 1_000_000, 10),
        begin_us=BEGIN_US,
        end_us=BEGIN_US + 9_500_000,
        requests=1200,
        answered=1180,
        watch_frames=3,
        dropped=7,
        proxies=2,
        starts=3,
        tenants=2,
        namespaces=20,
        heap_limit=8 * MIB,
        direct_limit=0,
    )


def facts() -> Facts:
    return Facts(
        out="tables",
        overview=overview(),
        memory=memory(),
        fullness=pd.DataFrame(
            {"bin": [0, 1, 5], "heap_share": [0.5, 1.0, 0.25], "direct_share": [None, None, None]}
        ),
        waits=pd.DataFrame(
            {"bin": [None, 0.0, 1.0], "count": [1180, 600, 580], "p50_us": [1000.0, 0.0, 2000.0],
             "p95_us": [1e6, 5e5, 1.5e6], "p99_us": [1.5e6, 6e5, 1.9e6], "max_us": [2e6, 7e5, 2e6]}
        ),
        endings=pd.DataFrame(
            {"bin": [0, 1, 1], "reason": ["ok", "ok", "timeout in heap"], "requests": [600, 580, 20]}
        ),
        quarantine=pd.DataFrame({"reason": ["malformed", "future_version"], "events": [3, 2]}),
        top_costs=top_costs(),
        sharing=sharing(),
        storms=storms(),
        storm_count=1,
        members=pd.DataFrame(
            {"storm": [1, 1], "dimension": ["namespace", "proxy_id"], "rank": [1, 1], "name": [HOSTILE, "p-1"],
             "requests": [300, 900], "refused": [20, 20]}
        ),
        whatif=whatif(),
        calibration=calibration(),
        advice=advice(),
        calibrations=calibrations(),
        advices=advices(),
        days=days(),
        slowed=slowed(),
        marks=marks(),
        choices=choices(),
        fragment="# why\nmaxTopicListInFlightHeapMemSizeMB=16\n",
    )  # fmt: skip


def only_events() -> Facts:
    """Give the same before any job but ingest has run."""
    nothing = pd.DataFrame()
    return replace(
        facts(), quarantine=nothing, top_costs=nothing, sharing=nothing, storms=nothing, storm_count=0,
        members=nothing, whatif=nothing, calibration=nothing, advice=nothing,
        calibrations=nothing, advices=nothing, days=nothing, slowed=None, marks=nothing,
        fragment=None,
    )  # fmt: skip


def slowed() -> Slowed:
    hour = pd.Timestamp("2026-01-01 00:00:00")
    topics = pd.DataFrame(
        [
            {"topic": f"persistent://{HOSTILE}", "observed": False, "reasons": "backlog and memory", "seconds": 90.0,
             "natural_bytes_per_second": 4.0 * MIB, "allowed_bytes_per_second": 1.0 * MIB,
             "natural_messages_per_second": 4000.0, "allowed_messages_per_second": 1000.0,
             "max_pressure_permille": 830, "begin": hour, "end": hour},
        ]
    )  # fmt: skip
    hours = pd.DataFrame(
        [
            {"hour_start": hour, "throttle": "adaptive", "observed": False, "topics": 1, "seconds": 90.0,
             "most_connections": None, "max_pressure_permille": 830.0, "max_ratio_permille": 845},
            {"hour_start": hour, "throttle": "threshold", "observed": True, "topics": 0, "seconds": 400.0,
             "most_connections": 40.0, "max_pressure_permille": None, "max_ratio_permille": 860},
        ]
    )  # fmt: skip
    return Slowed(topics, hours, 1)


def marks() -> pd.DataFrame:
    rows = [
        {"high": high, "low": 0.7, "bin": number, "at_ms": BEGIN_US // 1000 + number * 1000, "seconds": 60,
         "pressed_seconds": 30, "paused_seconds": 10 if high < 0.9 else 0, "pressure": 0.5 / high,
         "allowed_share": 0.5 * high, "max_pressure": 0.9, "least": 0.2}
        for high in (0.85, 0.95)
        for number in range(5)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def memory() -> pd.DataFrame:
    clock = overview().clock
    rows = [
        (at, when(at), kind, held, waiting, limit)
        for kind, limit, held, waiting in (("heap", 16.0, 12.0, 28.0), ("direct", 0.0, 3.0, 0.0))
        for at in clock.begin_ms
    ]
    return pd.DataFrame(rows, columns=["at_ms", "when", "kind", "held_mib", "waiting_mib", "limit_mib"])


def choices() -> Choices:
    """Give two namespaces and others at one proxy of two, with bins of two seconds."""
    rows = [
        (0, ALL, "heap", "held", 0, 8.0), (0, ALL, "heap", "held", 1, 4.0), (0, ALL, "heap", "waiting", 0, 20.0),
        (0, ALL, "fullness", "heap", 0, 0.5), (0, ALL, "fullness", "heap", 1, 1.0),
        (0, ALL, "fullness", "heap", 4, 0.2),
        (0, ALL, "waits", "p50", 0, 0.5), (0, ALL, "waits", "p95", 0, 0.75), (0, ALL, "waits", "p99", 0, 1.25),
        (0, ALL, "endings", "ok", 0, 30.0), (0, ALL, "endings", "timeout in heap", 0, 5.0),
        (1, ALL, "endings", "ok", 0, 10.0), (2, ALL, "endings", "ok", 1, 7.0), (ALL, 0, "endings", "ok", 0, 40.0),
        (1, 0, "endings", "ok", 0, 3.0),
        *((ALL, ALL, "heap", "limit", number, 16.0) for number in range(5)),
        *((ALL, 0, "heap", "limit", number, 8.0) for number in range(5)),
    ]  # fmt: skip
    cells = pd.DataFrame(rows, columns=["namespace", "proxy", "chart", "series", "bin", "value"])
    return Choices(Clock(BEGIN_US, 2_000_000, 5), (HOSTILE, "t/b"), ("p-1", "p-2"), cells)


def top_costs() -> pd.DataFrame:
    rows = [
        ("whole", dimension, measure, rank, name, value, value / 100)
        for dimension, names in (
            ("namespace", (HOSTILE, "t/b")),
            ("tenant", ("evil", "t")),
            ("principal", (None, None)),
        )
        for measure in ("heap_byte_seconds", "requests")
        for rank, (name, value) in enumerate(zip(names, (70.0, 30.0), strict=True), 1)
    ]
    return pd.DataFrame(rows, columns=["period", "dimension", "measure", "rank", "name", "value", "share"])


def sharing() -> pd.DataFrame:
    rows = [(None, 1200, 40, 1160, 40, 40 * MIB, 80.0 * MIB), (HOSTILE, 300, 40, 260, 40, 40 * MIB, 80.0 * MIB)]
    columns = ["namespace", "requests", "coalesced", "questions", "questions_saved", "upstream_bytes_saved",
               "heap_byte_seconds_saved"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def storms() -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "storm": 1,
                "begin": pd.Timestamp("2026-01-01 00:00:01"),
                "end": pd.Timestamp("2026-01-01 00:00:02"),
                "arrival_seconds": 1.0,
                "served_seconds": 4.5,
                "usual_rate": 1.0,
                "peak_rate": 900,
                "requests": 1100,
                "answered": 1080,
                "refused": 20,
                "cancelled": 0,
                "questions": 1060,
                "proxies": 2,
                "clients": 275,
                "principals": 0,
                "namespaces": 20,
                "max_heap_used_bytes": 8 * MIB,
                "max_direct_used_bytes": 3 * MIB,
                "max_heap_queue_len": 90,
                "max_direct_queue_len": 0,
                "max_memory_wait_us": 1_900_000,
            }
        ]
    )


def whatif() -> pd.DataFrame:
    rows = []
    for scenario, heap in enumerate((8, 16, 32)):
        for load in (1, 10):
            for fleet in (1, 2):
                refused = max(0, 20 * load - heap * fleet)
                rows.append(
                    LIMITS
                    | dict.fromkeys(
                        ("timeout_heap_update", "timeout_direct", "timeout_other", "queue_full_heap",
                         "queue_full_direct", "oversize", "cancelled", "failed", "short_warm_ups"), 0,
                    )
                    | {"scenario": scenario, "heap_limit_bytes": heap * MIB, "direct_limit_bytes": 0, "load": load,
                       "fleet": fleet, "proxies": 2 * fleet, "requests": 1200, "ok": 1200 - refused,
                       "timeout_heap": refused, "wait_p50_us": 10.0, "wait_p95_us": 1e5, "wait_p99_us": 2e5,
                       "wait_max_us": 3e5, "peak_heap_bytes": heap * MIB, "peak_direct_bytes": MIB,
                       "questions": 1160, "imputed_share": 0.02}
                )  # fmt: skip
    return pd.DataFrame(rows)


def calibration() -> pd.DataFrame:
    sides = {
        f"{side}_{name}": value
        for side in ("recorded", "simulated")
        for name, value in (("ok", 1180), ("refused", 20), ("cancelled", 0), ("p50_us", 1e3), ("p95_us", 1e6),
                            ("p99_us", 1.5e6), ("max_us", 2e6))
    }  # fmt: skip
    errors = {"requests": 1200, "outcome_error": 0.01, "imputed_share": 0.02}
    errors |= {"limiter_p99_us": 1.5e6, "late_p50_us": 0.0, "late_p99_us": 2e3}
    return pd.DataFrame([{"proxy_id": ""} | sides | errors, {"proxy_id": "p-1"} | sides | errors])


def advice() -> pd.DataFrame:
    rows = [
        LIMITS
        | {"step": "final" if heap == 16 else "grid", "scenario": heap, "heap_limit_bytes": heap * MIB,
           "direct_limit_bytes": 4 * MIB, "load": 10, "promised_wait_us": 250_000.0, "fleet": 1, "requests": 1200,
           "refused": max(0, 12 - heap), "wait_p99_us": 2e5, "memory_bytes": (heap + 4) * 2 * MIB,
           "holds": heap >= 12, "best": heap == 12, "chosen": heap == 16, "watch_direct_bytes": 0, "extrapolated": ""}
        for heap in (8, 12, 16)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def calibrations() -> pd.DataFrame:
    kept = {"requests": 1200, "error": 0.04, "outcome_error": 0.01, "recorded_refused": 20, "simulated_refused": 18,
            "recorded_p99_us": 1.5e6, "simulated_p99_us": 1.4e6, "late_p99_us": 2e3, "imputed_share": 0.02}  # fmt: skip
    return pd.DataFrame([kept | {"made_at": pd.Timestamp("2026-01-01 02:00")}])


def advices() -> pd.DataFrame:
    rows = [
        LIMITS
        | {"made_at": pd.Timestamp(made), "cluster": None, "first_us": BEGIN_US, "last_us": BEGIN_US + 9_500_000,
           "promised_wait_us": 250_000.0, "load": 10, "fleet": 1, "proxies": 2, "max_refused": 0.0,
           "watch_direct_bytes": 0, "extrapolated": "", "heap_limit_bytes": heap * MIB, "direct_limit_bytes": 4 * MIB}
        for made, heap in (("2026-01-02 02:00", 16), ("2026-01-01 02:00", 12))
    ]  # fmt: skip
    return pd.DataFrame(rows)


def days() -> pd.DataFrame:
    rows = [
        {"date": pd.Timestamp(f"2026-01-0{number}").date(), "cluster": "east", "proxy_id": "p-1", "requests": 500,
         "answered": 500 - refused, "refused": refused, "wait_p99_us": 1e5, "heap_limit_bytes": 12 * MIB,
         "direct_limit_bytes": 4 * MIB}
        for number, refused in ((1, 0), (2, 5))
    ]  # fmt: skip
    return pd.DataFrame(rows)
