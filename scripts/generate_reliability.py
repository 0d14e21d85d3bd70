"""Write the tables of docs/reliability.md from what soaks, fuzzing and the fault matrix keep of their last run."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from scripts.generated import ROOT, placed
from tests.faults.flows.flow import SIDES
from tests.faults.results import load as load_faults
from tests.fuzz.results import RUST
from tests.fuzz.results import load as load_fuzz
from tests.support.faults.kinds import Kind

PAGE: Final = ROOT / "docs" / "reliability.md"
SOAKS: Final = ROOT / "tests" / "soak" / "results"


def files() -> Mapping[Path, str]:
    parts = {"soak": soaks(), "fuzz": fuzz(), "faults": faults()}
    return {PAGE: placed(PAGE, {marks(name): f"\n\n{chr(10).join(lines)}\n\n" for name, lines in parts.items()})}


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: written by scripts/generate_reliability.py, do not edit -->", f"<!-- {name}: end -->"


def soaks() -> Iterator[str]:
    yield "| day | minutes | actions a second | actions | failed | growth, MB/h | at most (95 %) | left |"
    yield "|---|--:|--:|--:|--:|--:|--:|---|"
    for path in SOAKS.glob("soak.json"):
        each = json.loads(path.read_text())
        done, failed = sum(each["actions"].values()), sum(each["failed"].values())
        left = ", ".join(text for text in each["broken"] if not text.startswith("failed ")) or "nothing"
        yield (
            f"| {each['measured_on']} | {each['minutes']:g} | {each['pace']:g} | {done:,} "
            f"| {failed:,} | {each['bytes_an_hour'] / 1e6:+.2f} | {each['bytes_an_hour_at_most'] / 1e6:.2f} | {left} |"
        )


def fuzz() -> Iterator[str]:
    """Yield the sums, and a line for each target."""
    found = load_fuzz()
    inputs = {name: each["inputs"] for name, each in found.items()}
    native = sum(count for name, count in inputs.items() if name.endswith(RUST))
    broken = sum(not each["held"] for each in found.values())
    days = sorted({each["measured_on"] for each in found.values()})
    yield (
        f"{' and '.join(days)}: {sum(inputs.values()):,} inputs, {sum(inputs.values()) - native:,} of them in Python "
        f"and {native:,} in Rust;"
    )
    yield f"{broken or 'none'} of the targets had an input that broke its rule."
    yield ""
    yield "| target | inputs | reached | rule broken |"
    yield "|---|--:|--:|---|"
    for name, each in found.items():
        yield f"| {name} | {each['inputs']:,} | {each['coverage']} {each['unit']} | {'no' if each['held'] else 'yes'} |"


def faults() -> Iterator[str]:
    """Yield how the cells of each fault and side ended: outcomes of the client, causes of ends."""
    records = load_faults()
    yield "| fault | where | cells | passed | the client's end | ends of connections by cause |"
    yield "|---|---|--:|--:|---|---|"
    for kind in Kind:
        for side in SIDES:
            chosen = [record for record in records if (record["kind"], record["side"]) == (kind, side)]
            passed = sum(record["passed"] for record in chosen)
            outcomes = Counter(record["outcome"] for record in chosen)
            causes = sum((Counter[str](record["causes"]) for record in chosen), Counter())
            yield f"| {kind} | {side} | {len(chosen)} | {passed} | {_sums(outcomes)} | {_sums(causes, mark='`')} |"


def _sums(counted: Mapping[str, Any], mark: str = "") -> str:
    return ", ".join(f"{mark}{name}{mark} {counted[name]}" for name in sorted(counted)) or "-"
