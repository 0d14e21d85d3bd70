"""Tests of the pipeline that need Spark: one session for all of them."""
