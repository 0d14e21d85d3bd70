"""The answers of routes: a small document, or rows that are made and written in slices.

Rule: a step makes at most `SLICE_ROWS` rows and visits no more members than that, however many there are. The loop runs
between two steps, so members may come and go.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from proxy.core.registry import Entry, Registry

M = TypeVar("M", bound=Hashable)

SLICE_ROWS: Final = 50
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AdminDocument:
    """A small answer with its status."""

    body: Row
    status: int = 200


@dataclass(frozen=True, slots=True)
class Rows:
    """A long answer: the fields of `head`, then `name` with the rows of all `steps`, then the fields of `tail`.

    `named`: each row has a single field, its name, and the rows form an object instead of a list.
    """

    head: Row
    name: str
    steps: Iterator[Sequence[Row]]
    tail: Callable[[], Row] = field(default=dict)
    named: bool = False


Answer = AdminDocument | Rows


def steps(registry: Registry[M], ids: Sequence[int], row: Callable[[Entry[M]], Row]) -> Iterator[Sequence[Row]]:
    """Yield slices of rows: a row for each of these members that still exists."""
    for start in range(0, len(ids), SLICE_ROWS):
        found = map(registry.find, ids[start : start + SLICE_ROWS])
        yield [row(entry) for entry in found if entry is not None]
