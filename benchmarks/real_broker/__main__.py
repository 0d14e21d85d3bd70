"""The command line: `python -m benchmarks.real_broker`. Owns the result file and what each figure had to reach."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Final

from benchmarks.ladder import machine, results
from benchmarks.ladder.verdict import Json, check
from benchmarks.real_broker.consumers import run_consumers
from benchmarks.real_broker.storms import STORMS, run_storm
from tests.pulsar import java_consumers, scenario
from tests.pulsar.admin import Admin
from tests.pulsar.harness import run_broker
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.standalone import PULSAR_VERSION, Broker, MissingToolError

_FULL: Final = {"partitions": 8192, "consumers": 20, "new_topics": 10}
_QUICK: Final = {"partitions": 1024, "consumers": 5, "new_topics": 2}
DISCOVERY_SECONDS: Final = 1.0
QUESTIONS: Final = 10  # lists for 500 equal requests and 3 pattern consumers, at most


def _run(size: dict[str, int]) -> Json:
    with tempfile.TemporaryDirectory(prefix="real-broker-") as name:
        directory = Path(name)
        with run_broker(directory, os.environ) as broker:
            rows = _rows(directory, broker, size)
    return {
        "scenario": "real-broker",
        "title": f"topic lists of {size['partitions']:,} partitions, names of {scenario.NAME_CHARACTERS} characters, "
        f"through the proxy from pulsar {PULSAR_VERSION}",
        "kind": "real-broker",
        "measured_on": machine.today(),
        "valid": True,
        "invalid_because": [],
        "machine": machine.facts(),
        "effort": size,
        "rows": rows,
        "checks": _checks(rows),
    }


def _rows(directory: Path, broker: Broker, size: dict[str, int]) -> dict[str, Json]:
    began = time.monotonic()
    namespace = scenario.fill(
        Admin(broker.admin_url), broker.service_url, f"public/bench-{uuid.uuid4().hex[:12]}", size["partitions"]
    )
    print(f"  namespace filled in {time.monotonic() - began:.1f} s", flush=True)
    rows: dict[str, Json] = {}
    for name, storm in STORMS.items():
        rows[name] = run_storm(directory, broker, namespace, storm)
        print(f"  {name}: {rows[name]}", flush=True)
    rows["consumers"] = run_consumers(directory, broker, namespace, size["consumers"], size["new_topics"])
    print(f"  consumers: {rows['consumers']}", flush=True)
    return rows


def _checks(rows: dict[str, Json]) -> list[Json]:
    checks = []
    for name in STORMS:
        row = rows[name]
        checks += [
            check("answers", name, row["answered"], scenario.REQUESTS, at_most=False),
            check("errors and lost", name, sum(row["errors"].values()) + row["lost"], 0),
            check("different lists", name, row["different_lists"], 1),
            check("consumers that read all", name, row["consumers_that_read_all"], scenario.CONSUMERS, at_most=False),
            check("peak RSS above idle, bytes", name, row["grown_bytes"], row["promised_bytes"]),
        ]
    checks.append(check("lists sent by the broker", "equal", rows["equal"]["lists_sent_by_broker"], QUESTIONS))
    for event in ("added", "removed"):
        seconds = rows["consumers"][f"{event}_seconds"]["median"]
        checks.append(check(f"topic {event}, seconds", "consumers", seconds, DISCOVERY_SECONDS))
    return checks


def main() -> int:
    """Run everything once and write the result; 1 if something was missed or could not run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_broker", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short look at an eighth; the result is not kept")
    quick = parser.parse_args().quick
    print("real-broker: upstream's storm, and pattern consumers that come back", flush=True)
    try:
        java_consumers.prepare()
        result = _run(_QUICK if quick else _FULL)
    except (MissingToolError, ProcessFailedError) as error:
        print(f"real-broker: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    results.write("real-broker", result, kept=not quick)
    missed = [one for one in result["checks"] if not one["reached"]]
    for one in missed:
        print(f"  MISSED {one['row']}: {one['what']} is {one['got']}, required {one['required']}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
