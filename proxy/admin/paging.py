"""What a route answers: a small document, or rows that are made and written a slice at a time.

Rule: a step makes at most `SLICE_ROWS` rows and looks at no more members than that, whatever there is to show; between
two steps the loop turns, so members may have come and gone.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from proxy.roll import Entry, Roll

M = TypeVar("M", bound=Hashable)
T = TypeVar("T")

SLICE_ROWS: Final = 50
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Document:
    """A small answer, and its status."""

    body: Row
    status: int = 200


@dataclass(frozen=True, slots=True)
class Rows:
    """A long answer: the fields of `head`, then `name` with the rows of all `steps`, then the fields of `tail`."""

    head: Row
    name: str
    steps: Iterator[Sequence[Row]]
    tail: Callable[[], Row] = field(default=dict)


Answer = Document | Rows


def steps(roll: Roll[M], numbers: Sequence[int], row: Callable[[Entry[M]], Row]) -> Iterator[Sequence[Row]]:
    """Make the rows of those of `numbers` that are still there, a slice at a time."""
    for start in range(0, len(numbers), SLICE_ROWS):
        found = map(roll.find, numbers[start : start + SLICE_ROWS])
        yield [row(entry) for entry in found if entry is not None]


def slices(members: Iterable[T], row: Callable[[T], Row]) -> Iterator[Sequence[Row]]:
    """Make the rows of `members`, a slice at a time; for plain values of the caller's own (see `proxy.roll`)."""
    made = []
    for member in members:
        made.append(row(member))
        if len(made) == SLICE_ROWS:
            yield made
            made = []
    if made:
        yield made
