"""What test_object_store.py has two writers of one store do, in a JVM with the jars; prints what it saw as JSON."""

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipeline.core.errors import PipelineError
from pipeline.core.options import CommonSettings
from pipeline.ingest import IngestSettings, ingest
from pipeline.running.session import open_session
from pipeline.store.delta import DeltaStore
from pipeline.store.hadoop import HadoopFiles
from pipeline.store.lease import Clock
from tests.spark.object_store import ObjectStore
from tests.spark.one_session import TEST_CONF


def main(port: int) -> dict[str, object]:
    bucket = ObjectStore(port)
    out = bucket.uri("tables")
    spark = open_session("tests", CommonSettings(out, "delta", "local[2]", TEST_CONF | bucket.conf))
    seen: dict[str, object] = {"ingested at once": ingested_at_once(spark, bucket)}
    with DeltaStore(spark, out).exclusive():
        seen["refused"] = refusal(DeltaStore(spark, out, Clock(patience_seconds=2)))
    files = HadoopFiles(spark, bucket.uri("files"))
    seen["created"] = [files.create("a", "first"), files.create("a", "second"), files.read("a"), files.names()]
    seen["both of a plain race"] = race(spark, bucket.uri("race"))
    for key, value in (("impl.disable.cache", "true"), ("create.conditional.enabled", "false")):
        spark.conf.set(f"fs.s3a.{key}", value)
    seen["refused without conditional writes"] = refusal(DeltaStore(spark, out))
    spark.stop()
    return seen


def ingested_at_once(spark: SparkSession, bucket: ObjectStore) -> list[tuple[int, int]]:
    """Have two ingests take the same events into the same tables; gives what each has read and kept."""

    def one(session: SparkSession) -> tuple[int, int]:
        common = CommonSettings(bucket.uri("ingested"), "delta", None, {})
        counts = ingest(session, IngestSettings(common, bucket.uri("in")))
        return counts.read, counts.kept

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(one, (spark, spark.newSession())))


def refusal(store: DeltaStore) -> str:
    try:
        with store.exclusive():
            return ""
    except PipelineError as error:
        return str(error)


def race(spark: SparkSession, where: str) -> str:
    """Have two streams write one object as Delta writes a commit of its log: make it, unless it is there."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    path = jvm.org.apache.hadoop.fs.Path(where)
    files = path.getFileSystem(session.sessionState().newHadoopConf())
    streams = [files.create(path, False) for _ in range(2)]
    for number, stream in enumerate(streams):
        stream.write(bytearray(str(number).encode()))
    return ", ".join(said(stream.close) for stream in streams)


def said(work: Callable[[], object]) -> str:
    try:
        work()
    except Py4JJavaError as error:
        return str(error.java_exception.getClass().getSimpleName())
    return "written"


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
