"""Events from a Pulsar topic: a data source of our own for Spark, in batches and in streams.

`stream` and `batch` are all that jobs need; `errors.explain` tells why a query of theirs failed.
"""

from pyspark.sql import DataFrame, SparkSession

from pipeline.sources.pulsar.errors import explain
from pipeline.sources.pulsar.options import SCHEMES, PulsarSettings, add_arguments, settings, to_spark
from pipeline.sources.pulsar.source import FORMAT, EventsSource

__all__ = ["SCHEMES", "PulsarSettings", "add_arguments", "batch", "explain", "settings", "stream"]


def stream(spark: SparkSession, settings: PulsarSettings) -> DataFrame:
    """Give the topic as a stream: value, topic, partition, ledger_id, entry_id, batch_index, publish_time, key."""
    spark.dataSource.register(EventsSource)
    return spark.readStream.format(FORMAT).options(**to_spark(settings)).load()


def batch(spark: SparkSession, settings: PulsarSettings) -> DataFrame:
    """Give what the topic holds from `start` on, with the columns of `stream`; each action reads it anew."""
    spark.dataSource.register(EventsSource)
    return spark.read.format(FORMAT).options(**to_spark(settings)).load()
