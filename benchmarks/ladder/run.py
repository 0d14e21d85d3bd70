"""The command line of the ladder: `python -m benchmarks.ladder.run SCENARIO…`. Owns the result files."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable

from benchmarks.ladder import disk, machine, measure, neighbours, results, servers, verdict
from benchmarks.ladder.measure import Effort, Measured, say
from benchmarks.ladder.neighbours import NEIGHBOURS
from benchmarks.ladder.processes import LadderError, end_on_signals
from benchmarks.ladder.rows import ROWS, SPILL, Scenario
from benchmarks.ladder.scenarios import SCENARIOS
from benchmarks.ladder.servers import build_loadgen, missing

GROUPS = {
    "all": tuple(SCENARIOS),
    "tls": tuple(name for name, scenario in SCENARIOS.items() if scenario.tls),
    "hostile": tuple(name for name in SCENARIOS if name.startswith(NEIGHBOURS)),
}
QUICK = Effort(pairs=3, seconds=1.5, java_warmup_seconds=8.0, starts=3, repeat=False, flood_seconds=2.0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ladder.run", description=__doc__)
    parser.add_argument("scenarios", nargs="+", choices=[*SCENARIOS, *GROUPS], metavar="SCENARIO",
                        help=", ".join(SCENARIOS) + ", or " + " or ".join(GROUPS))  # fmt: skip
    parser.add_argument("--pairs", type=int, help="rounds of all rows (7)")
    parser.add_argument("--seconds", type=float, help="length of one run (4)")
    parser.add_argument("--rows", help="only these rows, as in 01,06,07; the result is not kept")
    parser.add_argument("--quick", action="store_true", help="a short look; the result is not kept")
    return parser.parse_args()


def _effort(options: argparse.Namespace) -> Effort:
    base = QUICK if options.quick else Effort()
    return Effort(
        pairs=options.pairs or base.pairs,
        seconds=options.seconds or base.seconds,
        java_warmup_seconds=base.java_warmup_seconds,
        starts=base.starts,
        repeat=base.repeat,
        flood_seconds=options.seconds or base.flood_seconds,
    )


def _rows(scenario: Scenario, wanted: str | None) -> tuple[str, ...]:
    names = tuple(wanted.split(",")) if wanted else scenario.rows
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        raise LadderError(f"--rows: got {', '.join(unknown)}, expected some of {', '.join(ROWS)}")
    present = []
    for name in names:
        if name not in scenario.rows:
            continue
        if reason := missing(name):
            say(f"  row {name} ({ROWS[name].title}) is left out: {reason}")
        else:
            present.append(name)
    if not present:
        raise LadderError(f"no row to run, expected some of {', '.join(scenario.rows)}")
    return tuple(present)


def _result(name: str, scenario: Scenario, rows: dict[str, Measured], effort: Effort) -> verdict.Json:
    quantity, cores = scenario.quantity, machine.cores()
    judged = [verdict.ratio_json(ratio, rows, quantity) for ratio in scenario.ratios]
    ratios = [ratio for ratio in judged if ratio is not None]
    for ratio in ratios:
        ratio["uncounted_because"] = verdict.uncounted(ratio, ratios, rows, cores)
    reasons = verdict.invalid(scenario, rows)
    return {
        "scenario": name,
        "title": scenario.title,
        "kind": scenario.kind,
        "quantity": quantity,
        "unit": scenario.unit,
        "measured_on": machine.today(),
        "valid": not reasons,
        "invalid_because": reasons,
        "behind": verdict.behind(ratios),
        "machine": machine.facts(),
        "effort": vars(effort),
        "rows": {
            row: {"title": ROWS[row].title, **verdict.row_json(rows[row], quantity, cores)} for row in sorted(rows)
        },
        "ratios": ratios,
        "checks": verdict.checks(scenario, rows),
        **_disk(rows),
    }


def _disk(rows: Iterable[str]) -> verdict.Json:
    """Return what the disk does by itself, if lists of a row go there."""
    return {"disk": disk.rates(servers.RUN)} if any(SPILL in ROWS[row].settings for row in rows) else {}


def _show(result: verdict.Json) -> None:
    for name, row in result["rows"].items():
        if found := row.get("processor"):
            own = f"{row['cpu_us']['median']:.1f} us a {result['unit']}, " if "cpu_us" in row else ""
            limits = " and ".join(found["limits"]) or "no processor, so its throughput does not count"
            busy = f"{found['cores_busy']:.2f} cores busy, thread {found['thread_busy']:.2f}"
            say(f"  row {name}: {own}{busy}, limit: {limits}")
    for ratio in result["ratios"]:
        span = f"{ratio['median']:.3f} [{ratio['least']:.3f}..{ratio['most']:.3f}]"
        words = [span, _against(ratio), *(f"({reason}: does not count)" for reason in ratio["uncounted_because"])]
        say(f"  {ratio['over']}/{ratio['under']} {ratio['quantity']}: {' '.join(filter(None, words))}")
    for found in result["checks"]:
        if found["what"] not in verdict.FAULTS or not found["reached"]:
            say(f"  row {found['row']} {found['what']}: {found['got']:g} {_against(found)}")
    if "disk" in result:
        found = result["disk"]
        rates = f"write {found['write_mb_per_second']:g} MB/s, read {found['read_mb_per_second']:g} MB/s"
        say(f"  the disk by itself, in steps of 1 MiB: {rates}")
    for reason in result["invalid_because"]:
        say(f"  not valid: {reason}")


def _against(judged: verdict.Json) -> str:
    if judged["required"] is None:
        return ""
    sign, word = ("<=" if judged["at_most"] else ">="), ("ok" if judged["reached"] else "MISSED")
    return f"{sign} {judged['required']:g} {word}"


def _run(name: str, options: argparse.Namespace) -> verdict.Json:
    scenario, effort = SCENARIOS[name], _effort(options)
    say(f"{name}: {scenario.title}")
    rows = measure.RUNNERS[scenario.kind](scenario, _rows(scenario, options.rows), effort)
    result = _result(name, scenario, rows, effort)
    _show(result)
    results.write(name, result, kept=not (options.quick or options.rows))
    return result


def expanded(names: list[str]) -> list[str]:
    """Return the scenarios of these names and groups, each once, in the order of the first mention."""
    return list(dict.fromkeys(each for name in names for each in GROUPS.get(name, (name,))))


def main() -> int:
    options = _options()
    end_on_signals()
    try:
        build_loadgen()
        begun, done = time.monotonic(), []
        for name in expanded(options.scenarios):
            done.append(_run(name, options))
            say(f"  {(time.monotonic() - begun) / 60:.1f} minutes so far")
        if lines := neighbours.table(done):
            print("\n".join(lines), flush=True)
    except LadderError as error:
        say(f"ladder: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
