"""`python -m tests.faults`: run the fault matrix, whole or in part, and write what came of it to a file.

Rule: exit code 0 if every cell passed, 1 if one failed. The cells run in processes of their own, several at a time:
most of their time they wait for a clock of the proxy.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from time import monotonic

from tests.faults.cell import Result, in_a_loop
from tests.faults.results import RESULTS, load, place_of
from tests.faults.table import Cell, to_run

WORKERS = 4
# A process for so many cells: what one leaves behind must not be the next one's for long.
CELLS_OF_A_PROCESS = 40


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cells and give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="only cells whose name has all of these, such as 'relay /' native")
    parser.add_argument("--workers", type=int, default=WORKERS, help="processes at a time (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help="keep the results in benchmarks/results/faults.json")
    options = parser.parse_args(arguments)
    chosen = [cell for cell in to_run() if all(word in cell.name for word in options.words)]
    began, failed, results = monotonic(), 0, list[Result]()
    for result in in_processes(chosen, options.workers):
        results.append(result)
        failed += bool(result.failure)
        print(line_of(result), flush=True)
        if options.write and (len(results) % CELLS_OF_A_PROCESS == 0 or len(results) == len(chosen)):
            RESULTS.write_text(document(results), encoding="utf-8")
    print(f"{len(chosen)} cells, {failed} failed, {monotonic() - began:.0f} s")
    return int(bool(failed))


def in_processes(given: Sequence[Cell], workers: int) -> Iterator[Result]:
    """Yield the results, in their order.

    A pool for each part: `max_tasks_per_child` of Python 3.11 may end all processes and start no other.
    """
    for part in range(0, len(given), workers * CELLS_OF_A_PROCESS):
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            yield from pool.map(in_a_loop, given[part : part + workers * CELLS_OF_A_PROCESS])


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
