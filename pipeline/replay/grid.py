"""The grid of scenarios: which limits, loads and fleets are tried; from options, a TOML file, or what was recorded.

Rule: what the grid does not name stays as it was recorded. Without any names it goes around the recorded memory limits,
from the largest single list upwards. Pure; sizes are given in MiB and times in ms, as in proxy.conf.
"""

import argparse
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final, get_args

from pipeline.core.errors import PipelineError
from pipeline.core.model import MIB, Fairness, Limits, rounded_up

MOST_SCENARIOS: Final = 10_000
# Twice the clients are the most that is not extrapolated.
LOADS: Final = (1, 2)
FLEETS: Final = (1, 2)
_FAIRNESS: Final = get_args(Fairness)
FACTORS: Final = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class Dimension:
    """An option of the grid: the field of `Limits` it varies (None: load and fleet), its factor, bounds or words."""

    option: str
    field: str | None
    meaning: str
    factor: int = 1
    least: int = 0
    most: int = 1 << 40
    words: Mapping[str, Any] | None = None


GRID_OPTIONS: Final = (
    Dimension("heap-mb", "heap_bytes", "heap memory in MiB, 0 is no limit", MIB),
    Dimension("direct-mb", "direct_bytes", "direct memory in MiB, 0 is no limit", MIB),
    Dimension("heap-queue", "heap_queue", "longest queue for heap memory, 0 is no bound"),
    Dimension("direct-queue", "direct_queue", "longest queue for direct memory, 0 is no bound"),
    Dimension("heap-timeout-ms", "heap_timeout_us", "longest wait for heap memory in ms", 1000),
    Dimension("direct-timeout-ms", "direct_timeout_us", "longest wait for direct memory in ms", 1000),
    Dimension("request-timeout-ms", "request_timeout_us", "clock over a request in ms", 1000, least=1),
    Dimension("outstanding", "max_outstanding_per_broker", "questions to a broker at a time", least=1),
    Dimension("key-cap-percent", "key_cap_percent", "most of a limit for one key", least=1, most=100),
    Dimension("fairness", "fairness", f"of {', '.join(_FAIRNESS)}", words={name: name for name in _FAIRNESS}),
    Dimension("coalescing", "coalescing", "on, off", words={"on": True, "off": False}),
    Dimension("load", None, "how many times the recorded clients", least=1, most=10_000),
    Dimension("fleet", None, "proxies for each recorded one", least=1, most=1000),
)


@dataclass(frozen=True, slots=True)
class Grid:
    """The values that vary, by field of `Limits`; and the places: loads and fleets."""

    values: Mapping[str, tuple[Any, ...]]
    loads: tuple[int, ...] = LOADS
    fleets: tuple[int, ...] = FLEETS

    def limits(self, recorded: Limits, largest_heap_bytes: int, largest_direct_bytes: int) -> tuple[Limits, ...]:
        """Return every combination, the others as recorded; raises PipelineError if they are too many."""
        values = dict(self.values)
        values.setdefault("heap_bytes", _around(recorded.heap_bytes, largest_heap_bytes))
        values.setdefault("direct_bytes", _around(recorded.direct_bytes, largest_direct_bytes))
        names = list(values)
        found = [replace(recorded, **dict(zip(names, each, strict=True))) for each in product(*values.values())]
        count = len(found) * len(self.loads) * len(self.fleets)
        if count > MOST_SCENARIOS:
            raise PipelineError(
                f"got a grid of {count} scenarios, expected at most {MOST_SCENARIOS}: name fewer values"
            )
        return tuple(dict.fromkeys(found))


def add_grid(parser: argparse.ArgumentParser, *only: str) -> None:
    """Declare `--grid` and an option for each dimension, or for these only."""
    parser.add_argument(
        "--grid", metavar="FILE", help="TOML file with values of any option of `whatif`, as `heap-mb = [25, 50]`"
    )
    for dimension in GRID_OPTIONS:
        if only and dimension.option not in only:
            continue
        parser.add_argument(f"--{dimension.option}", metavar="V,V,...", help=dimension.meaning)


def grid_of(options: argparse.Namespace) -> Grid:
    """Read the grid; an option goes before the file; raises PipelineError."""
    file = _from_file(options.grid) if options.grid else {}
    given: dict[str, tuple[Any, ...]] = {}
    for dimension in GRID_OPTIONS:
        text = getattr(options, dimension.option.replace("-", "_"), None)
        words = [word.strip() for word in text.split(",")] if text is not None else file.get(dimension.option)
        if words is not None:
            given[dimension.option] = _values(dimension, words)
    loads, fleets = given.pop("load", LOADS), given.pop("fleet", FLEETS)
    named = {dimension.option: dimension.field for dimension in GRID_OPTIONS if dimension.field is not None}
    return Grid({named[option]: values for option, values in given.items()}, loads, fleets)


def _from_file(name: str) -> dict[str, list[str]]:
    try:
        content = tomllib.loads(Path(name).read_text("utf-8"))
    except OSError as error:
        raise PipelineError(f"--grid: cannot read {name}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PipelineError(f"--grid: {name} is no TOML: {error}") from error
    known = [dimension.option for dimension in GRID_OPTIONS]
    if strange := sorted(set(content) - set(known)):
        raise PipelineError(f"--grid: {name}: got {', '.join(strange)}, expected some of {', '.join(known)}")
    return {
        option: [_word(value) for value in (values if isinstance(values, list) else [values])]
        for option, values in content.items()
    }


def _word(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _values(dimension: Dimension, words: Sequence[str]) -> tuple[Any, ...]:
    if not words:
        raise PipelineError(f"--{dimension.option}: got no value, expected {dimension.meaning}")
    return tuple(dict.fromkeys(_value(dimension, word) for word in words))


def _value(dimension: Dimension, word: str) -> Any:
    if dimension.words is not None:
        expected = "words"
        if word in dimension.words:
            return dimension.words[word]
    else:
        expected = f"whole numbers from {dimension.least}"
        if word.isascii() and word.isdigit() and dimension.least <= int(word) <= dimension.most:
            return int(word) * dimension.factor
    raise PipelineError(f"--{dimension.option}: got {word!r}, expected {expected}: {dimension.meaning}")


def _around(recorded_bytes: int, largest_bytes: int) -> tuple[int, ...]:
    """Return limits around the recorded one, none below the largest list; without a limit, multiples of that list."""
    least = rounded_up(largest_bytes)
    middle = recorded_bytes or 8 * least
    return tuple(sorted({max(least, rounded_up(middle * factor)) for factor in FACTORS}))
