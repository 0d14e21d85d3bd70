"""Write the tables of benchmarks/results/README.md from the result files of the ladder and of the pipeline."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.ladder import report as ladder
from benchmarks.ladder.results import load
from benchmarks.ladder.scenarios import SCENARIOS
from benchmarks.pipeline import report as pipeline
from benchmarks.pipeline.parts import PARTS
from scripts.generated import ROOT, placed

PAGE = ROOT / "benchmarks/results/README.md"


def files() -> Mapping[Path, str]:
    parts = {
        "ladder": ladder.render(load(SCENARIOS)),
        "pipeline": pipeline.render(load(f"pipeline-{name}" for name in PARTS)),
    }
    marks = {name: (f"<!-- {name}: written by scripts/generate_results.py, do not edit -->", f"<!-- {name}: end -->")
             for name in parts}  # fmt: skip
    return {PAGE: placed(PAGE, {marks[name]: f"\n\n{part}\n\n" for name, part in parts.items()})}
