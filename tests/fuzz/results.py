"""Own the record of a campaign, beside its corpora, and what the repository keeps of it for docs/reliability.md.

Rule: inputs of several runs of one campaign add up; the coverage is that of the last. A target in Rust has the name of
its target in Python, and `RUST` behind it.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from scripts.generated import ROOT, json_records

RESULTS: Final = ROOT / "benchmarks/results/fuzz.json"
RECORD: Final = "fuzz.json"
RUST: Final = " in Rust"

Found = dict[str, Any]


def line_of(name: str, found: Found) -> str:
    """Return what a run of one target is told by."""
    verdict = "held" if found["held"] else "BROKEN"
    return (
        f"{name:22} {verdict}: {found['inputs']:,} inputs, {found['coverage']} {found['unit']}, "
        f"corpus {found['corpus']}"
    )


def add(out: Path, name: str, found: Found) -> None:
    """Add a run to the record of the campaign in `out`, and say so."""
    print(line_of(name, found), flush=True)
    file = out / RECORD
    known: dict[str, Found] = json.loads(file.read_text()) if file.exists() else {}
    before = known.get(name, {"inputs": 0, "held": True})
    today = datetime.now(UTC).date().isoformat()
    held = found["held"] and before["held"]
    known[name] = {**found, "inputs": found["inputs"] + before["inputs"], "held": held, "measured_on": today}
    file.write_text(json.dumps(known, indent=1) + "\n")


def keep(out: Path, file: Path = RESULTS) -> None:
    """Keep the record of the campaign in `out`; targets that were not fuzzed in it stay as they are."""
    targets = {**load(file), **json.loads((out / RECORD).read_text())}
    file.write_text(json_records({"scenario": "fuzz", "targets": targets}) + "\n", encoding="utf-8")


def load(file: Path = RESULTS) -> dict[str, Found]:
    """Return what is kept, by target; nothing if there is no file."""
    if not file.exists():
        return {}
    found: dict[str, Found] = json.loads(file.read_text(encoding="utf-8"))["targets"]
    return found
