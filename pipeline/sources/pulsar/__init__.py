"""Events from a Pulsar topic: a data source of our own for Spark, as a stream.

`require_topic`, `stream` and `lines` are all that jobs need; `explain` tells why a query of theirs failed. `source`
(what Spark calls), `options` (what a user says), `cluster` (what the admin interface says), `login`, `offsets` (how far
a batch goes), `reading` (one task), `errors`.
"""

from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.sources.pulsar.cluster import Cluster
from pipeline.sources.pulsar.errors import explain
from pipeline.sources.pulsar.options import PulsarSettings, to_spark
from pipeline.sources.pulsar.reading import connected
from pipeline.sources.pulsar.source import FORMAT, EventsSource

__all__ = ["PulsarSettings", "explain", "lines", "require_topic", "stream"]

# For the admin interface, and then for a broker: who is asked for the first time, and is away, shall say so soon.
FIRST_SECONDS: Final = 4


def require_topic(settings: PulsarSettings) -> None:
    """Raise TopicError if the topic cannot be reached, does not exist, or does not keep its messages; needs no Spark.

    A cluster that is away is told within ten seconds.
    """
    cluster = Cluster(settings, FIRST_SECONDS)
    cluster.states()
    cluster.require_keeping()
    with connected(settings, FIRST_SECONDS) as client:
        client.get_topic_partitions(settings.topic)


def stream(spark: SparkSession, settings: PulsarSettings) -> DataFrame:
    """Return the messages of the topic as a stream: value, topic (that of the partition), ledger_id, entry_id."""
    spark.dataSource.register(EventsSource)
    return spark.readStream.format(FORMAT).options(**to_spark(settings)).load()


def lines(frame: DataFrame) -> DataFrame:
    """Return the texts of `stream` as `pipeline.transforms.events.from_lines` takes them."""
    source = F.format_string("%s %d:%d", "topic", "ledger_id", "entry_id")
    return frame.select(F.col("value").cast("string").alias("value"), source.alias("source"))
