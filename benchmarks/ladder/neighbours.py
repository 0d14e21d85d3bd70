"""The one table of all scenarios with hostile or slow neighbours: what was asked of each row, and whether it held."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.ladder.hostile_scenarios import FLOOR
from benchmarks.ladder.rows import MIB
from benchmarks.ladder.verdict import FAULTS, GROWN

# The beginning of the names of such scenarios.
HOSTILE: Final = "hostile-"
NEIGHBOURS: Final = (HOSTILE, "mixed-storm")
TITLES: Final = ("scenario", "row", "asked", "got", "allowed", "idle echo, p99", "lookup p99", "list p99", *FAULTS[:2],
                 "RSS above idle", "budget", "permits left", "verdict")  # fmt: skip
HELD: Final = "held_at_end"

Json = dict[str, Any]


def table(results: list[Json]) -> list[str]:
    """Return the table and a line that counts; nothing if none of the results is of such a scenario."""
    judged = [
        (result, row) for result in results if result["scenario"].startswith(NEIGHBOURS) for row in _asked_rows(result)
    ]
    if not judged:
        return []
    kept = sum(not missed(result, row) for result, row in judged)
    lines = [_line(TITLES), "|---|---|---|" + "--:|" * (len(TITLES) - 4) + "---|"]
    lines += [_line(_cells(result, row)) for result, row in judged]
    return [*lines, "", f"{kept} of {len(judged)} passed, {len(judged) - kept} missed."]


def missed(result: Json, row: str) -> list[str]:
    """Return what the row did not keep."""
    return [check["what"] for check in _checks(result, row) if not check["reached"]]


def _asked_rows(result: Json) -> list[str]:
    return list(dict.fromkeys(check["row"] for check in result["checks"]))


def _checks(result: Json, row: str) -> list[Json]:
    return [check for check in result["checks"] if check["row"] == row]


def _cells(result: Json, row: str) -> list[str]:
    checks = {check["what"]: check for check in _checks(result, row)}
    # The first bound of a scenario is what it is about.
    main, grown = next(iter(checks.values())), checks[GROWN]
    runs = result["rows"][row]["runs"]
    return [
        result["scenario"],
        row,
        main["what"],
        # Times are told apart by the second digit.
        f"{main['got']:,.2f}",
        f"{main['required']:,.1f}",
        *(_worst(runs, quantity) for quantity in (FLOOR, "lookup_p99_ms", "list_p99_ms")),
        *(f"{checks[fault]['got']:,}" for fault in FAULTS[:2]),
        f"{grown['got'] / MIB:,.0f} MiB",
        f"{grown['required'] / MIB:,.0f} MiB",
        _worst(runs, HELD, digits=0),
        _verdict(missed(result, row)),
    ]


def _worst(runs: list[Json], quantity: str, digits: int = 1) -> str:
    return f"{max(run[quantity] for run in runs):,.{digits}f}" if all(quantity in run for run in runs) else "-"


def _verdict(not_kept: list[str]) -> str:
    return f"**missed**: {'; '.join(not_kept)}" if not_kept else "passed"


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"
