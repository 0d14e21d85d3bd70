"""The pipeline beside its peers: the same tables from the same events, by Spark, Polars and DuckDB."""
