"""Write the tables of docs/reliability.md about brokers and proxies that are killed, stand still or restart."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.ladder.results import load
from scripts.generated import ROOT, placed

PAGE: Final = ROOT / "docs" / "reliability.md"
MARKS: Final = ("<!-- outages: written by scripts/generate_outages.py, do not edit -->", "<!-- outages: end -->")
KINDS: Final = ("producer python", "producer java", "consumer python", "consumer java", "askers")


def files() -> Mapping[Path, str]:
    lines = [line for each in load(["outages"]) for line in told(each)]
    text = "\n".join(lines) if lines else "No row of the whole is kept yet."
    return {PAGE: placed(PAGE, {MARKS: f"\n\n{text}\n\n"})}


def told(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield when and with what was measured, and both tables."""
    rows = found["rows"]
    days = sorted({row["measured_on"] for row in rows})
    broken = sum(bool(row["broken"]) for row in rows)
    yield (
        f"Measured on {' and '.join(days)}: Pulsar {found['pulsar']}, {found['askers']} clients that ask, "
        f"{found['machine']['cores']} cores."
    )
    yield f"{len(rows)} rows, {broken or 'none'} of them with a broken promise."
    yield ""
    yield from messages(rows)
    yield ""
    yield from recovery(rows)


def messages(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the table of what became of messages and requests."""
    yield (
        "| outage | way | messages | lost | out of order | stored twice, with deduplication | without "
        "| delivered again, Python | Java | requests answered | failed | never answered |"
    )
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for row in rows:
        sums, again, asked = row["messages"], row["delivered_again"], row["asked"]
        cells = [
            sums["sent"], sums["lost"] + sums["undelivered"], sums["out_of_order"],
            sums["stored_twice_in_spite_of_deduplication"], sums["stored_twice"], again["python"], again["java"],
            asked["answered"], asked["failed"], asked["unanswered"],
        ]  # fmt: skip
        yield f"| {row['outage']} | {row['way']} | " + " | ".join(f"{cell:,}" for cell in cells) + " |"


def recovery(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the table of how long the slowest client of a kind took to go on, each time."""
    yield f"| outage | way | {' | '.join(KINDS)} |"
    yield f"|---|---|{'--:|' * len(KINDS)}"
    for row in rows:
        cells = (_range([each["seconds"][kind] for each in row["recovered"]]) for kind in KINDS)
        yield f"| {row['outage']} | {row['way']} | {' | '.join(cells)} |"


def _range(seconds: list[float]) -> str:
    low, high = min(seconds), max(seconds)
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"
