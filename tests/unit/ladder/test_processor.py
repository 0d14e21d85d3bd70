"""Processor time in the ladder: what a unit costs, what was the limit of a run, and which throughputs count."""

from typing import Any

import pytest

from benchmarks.ladder import report, verdict
from benchmarks.ladder.measure import Measured
from benchmarks.ladder.processor import per_unit, processor
from benchmarks.ladder.rows import Ratio

CORES = 2
LEAD = Ratio("01", ("06", "07"), 1.5, validity=True)


def run(proxy: float, broker: float = 0.3, load: float = 0.4, **more: float) -> dict[str, float | str]:
    """Make the report of a run in which the processes kept so many cores busy, each with one thread."""
    cores = {"proxy": proxy, "broker": broker, "load": load}
    kept = {f"{name}_{what}": busy for name, busy in cores.items() for what in ("cores", "thread")}
    return {"per_second": 1000.0, **kept, **more}


def measured(*reports: dict[str, float | str], rate: float = 1000.0) -> Measured:
    return Measured([report | {"per_second": rate} for report in reports])


def judged(ratio: Ratio, rows: dict[str, Measured]) -> verdict.Json:
    found = verdict.ratio_json(ratio, rows, "per_second")
    assert found is not None
    return found


def test_a_unit_costs_what_the_cores_were_busy_for_by_the_units_of_a_second() -> None:
    assert per_unit(run(0.5), "per_second") == {"cpu_us": 500, "broker_cpu_us": 300, "load_cpu_us": 400}
    assert per_unit(run(0.5, mb_per_second=250.0), "mb_per_second")["cpu_us"] == 2000


def test_without_a_proxy_there_is_no_price_of_one() -> None:
    bare = {"per_second": 1000.0, "broker_cores": 0.9, "load_cores": 1.0}
    assert per_unit(bare, "per_second") == {"broker_cpu_us": 900, "load_cpu_us": 1000}


def test_a_run_that_answered_nothing_has_no_price() -> None:
    assert per_unit(run(0.5, per_second=0.0), "per_second") == {}


@pytest.mark.parametrize(
    ("proxy", "load", "limits"),
    [
        (0.94, 0.55, ()),
        (0.94, 0.56, ("cores",)),
        (0.95, 0.20, ("thread",)),
        (0.95, 0.60, ("cores", "thread")),
    ],
)
def test_the_limit_is_nine_tenths_of_all_cores_or_nearly_all_of_one_thread(
    proxy: float, load: float, limits: tuple[str, ...]
) -> None:
    found = processor([run(proxy, broker=0.3, load=load)], CORES)
    assert found is not None
    assert found.limits == limits


def test_a_proxy_of_two_threads_is_judged_by_the_busier_one() -> None:
    found = processor([run(1.2, broker=0.2, load=0.2, proxy_thread=0.7)], CORES)
    assert found is not None
    assert (found.thread_busy, found.limits) == (0.7, ())


def test_a_busy_neighbour_is_one_of_the_processes() -> None:
    found = processor([run(0.5, neighbour_cores=0.7, neighbour_thread=0.7)], CORES)
    assert found is not None
    assert (found.cores_busy, found.limits) == (1.9, ("cores",))


def test_without_a_proxy_the_brokers_thread_is_looked_at_and_never_the_clients() -> None:
    bare = {"broker_cores": 0.5, "broker_thread": 0.5, "load_cores": 1.0, "load_thread": 1.0}
    found = processor([bare], CORES)
    assert found is not None
    assert (found.thread_busy, found.limits) == (0.5, ())


def test_the_typical_run_decides() -> None:
    found = processor([run(0.99), run(0.5), run(0.6)], CORES)
    assert found is not None
    assert (found.thread_busy, found.limits) == (0.6, ())


def test_runs_that_nobody_looked_at_have_no_limit() -> None:
    assert processor([{"per_second": 1.0}], CORES) is None
    assert processor([], CORES) is None


def test_throughput_counts_if_processors_limited_both_rows() -> None:
    ratio = Ratio("02", ("06",), 1.0)
    busy, idle = run(0.99), run(0.5)
    for own, peer, reasons in [
        (busy, busy, []),
        (idle, busy, ["row 02 waited for no processor"]),
        (busy, idle, ["row 06 waited for no processor"]),
    ]:
        rows = {"02": measured(own), "06": measured(peer)}
        found = judged(ratio, rows)
        assert verdict.uncounted(found, [found], rows, CORES) == reasons


def test_no_throughput_counts_if_the_run_without_a_proxy_is_not_ahead() -> None:
    rows = {name: measured(run(0.99), rate=rate) for name, rate in {"01": 140, "02": 90, "06": 80, "07": 100}.items()}
    lead, ratio = judged(LEAD, rows), judged(Ratio("02", ("06",), 1.0), rows)
    reasons = ["row 01 is 1.40 of row 07, expected 1.5"]
    assert verdict.behind([lead, ratio]) == reasons
    assert verdict.uncounted(ratio, [lead, ratio], rows, CORES) == reasons
    assert verdict.uncounted(lead, [lead, ratio], rows, CORES) == []


@pytest.mark.parametrize("quantity", ["cpu_us", "peak_rss_bytes", "p99_ms"])
def test_processor_time_memory_and_tails_count_always(quantity: str) -> None:
    rows = {name: measured(run(0.1, cpu_us=7.0, p99_ms=1.0)) for name in ("01", "02", "06", "07")}
    for known in rows.values():
        known.peak_rss_bytes = 1
    lead, ratio = judged(LEAD, rows), judged(Ratio("02", ("06",), 1.0, quantity=quantity, at_most=True), rows)
    assert verdict.behind([lead])
    assert verdict.uncounted(ratio, [lead, ratio], rows, CORES) == []


def test_the_best_peer_is_the_fastest_and_the_cheapest() -> None:
    rows = {
        "02": measured(run(0.5, cpu_us=10.0), rate=100),
        "06": measured(run(0.5, cpu_us=20.0), rate=200),
        "07": measured(run(0.5, cpu_us=40.0), rate=50),
    }
    assert judged(Ratio("02", ("06", "07"), 1.0), rows)["under"] == "06"
    cheapest = judged(Ratio("02", ("07", "06"), 0.5, quantity="cpu_us", at_most=True), rows)
    assert (cheapest["under"], cheapest["median"], cheapest["reached"]) == ("06", 0.5, True)


def test_a_ratio_of_a_figure_that_a_row_lacks_is_not_judged() -> None:
    rows = {"01": measured({}), "02": measured(run(0.5, cpu_us=10.0))}
    assert verdict.ratio_json(Ratio("02", ("01",), 1.0, quantity="cpu_us", at_most=True), rows, "per_second") is None


def kept(reports: dict[str, Measured], ratios: list[verdict.Json], **fields: Any) -> verdict.Json:
    """Make a result file of these rows."""
    machine = {"cpu": "C", "cores": 2, "memory_mib": 1, "kernel": "6", "python": "3", "java": "17", "java_proxy": "4",
               "haproxy": "2", "rustc": "rustc 1"}  # fmt: skip
    rows = {name: {"title": name, **verdict.row_json(runs, "per_second", CORES)} for name, runs in reports.items()}
    return {
        "scenario": "lists", "title": "lists", "kind": "paired", "quantity": "per_second", "unit": "list",
        "valid": True, "measured_on": "a day", "machine": machine, "rows": rows, "ratios": ratios, "checks": [],
        **fields,
    }  # fmt: skip


def test_the_report_shows_price_floor_and_limit_of_each_row() -> None:
    rows = {
        "00c": measured(run(0.3, cpu_us=300.0, broker_cpu_us=310.0, load_cpu_us=420.0)),
        "04": measured(run(0.96, cpu_us=960.0, broker_cpu_us=320.0, load_cpu_us=430.0)),
    }
    text = report.render([kept(rows, [])])
    assert "CPU µs a list" in text
    assert "| 00c | 00c | 1,000 | 1,000..1,000 | 300 | 1.00 | 310 | 420 | 1.00 | 0.30 | none | 0 MiB |" in text
    assert "| 04 | 04 | 1,000 | 1,000..1,000 | 960 | 3.20 | 320 | 430 | 1.66 | 0.96 | thread | 0 MiB |" in text


def test_the_report_says_which_figures_do_not_count() -> None:
    rows = {"02": measured(run(0.99)), "06": measured(run(0.5))}
    found = judged(Ratio("02", ("06",), 1.0, note="by day"), rows)
    found["uncounted_because"] = verdict.uncounted(found, [found], rows, CORES)
    text = report.render([kept(rows, [found], behind=["row 01 is slow"])])
    assert "**Throughput does not count**: row 01 is slow" in text
    assert "| 02 / 06, per second, by day |" in text
    assert "≥ 1 | reached; does not count: row 06 waited for no processor |" in text


def test_a_result_of_before_processor_time_is_shown_as_it_was() -> None:
    rows = {"02": Measured([{"per_second": 5.0}]), "06": Measured([{"per_second": 4.0}])}
    found = {key: value for key, value in judged(Ratio("02", ("06",), 1.5), rows).items() if key != "note"}
    text = report.render([kept(rows, [found])])
    assert "| 02 | 02 | 5 | 5..5 | 0 MiB |" in text
    assert "| 02 / 06, per second | 1.25 | - | ≥ 1.5 | **missed** |" in text
