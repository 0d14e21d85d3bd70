"""The pipeline's part of `benchmarks/results/README.md`, made from result files (`python -m scripts.generate`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from benchmarks.ladder.rows import MIB

Json = dict[str, Any]


def render(results: list[Json]) -> str:
    """Return the generated part for these results, in the order of the parts."""
    if not results:
        return "No results yet: `make bench-pipeline`."
    return "\n".join(line for result in results for line in _part(result)).rstrip()


def _part(result: Json) -> list[str]:
    title = f"{result['title'][0].upper()}{result['title'][1:]}"
    known = result["machine"]
    lines = [f"### {title}", "", f"`{result['scenario']}`, {result['measured_on']}", ""]
    lines += [*_rows(result["rows"]), "", "| asked | got | required | |", "|---|--:|--:|---|"]
    for one in result["checks"]:
        required, reached = "-", ""
        if one["required"] is not None:
            sign = "≤" if one["at_most"] else "≥"
            required, reached = f"{sign} {one['required']:,.10g}", "reached" if one["reached"] else "**missed**"
        lines.append(f"| {one['row']}: {one['what']} | {one['got']:,.3g} | {required} | {reached} |")
    machine = f"Machine: {known['cpu']}, {known['cores']} cores, {known['memory_mib']:,} MiB; Python {known['python']}."
    return [*lines, "", machine, ""]


def _rows(rows: Json) -> list[str]:
    """Return the table of rows, without the columns that no row of the part has."""
    columns = {head: cell for head, cell in COLUMNS.items() if any(cell(row) for row in rows.values())}
    lines = [f"| what | {' | '.join(columns)} |", f"|---|{'--:|' * len(columns)}"]
    for name, row in rows.items():
        cells = (cell(row) or "-" for cell in columns.values())
        lines.append(f"| {row['title']}: {name.rpartition(', ')[2]} | {' | '.join(cells)} |")
    return lines


def _median(row: Json, name: str) -> str:
    return f"{row[name]['median']:,.2f}" if name in row else ""


def _range(row: Json) -> str:
    return f"{row['seconds']['least']:,.2f}..{row['seconds']['most']:,.2f}" if "seconds" in row else ""


def _number(row: Json, name: str, form: str) -> str:
    return format(row[name], form) if name in row else ""


COLUMNS: Final[dict[str, Callable[[Json], str]]] = {
    "seconds, median": lambda row: _median(row, "seconds"),
    "least..most": _range,
    "of processors": lambda row: _median(row, "cpu_seconds"),
    "events/s": lambda row: _number(row, "events_per_second", ",d"),
    "simulated requests/s": lambda row: _number(row, "simulated_per_second", ",d"),
    "requests/s": lambda row: _number(row, "requests_per_second", ",d"),
    "first run": lambda row: _number(row, "cold_seconds", ",.1f"),
    "start": lambda row: _number(row, "start_seconds", ",.1f"),
    "refused before": lambda row: _number(row, "recorded_refused", ",d"),
    "refused after": lambda row: _number(row, "judged_refused", ",d"),
    "heap": lambda row: f"{row['advised_heap_mib']:,} MiB" if "advised_heap_mib" in row else "",
    "direct": lambda row: f"{row['advised_direct_mib']:,} MiB" if "advised_direct_mib" in row else "",
    "p99 after": lambda row: f"{row['judged_p99_ms']:,.0f} ms" if "judged_p99_ms" in row else "",
    "kills": lambda row: _number(row, "kills", ",d"),
    "tables": lambda row: _number(row, "tables", ",d"),
    "rows": lambda row: _number(row, "table_rows", ",d"),
    "differ": lambda row: _number(row, "differing", ",d"),
    "undisturbed, seconds": lambda row: _number(row, "undisturbed_seconds", ",.0f"),
    "error of the replay": lambda row: _number(row, "calibration_error", ".3f"),
    "peak RSS": lambda row: f"{row['peak_rss_bytes'] / MIB:,.0f} MiB" if "peak_rss_bytes" in row else "",
}
