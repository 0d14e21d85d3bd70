"""The part `usage`: four tables from the table `events`, by three engines.

It guards what is Spark's work and what is DuckDB's or Polars' (ADR 75; docs/pipeline.md, "DuckDB or Spark").
"""
