"""The command line: `python -m benchmarks.pipeline [PART...]`. Owns the result files, `results/pipeline-*.json`."""

from __future__ import annotations

import argparse
import json
import sys
import time

from benchmarks.ladder import machine
from benchmarks.ladder.run import QUICK_RESULTS, RESULTS
from benchmarks.pipeline.parts import PARTS, run_part


def main() -> int:
    """Measure the parts that are asked for; 1 if one missed what it had to reach."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="a short look; the result goes to .cache/ only")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"got {', '.join(sorted(unknown))}, expected some of {', '.join(PARTS)}")
    directory = QUICK_RESULTS if options.quick else RESULTS
    directory.mkdir(parents=True, exist_ok=True)
    missed = 0
    for name in options.parts or PARTS:
        print(f"pipeline-{name}", flush=True)
        result = run_part(name, options.quick)
        result |= {"measured_on": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine.facts()}
        (directory / f"pipeline-{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        for one in result["checks"]:
            missed += not one["reached"]
            bound = "" if one["required"] is None else f" (required {one['required']})"
            print(f"  {'' if one['reached'] else 'MISSED '}{one['row']}: {one['what']} is {one['got']:.3g}{bound}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
