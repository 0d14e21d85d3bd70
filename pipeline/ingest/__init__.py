"""Ingest: from files or a topic to the tables `events` and `quarantine`, as a batch or as a stream.

`settings` (options), `batch`, `stream`, `write` (each event once). The records that are no
event: `pipeline/transforms/checks.py`.
"""

import sys
from collections.abc import Callable
from threading import Event

from pyspark.sql import SparkSession

from pipeline.ingest.batch import ingest as take_all
from pipeline.ingest.settings import IngestSettings
from pipeline.ingest.stream import follow
from pipeline.ingest.write import IngestCounts

__all__ = ["IngestCounts", "IngestSettings", "ingest"]


def _show(text: str) -> None:
    print(f"ingest: {text}", file=sys.stderr, flush=True)


def ingest(
    spark: SparkSession, settings: IngestSettings, say: Callable[[str], None] = _show, stop: Event | None = None
) -> IngestCounts:
    """Take events into the tables and say what became of them; raises PipelineError.

    A continuous stream goes on until `stop` is set; `say` gets a line for each step.
    """
    if settings.mode == "batch":
        return take_all(spark, settings, say)
    return follow(spark, settings, say, stop or Event())
