"""Own the one Spark of a run of tests: starting one costs more than most tests."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from pipeline.running.session import build_session
from tests.spark.jars import MissingJarsError, delta_jars
from tests.support.jvm import QUICK

# Spark's jars are searched in the order of a directory: with the largest first a session that starts, writes and merges
# takes a tenth less of processor time.
LARGEST_JARS = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"), key=lambda jar: -jar.stat().st_size)[:12]
# Small and quick to start, on two cores.
TEST_CONF = {
    "spark.sql.shuffle.partitions": "2",
    # Compiling a plan of sixty columns takes longer than to run it over a few rows; what is compiled is tried by
    # test_topic_ingest.py and the benchmarks.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # To plan each stage anew takes a fifth of all processor time; test_topic_ingest.py does.
    "spark.sql.adaptive.enabled": "false",
    # What vacuum lists directories with: sixteen tables, two cores.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.driver.extraClassPath": os.pathsep.join(map(str, LARGEST_JARS)),
    "spark.driver.extraJavaOptions": " ".join(QUICK),
}


@contextmanager
def one_session(warehouse: Path) -> Iterator[SparkSession]:
    """Give a session with two cores and Delta; raises MissingJarsError if there is no Java, or Maven brings no jars."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise MissingJarsError("the tests of the pipeline need Java 17: found neither java on the PATH nor JAVA_HOME")
    # Workers import what the driver imports, from the same checkout and environment.
    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PIPELINE_JARS"] = str(delta_jars())
    session = build_session("tests", "local[2]", TEST_CONF | {"spark.sql.warehouse.dir": str(warehouse)})
    yield session
    session.stop()
