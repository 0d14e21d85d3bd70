"""The table `events` as lines again, as proxies write them: `... .large.lines TABLES --out DIR`."""

from __future__ import annotations

import argparse
from pathlib import Path

from eventlog.schema import FIELDS
from pipeline.core.options import CommonSettings
from pipeline.core.tables.events import EVENTS
from pipeline.running.session import open_session
from pipeline.store.sinks import read_table


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables")
    parser.add_argument("--out", required=True)
    parser.add_argument("--master")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one of N events")
    options = parser.parse_args()
    common = CommonSettings(options.tables, "parquet", options.master, {})
    spark = open_session("lines", common)
    try:
        events = (
            read_table(spark, common, EVENTS)
            .where(f"seq % {options.every} = 0")
            .select([field.name for field in FIELDS])
        )
        events.write.option("compression", "gzip").json(f"file://{options.out}")
    finally:
        spark.stop()
    for path in Path(options.out).glob("*.json.gz"):
        path.rename(path.with_name(path.name.replace(".json.", ".jsonl.")))


if __name__ == "__main__":
    main()
