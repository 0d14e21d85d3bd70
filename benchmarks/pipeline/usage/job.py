"""The tables of `usage` by the job itself, as it runs on one machine: DuckDB adds up, Spark does the rest."""

from __future__ import annotations

from benchmarks.pipeline.usage import spark


class Engine(spark.Engine):
    """The job with its own choice of who adds up."""

    engine = "auto"
