"""Events from a Pulsar topic: a data source of our own for Spark, as a stream.

`stream` and `lines` are all that jobs need; `explain` tells why a query of theirs failed. `source` (what
Spark calls), `options` (what a user says), `catalog` (what a topic has), `offsets` (how far a batch goes), `reading`
(one task), `client`, `credentials` (log in), `admin` (questions), `keeping` (retention), `errors`.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.sources.pulsar.catalog import open_catalog
from pipeline.sources.pulsar.errors import explain
from pipeline.sources.pulsar.keeping import require_keeping
from pipeline.sources.pulsar.options import PulsarSettings, to_spark
from pipeline.sources.pulsar.source import FORMAT, EventsSource

__all__ = ["PulsarSettings", "explain", "lines", "stream"]


def stream(spark: SparkSession, settings: PulsarSettings) -> DataFrame:
    """Return the topic as a stream: value, topic, partition, ledger_id, entry_id, batch_index, publish_time, key.

    Raises TopicError if it cannot be reached, does not exist, or does not keep its messages.
    """
    open_catalog(settings).states()
    require_keeping(settings)
    spark.dataSource.register(EventsSource)
    return spark.readStream.format(FORMAT).options(**to_spark(settings)).load()


def lines(frame: DataFrame) -> DataFrame:
    """Return the texts of `stream` as `pipeline.transforms.events.from_lines` takes them."""
    source = F.format_string("%s %d:%d:%d", "topic", "ledger_id", "entry_id", "batch_index")
    return frame.select(F.col("value").cast("string").alias("value"), source.alias("source"))
