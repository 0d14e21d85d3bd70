"""Every micro benchmark runs: a benchmark that nobody starts for months still imports, measures and prints."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import patient

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = sorted(path.stem for path in (ROOT / "benchmarks").glob("bench_*.py"))


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_a_micro_benchmark_runs_and_prints_its_figures(benchmark: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patient(100), check=False)
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}: {done.stderr}"
    assert {"python", "machine"} < json.loads(done.stdout).keys()
