"""An ingest as a process of its own: what a user sees of damaged files, and of one that is refused."""

import gzip
import os
import sys
from pathlib import Path

from pipeline.core.errors import ExitCode
from tests.spark.jars import delta_jars
from tests.spark.one_session import TEST_CONF
from tests.spark.processes import process
from tests.support.patience import patient
from tests.support.pipeline.event_lines import event, text


def test_damage_is_said_in_a_line_and_a_refusal_without_a_traceback(tmp_path: Path) -> None:
    source, log = tmp_path / "in", tmp_path / "log"
    source.mkdir()
    damaged = source / "damaged.jsonl.gz"
    damaged.write_bytes(gzip.compress(text(event(seq) for seq in range(1000, 1050)).encode())[:-20])
    # The older of both is a batch of its own.
    os.utime(damaged, (1, 1))
    (source / "bad.jsonl").write_text("no json\n")
    words = [f"--conf={key}={value}" for key, value in TEST_CONF.items()]
    words += ["--source", str(source), "--out", str(tmp_path / "out"), "--max-files", "1", "--fail-if-quarantined", "0"]
    command = [sys.executable, "-m", "pipeline.cli", "ingest", "--master", "local[2]", *words]
    with process(command, log, os.environ | {"PIPELINE_JARS": str(delta_jars())}) as child:
        assert child.wait(patient(250)) == ExitCode.QUARANTINED
    said = log.read_text()
    assert sum("corrupted file" in line and damaged.name in line for line in said.splitlines()) == 1
    assert "Unexpected end of input stream" not in said
    assert "Traceback" not in said
