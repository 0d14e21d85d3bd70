"""Lines of every kind, well and badly made: each is kept, set aside or a duplicate, as plain Python would say."""

import json
import random
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

from eventlog.schema import FIELDS, SCHEMA_VERSION
from pipeline.core.tables.events import EVENT_KEY, EVENTS, QUARANTINE
from pipeline.store.tables import read_table
from tests.spark.ingesting import Ingest
from tests.support.pipeline.event_lines import event
from tests.support.pipeline.tables import assert_follows

BITS = {"int16": 15, "int32": 31, "int64": 63}
LINES = 600


def reason(line: str) -> str | None:
    """Say what is wrong with a line, by the rules and without Spark."""
    try:
        found = json.loads(line)
    except ValueError:
        return "malformed"
    if not isinstance(found, dict):
        return "malformed"
    version = found.get("schema_version")
    if isinstance(version, int) and version != SCHEMA_VERSION and abs(version) < 2**63:
        return "future_version" if version > SCHEMA_VERSION else "past_version"
    values = [(field, found.get(field.name)) for field in FIELDS]
    if not all(value is None or fits(field.type, value) for field, value in values):
        return "wrong_type"
    if any(value is None and not field.nullable for field, value in values):
        return "missing_field"
    negative = any(isinstance(value, int) and value < 0 for _, value in values)
    unknown = any(field.values and value is not None and value not in field.values for field, value in values)
    return "bad_value" if negative or unknown else None


def fits(kind: str, value: object) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if kind == "bool":
        return isinstance(value, bool)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2 ** BITS[kind]


def some_line(chance: random.Random, seq: int) -> str:
    made = event(seq % 97)
    for _ in range(chance.choice((0, 0, 1, 2))):
        field = chance.choice(FIELDS)
        of_numbers: list[object] = [None, -1, 2**40, 1.5, "5", True, {"a": 1}]
        others: list[object] = [None, "no such word"] if field.type == "string" else [None, "yes", 1]
        made[field.name] = chance.choice(of_numbers if field.type in BITS else others)
        if chance.random() < 0.2:
            del made[field.name]
    if chance.random() < 0.05:
        made["schema_version"] = SCHEMA_VERSION + chance.choice((1, -1))
    text = json.dumps(made)
    kind = chance.random()
    if kind < 0.05:
        return text[: chance.randrange(1, len(text))]
    if kind < 0.1:
        return text + chance.choice(("}", " x", text, ",", "  "))
    return text if kind < 0.95 else chance.choice(("null", "[]", "{}", '"x"', "\x00", "é{", "12"))


def test_every_line_ends_where_plain_python_says(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(7)
    lines = [some_line(chance, seq) for seq in range(LINES)]
    job = Ingest(spark, tmp_path)
    for part in range(3):
        (job.source / f"{part}.jsonl").write_text("".join(line + "\n" for line in lines[part::3]))
    expected = Counter(reason(line) for line in lines)
    counts = job.run()
    good = [json.loads(line) for line in lines if reason(line) is None]
    assert counts.quarantined == {name: count for name, count in expected.items() if name is not None}
    assert len(counts.quarantined) == 6
    assert counts.read == LINES == counts.kept + counts.duplicates + sum(counts.quarantined.values())
    assert counts.kept == len({tuple(line[name] for name in EVENT_KEY) for line in good})
    assert_follows(read_table(spark, job.common, EVENTS), EVENTS)
    assert_follows(read_table(spark, job.common, QUARANTINE), QUARANTINE)
