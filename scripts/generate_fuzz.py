"""Write the table of docs/reliability.md about inputs that were fuzzed, from the record that `make fuzz` keeps."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from scripts.generated import ROOT, placed
from tests.fuzz.results import RUST, Found, load

PAGE: Final = ROOT / "docs" / "reliability.md"
MARKS: Final = ("<!-- fuzz: written by scripts/generate_fuzz.py, do not edit -->", "<!-- fuzz: end -->")


def files() -> Mapping[Path, str]:
    return {PAGE: placed(PAGE, {MARKS: "\n\n" + "\n".join(told(load())) + "\n\n"})}


def told(found: Mapping[str, Found]) -> Iterator[str]:
    """Yield the sums, and a line for each target."""
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
