"""Commands of the mutants: `python -m tests.mutants --help`."""

import argparse
from pathlib import Path

from tests.mutants import choosing, covering
from tests.mutants.running import BASELINE, KILLED, NOW, Results, run_all


def _report(results: Results) -> None:
    print(f"{'room':16}{'killed':>8}{'survived':>10}{'uncovered':>11}{'open':>6}{'gone':>6}{'not run':>9}")
    for room in choosing.ROOMS:
        rows = [results.rows.get(mutant.name, {}) for mutant in choosing.chosen() if mutant.room == room]
        outcomes = [row.get("outcome", "") for row in rows]
        killed = sum(outcome in KILLED for outcome in outcomes)
        still_open = sum(any(left for _, left in row.get("tests", {}).values()) for row in rows)
        survived, uncovered, gone, not_run = (outcomes.count(name) for name in ("survived", "uncovered", "gone", ""))
        print(f"{room:16}{killed:8}{survived - still_open:10}{uncovered:11}{still_open:6}{gone:6}{not_run:9}")


def _compare(now: Results) -> None:
    """Print how many of those that were killed at the baseline die now, by stage, and name those that do not."""
    before = Results(BASELINE).rows
    then = [each for each in choosing.chosen() if before.get(each.name, {}).get("outcome") in KILLED]
    rows = {mutant.name: now.rows.get(mutant.name, {}) for mutant in then}
    stages = [row["stage"] for row in rows.values() if row.get("outcome") in KILLED]
    print(f"killed at the baseline: {len(then)}; of these die now: {len(stages)}")
    for stage in covering.STAGES:
        print(f"  {stage}: {stages.count(stage)}")
    for mutant in then:
        if rows[mutant.name].get("outcome") not in KILLED:
            outcome = rows[mutant.name].get("outcome", "not run")
            print(f"  {outcome}: {mutant.name} {mutant.file} {mutant.function}: {mutant.old} -> {mutant.new}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.mutants")
    parser.add_argument("command", choices=("run", "report", "compare", "cover", "choose"))
    parser.add_argument("--results", type=Path, default=NOW, help="baseline.json: a report of the baseline")
    parser.add_argument("--room", choices=choosing.ROOMS)
    parser.add_argument("--stage", choices=covering.STAGES, help="this one only")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--bound", type=float, default=300.0, help="seconds of tests a mutant and stage")
    parser.add_argument("--open", action="store_true", help="also those of whose tests some are left, from there on")
    asked = parser.parse_args()
    results = Results(asked.results)
    stages = [asked.stage] if asked.stage else list(covering.STAGES)
    match asked.command:
        case "choose":
            choosing.write_choice()
        case "cover":
            for stage in stages:
                covering.cover(stage)
        case "run":
            for stage in stages:
                if not covering.covered(stage):
                    covering.cover(stage)
            mutants = [mutant for mutant in choosing.chosen() if asked.room in (None, mutant.room)]
            lacking = [(mutant, lacks) for mutant in mutants if (lacks := results.lacks(mutant, stages, asked.open))]
            run_all(lacking, results, asked.minutes, asked.jobs, asked.bound)
            _report(results)
        case "report":
            _report(results)
        case "compare":
            _compare(results)


if __name__ == "__main__":
    main()
