"""Options and output that the micro benchmarks (`bench_*.py`) share."""

import argparse
import json
import platform
import sys
from collections.abc import Mapping


def options(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a benchmark, which ends within a few seconds when it is given `--quick`: tests run it so."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="few rounds of a small size, to see that it runs")
    return parser


def print_figures(figures: Mapping[str, object], **circumstances: str) -> None:
    """Print the figures as JSON, behind the machine and the circumstances of the run."""
    machine = {"python": sys.version.split()[0], "machine": platform.machine()}
    print(json.dumps({**machine, **circumstances, **figures}, indent=2))
