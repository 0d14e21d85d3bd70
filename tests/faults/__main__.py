"""`python -m tests.faults`: run the fault matrix, whole or in part, and write what came of it to a file.

Rule: exit code 0 if every cell passed, 1 if one failed. The cells run in processes of their own, several at a time:
most of their time they wait for a clock of the proxy.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from time import monotonic

from tests.faults.cell import Result
from tests.faults.judged import in_a_loop
from tests.faults.results import RESULTS, load, place_of
from tests.faults.table import to_run

WORKERS = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cells and give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="only cells whose name has all of these, such as 'relay /' native")
    parser.add_argument("--workers", type=int, default=WORKERS, help="processes at a time (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help="keep the results in benchmarks/results/faults.json")
    options = parser.parse_args(arguments)
    chosen = [cell for cell in to_run() if all(word in cell.name for word in options.words)]
    began, failed, results = monotonic(), 0, list[Result]()
    with ProcessPoolExecutor(options.workers, get_context("spawn"), max_tasks_per_child=40) as pool:
        for result in pool.map(in_a_loop, chosen):
            results.append(result)
            failed += bool(result.failure)
            print(line_of(result), flush=True)
    print(f"{len(chosen)} cells, {failed} failed, {monotonic() - began:.0f} s")
    if options.write:
        RESULTS.write_text(document(results), encoding="utf-8")
    return int(bool(failed))


def line_of(result: Result) -> str:
    causes = ", ".join(f"{cause} {count}" for cause, count in result.causes.items() if count)
    verdict = f"FAILED: {result.failure}" if result.failure else "passed"
    return f"{result.cell.name}: {result.outcome} ({causes or 'no connection ended'}; {result.detail[:80]}) {verdict}"


def document(results: Sequence[Result]) -> str:
    """Return the file of results, a record a line: those of cells that were not run now stay as they are."""
    known = {place_of(record): record for record in load()}
    for result in results:
        causes = {cause: count for cause, count in result.causes.items() if count}
        ended = {"passed": not result.failure, "outcome": result.outcome, "causes": causes}
        known[tuple(result.cell)] = {**result.cell._asdict(), **ended}
    lines = ",\n  ".join(json.dumps(known[cell]) for cell in to_run() if cell in known)
    return f'{{\n "cells": [\n  {lines}\n ]\n}}\n'


if __name__ == "__main__":
    sys.exit(main())
