"""The command without the libraries of its jobs, as in the image of the proxy."""

import subprocess
import sys

import pytest

from tests.support.patience import patient

WITHOUT = "import sys; sys.modules[sys.argv.pop(1)] = None; from pipeline.cli import main; raise SystemExit(main())"


def said(missing: str, *arguments: str) -> tuple[int, str]:
    """Run the command where a package cannot be imported."""
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT, missing, *arguments],
        capture_output=True, text=True, timeout=patient(60), check=False,
    )  # fmt: skip
    return run.returncode, run.stderr


@pytest.mark.parametrize("missing", ["pyspark", "numpy"])
def test_a_job_without_its_libraries_names_the_extra(missing: str) -> None:
    assert said(missing, "advise", "--help") == (
        2,
        f"pulsar-proxy-pipeline advise: {missing} is not installed: this job needs the extra `pipeline`\n",
    )


def test_a_module_of_its_own_that_is_missing_is_a_fault_of_ours() -> None:
    code, text = said("pipeline.jobs.advise", "advise", "--help")
    assert code == 1
    assert "Traceback" in text
