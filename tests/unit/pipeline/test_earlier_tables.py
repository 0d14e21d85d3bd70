"""Rows that an earlier version wrote lack columns of today: what they do not say is no rule."""

from dataclasses import asdict

from pyspark.sql import Row

from pipeline.replay.traces import SeenMemory, seen_of


def test_rules_that_a_row_does_not_name_are_none() -> None:
    row = Row(**(asdict(SeenMemory(peak_heap_bytes=7)) | {"unproven_readers_percent": None, "spill_limit_bytes": None}))
    assert seen_of(row) == SeenMemory(peak_heap_bytes=7)
