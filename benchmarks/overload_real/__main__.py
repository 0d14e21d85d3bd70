"""The command line: `python -m benchmarks.overload_real`. Owns the result file and what each figure had to reach."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.ladder import machine, results
from benchmarks.ladder.verdict import Json, check
from benchmarks.overload_real.runs import run_neighbour, run_pressure
from benchmarks.overload_real.scene import Size
from tests.pulsar import java_consumers
from tests.pulsar.harness import run_broker
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.standalone import PULSAR_VERSION, MissingToolError
from tests.support.memory_group import NoMemoryGroupError

NAME: Final = "overload-real"
RUNS: Final = {"neighbour": run_neighbour, "pressure": run_pressure}
_QUICK: Final = Size(seconds=45.0, phase_seconds=10.0, pairs=1)
MOST_RATIO: Final = 1.2
MOST_CORES: Final = 0.8
MOST_CYCLES: Final = 4


def _run(size: Size, names: list[str]) -> Json:
    rows: dict[str, Json] = {}
    with tempfile.TemporaryDirectory(prefix="overload-real-") as name:
        directory = Path(name)
        with run_broker(directory, os.environ) as broker:
            for each in names:
                own = directory / each
                own.mkdir()
                # The rows of a file may be of several days (`--only`).
                rows[each] = {**RUNS[each](own, broker, size), "measured_on": machine.today()}
                print(f"  {each}: {rows[each]}", flush=True)
    checks = [one for each in names for one in _CHECKS[each](rows[each])]
    return {
        "scenario": NAME,
        "title": f"{size.producers} producers in Java and Python, a memory cgroup of {size.limit_mib} MiB, "
        f"pulsar {PULSAR_VERSION}",
        "kind": NAME,
        "measured_on": machine.today(),
        "valid": True,
        "invalid_because": [],
        "machine": machine.facts(),
        "rows": rows,
        "checks": checks,
    }


def _of_neighbour(row: Json) -> list[Json]:
    return [
        check("p99 of the delay under pressure, by that without", "neighbour", row["ratio"], MOST_RATIO),
        check("cores busy", "neighbour", row["most_cores_busy"], MOST_CORES),
    ]


def _of_pressure(row: Json) -> list[Json]:
    memory = row["memory"]
    return [
        check("memory of process and sockets, bytes", "pressure", memory["peak_bytes"], memory["line_bytes"]),
        check("connections made again", "pressure", row["connections_made_again"], 0),
        check("producers with lost, doubled or overtaken messages", "pressure", len(row["faults"]), 0),
        check("cycles until all are read again", "pressure", row["cycles_of_last_release"], MOST_CYCLES),
    ]


_CHECKS: Final = {"neighbour": _of_neighbour, "pressure": _of_pressure}


def main() -> int:
    """Run and write the result; 1 if something was missed or could not run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overload_real", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short look; the result is not kept")
    parser.add_argument("--only", choices=tuple(RUNS), help="one run; the kept rows of the others stay")
    parser.add_argument("--seconds", type=float, help="the seconds under pressure, 600 by default")
    options = parser.parse_args()
    size = _QUICK if options.quick else Size()
    if options.seconds:
        size = replace(size, seconds=options.seconds)
    try:
        java_consumers.prepare()
        result = _run(size, [options.only] if options.only else list(RUNS))
    except (MissingToolError, NoMemoryGroupError, ProcessFailedError) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if options.only and not options.quick:
        result = _merged(result)
    results.write(NAME, result, kept=not options.quick)
    missed = [one for one in result["checks"] if not one["reached"]]
    for one in missed:
        print(f"  MISSED {one['row']}: {one['what']} is {one['got']}, required {one['required']}")
    return int(bool(missed))


def _merged(result: Json) -> Json:
    """Return the result with the rows and checks of runs that were not run now, as they are kept."""
    try:
        before = results.load(NAME)
    except FileNotFoundError:
        return result
    result["rows"] = {**before["rows"], **result["rows"]}
    ran = {one["row"] for one in result["checks"]}
    result["checks"] = [one for one in before["checks"] if one["row"] not in ran] + result["checks"]
    return result


if __name__ == "__main__":
    sys.exit(main())
