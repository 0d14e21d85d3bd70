"""The same tables in Delta Lake."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.jars import MissingJarsError, delta_jars
from tests.support.patience import patient

ROOT = Path(__file__).resolve().parents[2]
# A JVM of its own, and Delta commits slowly: minutes on a machine that does much else.
SECONDS = 850


@pytest.mark.timeout(900)
def test_delta_takes_batches_and_streams_once_and_compacts(tmp_path: Path) -> None:
    try:
        jars = delta_jars()
    except MissingJarsError as error:
        pytest.fail(str(error))
    environ = {**os.environ, "PIPELINE_JARS": str(jars), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.spark.delta_scenario", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=patient(SECONDS), check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    batch, stream = seen["batch"], seen["stream"]
    assert (batch["read"], batch["kept"], batch["duplicates"]) == (5, 3, 1)
    assert batch["quarantined"] == {"malformed": 1}
    # Its first batch has all three files; what is ten days old is late, but is in the table already.
    assert (stream["read"], stream["kept"], stream["duplicates"]) == (7, 1, 5)
    assert stream["quarantined"] == {"malformed": 1}
    assert seen["seqs"] == [0, 1, 2, 9]
    assert seen["quarantine"] == [["malformed", None, 1]]
    assert seen["compacted"] == 2
    assert seen["seqs after"] == [0, 1, 2]
    # A stream of `usage` goes on, and is told from a batch and from one with another checkpoint.
    assert seen["followed"] == 4
    assert "a table `usage` that a stream adds to" in seen["refused"][0]
    assert "got none at the checkpoint" in seen["refused"][1]
