"""Events from a Pulsar topic: a data source of our own for Spark, in batches and in streams.

`stream`, `batch` and `Messages` are all that jobs need; `explain` tells why a query of theirs failed. `source` (what
Spark calls), `options` (what a user says), `catalog` (what a topic has), `offsets` (how far a batch goes), `reading`
(one task), `client`, `credentials` (log in), `admin` (questions), `keeping` (retention), `errors`.
"""

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.sources.pulsar.catalog import open_catalog
from pipeline.sources.pulsar.errors import explain
from pipeline.sources.pulsar.keeping import require_keeping
from pipeline.sources.pulsar.options import PulsarSettings, to_spark
from pipeline.sources.pulsar.source import FORMAT, EventsSource, window_of
from pipeline.transforms.events import from_lines

__all__ = ["Messages", "PulsarSettings", "batch", "explain", "lines", "stream"]


def stream(spark: SparkSession, settings: PulsarSettings) -> DataFrame:
    """Return the topic as a stream: value, topic, partition, ledger_id, entry_id, batch_index, publish_time, key.

    Raises TopicError if it cannot be reached, does not exist, or does not keep its messages.
    """
    open_catalog(settings).states()
    require_keeping(settings)
    spark.dataSource.register(EventsSource)
    return spark.readStream.format(FORMAT).options(**to_spark(settings)).load()


def batch(spark: SparkSession, settings: PulsarSettings) -> DataFrame:
    """Return what the topic holds now from `start` on, with the columns of `stream`: the same for every action.

    Raises TopicError as `stream` does.
    """
    catalog = open_catalog(settings)
    fixed = replace(settings, window=window_of(settings, catalog, catalog.states()))
    require_keeping(settings)
    spark.dataSource.register(EventsSource)
    return spark.read.format(FORMAT).options(**to_spark(fixed)).load()


def lines(frame: DataFrame) -> DataFrame:
    """Return the texts of `stream` or `batch` as `pipeline.transforms.events.from_lines` takes them."""
    source = F.format_string("%s %d:%d:%d", "topic", "ledger_id", "entry_id", "batch_index")
    return frame.select(
        F.col("value").cast("string").alias("value"), source.alias("source"), F.lit(False).alias("damaged")
    )


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of a topic as an input: all that it holds, or those of one batch of a stream."""

    frame: DataFrame

    @property
    def spark(self) -> SparkSession:
        """Return the session that reads them."""
        return self.frame.sparkSession

    def records(self, late_before_us: int | None) -> DataFrame:
        """Read them; the same each time, since whole entries of a topic do not change."""
        return from_lines(lines(self.frame), late_before_us)

    def after(self, error: Exception) -> "Messages":
        """Raise what went wrong: no other way to read them would help."""
        raise explain(error) or error
