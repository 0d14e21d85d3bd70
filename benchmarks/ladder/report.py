"""The ladder's part of `benchmarks/results/README.md`, made from result files (`python -m scripts.generate`)."""

from __future__ import annotations

import textwrap
from statistics import median
from typing import Any

from benchmarks.ladder import neighbours
from benchmarks.ladder.neighbours import HOSTILE
from benchmarks.ladder.processor import BROKER, CPU, LOAD, PROXY
from benchmarks.ladder.rows import MIB, Column
from benchmarks.ladder.scenarios import SCENARIOS
from benchmarks.ladder.verdict import FAULTS

UNITS = {"per_second": "per second", "cpu_us": "CPU time", "mb_per_second": "MB/s", "seconds": "seconds"}
QUANTITIES = UNITS | {
    "peak_rss_bytes": "peak RSS", "p50_ms": "p50", "p99_ms": "p99", "answered": "lists that ended",
    "seconds_to_end": "seconds to the last answer",
}  # fmt: skip
# The bare relay that a scenario has, if any.
FLOORS = ("00c", "00s")

Json = dict[str, Any]


def render(results: list[Json]) -> str:
    """Return the generated part for these results, in the order of the scenario table."""
    if not results:
        return "No results yet: `python -m benchmarks.ladder.run all`."
    # Floods are many: one line each.
    parts = [part for result in results if not result["scenario"].startswith(HOSTILE) for part in _scenario(result)]
    parts += _floods([result for result in results if result["scenario"].startswith(HOSTILE)])
    return "\n".join([*parts, *_machine(results[0])]).rstrip()


def _floods(results: list[Json]) -> list[str]:
    if not results:
        return []
    dates = sorted({result["measured_on"] for result in results})
    return [
        "### Honest clients beside floods, of one attacker and of ten",
        "",
        f"`hostile`, {' and '.join(dates)}. What each flood is stands in `ladder/hostile_scenarios.py`.",
        "",
        *neighbours.table(results),
        "",
    ]


def _scenario(result: Json) -> list[str]:
    title = f"{result['title'][0].upper()}{result['title'][1:]}"
    lines = [f"### {title}", "", f"`{result['scenario']}`, {result['measured_on']}"]
    if not result["valid"]:
        lines[-1] += ". **Not valid**: " + "; ".join(result["invalid_because"])
    if result.get("behind"):
        lines[-1] += ". **Throughput does not count**: " + "; ".join(result["behind"])
    return [*lines, "", *_rows(result), "", *_judged(result), ""]


def _rows(result: Json) -> list[str]:
    if result["kind"] == "memory":
        return _memory_rows(result)
    quantity = result["quantity"]
    if any("processor" in row for row in result["rows"].values()):
        return _processor_rows(result)
    digits = 3 if quantity == "seconds" else 0
    lines = [f"| row | what | {UNITS[quantity]}, median | least..most | peak RSS |", "|---|---|--:|--:|--:|"]
    for name, row in result["rows"].items():
        found = row[quantity]
        span = f"{found['least']:,.{digits}f}..{found['most']:,.{digits}f}"
        rss = _mib(row["peak_rss_bytes"])
        lines.append(f"| {name} | {row['title']} | {found['median']:,.{digits}f} | {span} | {rss} |")
    return lines


def _processor_rows(result: Json) -> list[str]:
    """Return a table of throughput, and what a unit of it costs each process; the bare relay is the floor of both."""
    quantity, unit, rows = result["quantity"], result["unit"], result["rows"]
    floor = next((row for name, row in rows.items() if name in FLOORS and CPU[PROXY] in row), None)
    titles = [f"{UNITS[quantity]}, median", "least..most", f"CPU µs a {unit}", "of the bare relay", "broker", "clients",
              "cores busy", "busiest thread", "limit", "peak RSS"]  # fmt: skip
    lines = [f"| row | what | {' | '.join(titles)} |", "|---|---|" + "--:|" * len(titles)]
    for name, row in rows.items():
        found, taken, own = row[quantity], row["processor"], row.get(CPU[PROXY])
        cells = [
            f"{found['median']:,.0f}",
            f"{found['least']:,.0f}..{found['most']:,.0f}",
            _micros(own),
            f"{own['median'] / floor[CPU[PROXY]]['median']:.2f}" if own and floor else "-",
            *(_micros(row.get(CPU[process])) for process in (BROKER, LOAD)),
            f"{taken['cores_busy']:.2f}",
            f"{taken['thread_busy']:.2f}",
            " and ".join(taken["limits"]) or "none",
            _mib(row["peak_rss_bytes"]),
        ]
        lines.append(f"| {name} | {row['title']} | {' | '.join(cells)} |")
    return lines


def _micros(found: Json | None) -> str:
    return f"{found['median']:,.{1 if found['median'] < 100 else 0}f}" if found else "-"


def _memory_rows(result: Json) -> list[str]:
    columns = SCENARIOS[result["scenario"]].columns
    lines = [f"| row | what | {' | '.join(column.title for column in columns)} |", "|---|---|" + "--:|" * len(columns)]
    for name, row in result["rows"].items():
        cells = " | ".join(_cell(column, row["runs"]) for column in columns)
        lines.append(f"| {name} | {row['title']} | {cells} |")
    several = max(len(row["runs"]) for row in result["rows"].values())
    return (
        lines
        if several == 1
        else [
            *lines,
            "",
            f"Medians of {several} runs; what is asked below is asked of the worst, unless it says median.",
        ]
    )


def _cell(column: Column, runs: list[Json]) -> str:
    if any(column.quantity not in run for run in runs):
        return "-"
    got = median(run[column.quantity] for run in runs)
    return _mib(got) if column.mib else f"{got:,.{column.digits}f}"


def _judged(result: Json) -> list[str]:
    checks = [check for check in result["checks"] if check["what"] not in FAULTS or not check["reached"]]
    if not result["ratios"] and not checks:
        return []
    lines = ["| asked | got | interval of the median, 95 % | required | |", "|---|--:|--:|--:|---|"]
    for ratio in result["ratios"]:
        what = f"{ratio['over']} / {ratio['under']}, {QUANTITIES[ratio['quantity']]}"
        what += " (the run counts)" if ratio["validity"] else ""
        what += f", {ratio['note']}" if ratio.get("note") else ""
        several = ratio["samples"] > 1
        span = f"{ratio['low95']:.2f}..{ratio['high95']:.2f}" if several else "-"
        lines.append(f"| {what} | {ratio['median']:.2f} | {span} | {_required(ratio)} |")
    if "disk" in result:
        found = result["disk"]
        rates = f"write {found['write_mb_per_second']:,.0f}, read {found['read_mb_per_second']:,.0f} MB/s"
        lines.append(f"| the disk by itself, steps of 1 MiB | {rates} | - | - | |")
    for check in checks:
        lines.append(f"| row {check['row']}: {check['what']} | {check['got']:,.10g} | - | {_required(check)} |")
    return lines


def _required(judged: Json) -> str:
    if judged["required"] is None:
        return f"- | {_uncounted(judged).removeprefix('; ')}"
    sign = "≤" if judged["at_most"] else "≥"
    word = "reached" if judged["reached"] else "**missed**"
    return f"{sign} {judged['required']:,.10g} | {word}{_uncounted(judged)}"


def _uncounted(judged: Json) -> str:
    return f"; does not count: {', '.join(judged['uncounted_because'])}" if judged.get("uncounted_because") else ""


def _machine(result: Json) -> list[str]:
    known: Json = result["machine"]
    text = (
        f"Machine: {known['cpu']}, {known['cores']} cores, {known['memory_mib']:,} MiB, Linux {known['kernel']}; "
        f"Python {known['python']}, Java {known['java']}, Java proxy {known['java_proxy']}, "
        f"HAProxy {known['haproxy']}, {known['rustc']}."
    )
    return textwrap.wrap(text, 120)


def _mib(count: float) -> str:
    return f"{count / MIB:,.0f} MiB"
