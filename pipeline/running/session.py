"""The Spark session: the one place that knows how Spark must be set up here.

Rule: nothing else touches the Spark context. `--conf` goes before what spark-submit was told, and that before the
defaults here, which are what a laptop needs. Only the time zone is not to be chosen: everything is counted in UTC.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from delta import configure_spark_with_delta_pip
from py4j.java_gateway import JavaPackage
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.paths import refuse_unwritable
from pipeline.running.stopping import end_calls_quietly

LOCAL_MASTER: Final = "local[*]"
UTC: Final = {"spark.sql.session.timeZone": "UTC"}
# Data frames travel to Python as Arrow; an unused UI would open a port.
USUAL: Final = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    # Without, each task sorts all its rows by date before it writes them; so few files at once need no order.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
    # A run over all jobs has more generated classes than Spark keeps, 100: each plan would be compiled anew each time.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # HotSpot compiles no larger method: Spark would have it interpreted, row by row, where smaller ones are to be had.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # Groups here are more than Spark's small first map takes: each of the others would be looked for in both.
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
}
LOCAL: Final = {
    # Left alone, Spark listens on the first network address that it finds.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # Spark describes each plan, and each change of one, for that page.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.debug.maxToStringFields": "5",
    "spark.driver.memory": "2g",
    # HotSpot's second compiler is for loops over rows. At a tenth of these bounds, its own, it takes half of all
    # processor time for code that plans and compiles, of which each run has more.
    "spark.driver.extraJavaOptions": "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000",
}
# Tasks after a shuffle, for each core of a local master; a cluster has Spark's own default.
SHUFFLED_PER_CORE: Final = 2
# The environment names the directory of jars that Spark does not bring: in an image, or without a network.
JARS: Final = "PIPELINE_JARS"
# Spark has these: without this Delta's package brings another Hadoop beside Spark's own, and ten times the bytes.
SPARKS_OWN: Final = (
    "org.apache.*:*,org.scala-lang:*,org.slf4j:*,com.fasterxml.*:*,org.xerial.snappy:*,com.github.luben:*,io.airlift:*"
)
# Spark's logger that says that it skips the rest of a file.
TELLS_OF_DAMAGE: Final = "org.apache.spark.sql.execution.datasources.FileScanRDD"
# Spark's loggers that print a failed task, or a batch that was refused, each the whole stack again.
TELL_OF_TASKS: Final = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.FileFormatWriter",
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution",
    "org.apache.spark.util.Utils",
)
DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta's default of 50 makes every small commit slow.
    "spark.databricks.delta.snapshotPartitions": "2",
    # Of a table's first columns Delta keeps the least and the largest of each file, by a class made for that table: up
    # to `ts_us` of events somebody looks for rows by them. For its default of 32 a small job makes classes for longer.
    "spark.databricks.delta.properties.defaults.dataSkippingNumIndexedCols": "7",
    # Delta's vacuum lists directories in as many tasks; Spark's default of 10,000 makes a minute of a few directories.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
}


@contextmanager
def at_work(job: str, settings: CommonSettings, *, writes: bool = True) -> Iterator[SparkSession]:
    """Open the session of a job until the block ends; raises PipelineError where it `writes` tables and cannot."""
    if writes:
        refuse_unwritable("--out", settings.out)
    end_calls_quietly()
    session = build_session(job, settings.master, settings.conf)
    # Spark has set a handler of its own.
    end_calls_quietly()
    try:
        if writes:
            _refuse_two_writers(session, settings.out)
        yield session
    finally:
        session.stop()


def _refuse_two_writers(session: SparkSession, out: str) -> None:
    """Raise PipelineError where the second of two that write the same version of a table would overwrite the first.

    Delta's own log store for S3 knows of the writers of one driver only.
    """
    scheme = out.partition("://")[0]
    key = f"spark.delta.logStore.{scheme}.impl"
    if scheme in ("s3", "s3a", "s3n") and session.conf.get(key, None) is None:
        raise PipelineError(
            f"--out {out}: got no {key}, expected io.delta.storage.S3DynamoDBLogStore, by which several jobs may write,"
            " or io.delta.storage.S3SingleDriverLogStore where one job at a time does (--conf)"
        )


def build_session(app: str, master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Make, or find, the session; raises PipelineError if there is no Java.

    Without `master` it is that of spark-submit, else `local[*]`.
    """
    # Workers would take the first python3 of the PATH, which knows no pandas.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"pulsar-proxy-pipeline {app}")
    # spark-submit starts the JVM first and tells its Python process where it listens.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is None and not submitted:
        master = LOCAL_MASTER
    if master is not None:
        builder = builder.master(master)
    settings = dict(USUAL)
    if master is not None and master.startswith("local"):
        settings |= LOCAL | {"spark.sql.shuffle.partitions": str(max(4, SHUFFLED_PER_CORE * _cores(master)))}
    settings |= DELTA
    told: dict[str, str] = {}
    if submitted:
        SparkContext._ensure_initialized()
        told = dict(SparkConf().getAll())
    else:
        builder = _with_jars(builder)
    for key, value in _chosen(settings, told, conf or {}).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise PipelineError(_why_no_session(error), ExitCode.FAILED) from error
    if isinstance(_jvm(session).io.delta.tables.DeltaTable, JavaPackage):
        raise PipelineError(
            f"spark found no Delta Lake, expected its jars in {JARS}, or with spark-submit in --jars",
            ExitCode.FAILED,
        )
    session.sparkContext.setLogLevel("ERROR")
    _name_damaged_files(session)
    return session


@contextmanager
def tasks_fail_quietly(session: SparkSession) -> Iterator[None]:
    """Keep the stack traces of failed tasks out of Spark's log; the exception that ends the job has them, too."""
    log4j = _jvm(session).org.apache.logging.log4j
    before = {name: log4j.LogManager.getLogger(name).getLevel() for name in TELL_OF_TASKS}
    for name in TELL_OF_TASKS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
    try:
        yield
    finally:
        for name, level in before.items():
            log4j.core.config.Configurator.setLevel(name, level)


@contextmanager
def nothing_printed(session: SparkSession) -> Iterator[None]:
    """Keep off the standard output what Scala prints there for this thread: Delta, a line for each table cleaned."""
    console, io = getattr(getattr(_jvm(session).scala, "Console$"), "MODULE$"), _jvm(session).java.io
    before = console.out()
    console.setOutDirect(io.PrintStream(io.OutputStream.nullOutputStream()))
    try:
        yield
    finally:
        console.setOutDirect(before)


def _jvm(session: SparkSession) -> Any:
    return session._jvm


def _name_damaged_files(session: SparkSession) -> None:
    """Name each damaged file in Spark's log, in one line without the stack trace."""
    log4j = _jvm(session).org.apache.logging.log4j
    logger = log4j.LogManager.getLogger(TELLS_OF_DAMAGE)
    if TELLS_OF_DAMAGE in logger.getAppenders():
        return
    layout = log4j.core.layout.PatternLayout.newBuilder().withPattern("%p %c{1}: %m%n%ex{0}").build()
    console = log4j.core.appender.ConsoleAppender.newBuilder()
    console.setName(TELLS_OF_DAMAGE)
    console.setLayout(layout)
    console.setTarget(getattr(log4j.core.appender, "ConsoleAppender$Target").SYSTEM_ERR)
    appender = console.build()
    appender.start()
    logger.setAdditive(False)
    logger.addAppender(appender)
    log4j.core.config.Configurator.setLevel(TELLS_OF_DAMAGE, log4j.Level.WARN)


def _chosen(usual: Mapping[str, str], submitted: Mapping[str, str], conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings to make: ours where nobody has told others, `conf`, and the time zone."""
    ours = {key: value for key, value in usual.items() if key not in submitted}
    return ours | dict(conf) | UTC


def _cores(master: str) -> int:
    found = re.match(r"local\[(\d+|\*)", master)
    if found is None:
        return 1
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1])


def _why_no_session(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    if "JAVA_GATEWAY_EXITED" in text or "Java gateway" in text:
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            return "spark did not start: got no Java virtual machine, expected Java 17 or later (set JAVA_HOME)"
        brought = f", and the jars of Delta Lake from Maven Central or in {JARS}=DIR" * (JARS not in os.environ)
        return f"spark did not start, its own words are above: expected Java 17 or later (set JAVA_HOME){brought}"
    return f"spark did not start: {text.splitlines()[0]}"


def _with_jars(builder: Any) -> Any:
    """Return the builder with the jars of Delta: those in the directory `PIPELINE_JARS`, else those from Maven."""
    if JARS not in os.environ:
        return configure_spark_with_delta_pip(builder).config("spark.jars.excludes", SPARKS_OWN)
    directory = Path(os.environ[JARS])
    jars = sorted(directory.glob("*.jar"))
    if not jars:
        raise PipelineError(f"{JARS}: found no jar in {directory}, expected those of Delta Lake")
    return builder.config("spark.jars", ",".join(map(str, jars)))
