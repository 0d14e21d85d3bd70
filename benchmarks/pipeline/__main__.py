"""The command line: `python -m benchmarks.pipeline [PART...]`. Result files: `results/pipeline-*.json`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from typing import Any

from benchmarks.ladder import machine, results
from benchmarks.pipeline.parts import PARTS, run_part


def main() -> int:
    """Measure the parts that are asked for; 1 if one missed what it had to reach."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"of {', '.join(PARTS)}; default: all",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the size; results go to .cache/ only")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"got {', '.join(sorted(unknown))}, expected some of {', '.join(PARTS)}")
    missed = 0
    for name in options.parts or PARTS:
        print(f"pipeline-{name}", flush=True)
        began = time.monotonic()
        try:
            result = run_part(name, options.quick)
        except Exception:
            # The results of the other parts are worth having.
            traceback.print_exc()
            print(f"pipeline-{name}: FAILED after {time.monotonic() - began:,.0f} s", flush=True)
            missed += 1
            continue
        took = round(time.monotonic() - began)
        result |= {"measured_on": machine.today(), "took_seconds": took}
        result["machine"] = machine.facts()
        results.write(f"pipeline-{name}", result, kept=not options.quick)
        missed += sum(not one["reached"] for one in result["checks"])
        _tell(result)
        print(f"pipeline-{name}: {took:,} s", flush=True)
    return int(missed > 0)


def _tell(result: dict[str, Any]) -> None:
    for one in result["checks"]:
        bound = "" if one["required"] is None else f" (required {one['required']})"
        print(f"  {'' if one['reached'] else 'MISSED '}{one['row']}: {one['what']} is {one['got']:.3g}{bound}")


if __name__ == "__main__":
    sys.exit(main())
