"""One Spark for all tests here: starting one costs more than most tests."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.running.session import build_session
from tests.spark.jars import MissingJarsError, delta_jars
from tests.support.jvm import QUICK

# Small and quick to start, on two cores.
TEST_CONF = {
    "spark.sql.shuffle.partitions": "2",
    # Compiling a plan of sixty columns takes longer than to run it over a few rows; what is compiled is tried by the
    # benchmarks and the demo.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Spark describes each plan for a page that nobody opens: a seventh of all processor time with plans so small.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.debug.maxToStringFields": "5",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": " ".join(QUICK),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # A JVM and Python workers start within the first tests.
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.fail("the tests of the pipeline need Java 17: found neither java on the PATH nor JAVA_HOME")
    # Workers import what the driver imports, from the same checkout.
    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    try:
        os.environ["PIPELINE_JARS"] = str(delta_jars())
    except MissingJarsError as error:
        pytest.fail(str(error))
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = build_session("tests", "local[2]", TEST_CONF | {"spark.sql.warehouse.dir": str(warehouse)}, delta=True)
    yield session
    session.stop()
