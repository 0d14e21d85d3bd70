"""Write the tables of benchmarks/results/README.md from the result files of the ladder and of the pipeline."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.ladder import report as ladder
from benchmarks.pipeline import report as pipeline
from scripts.generated import ROOT, placed

PAGE = ROOT / "benchmarks/results/README.md"


def files() -> Mapping[Path, str]:
    parts = {"ladder": ladder.render(ladder.load_results()), "pipeline": pipeline.render(pipeline.load_results())}
    marks = {name: (f"<!-- {name}: written by scripts/generate_results.py, do not edit -->", f"<!-- {name}: end -->")
             for name in parts}  # fmt: skip
    return {PAGE: placed(PAGE, {marks[name]: f"\n\n{part}\n\n" for name, part in parts.items()})}
