"""Choose the cells of the short version: every stage with every fault once; sides, moments and engines in turn."""

from itertools import groupby

from tests.faults.table import Cell, to_run


def short_version() -> list[Cell]:
    """Return one cell for each stage and fault."""
    groups = groupby(to_run(), key=lambda cell: (cell.stage, cell.kind))
    return [_in_turn(number, list(group)) for number, (_, group) in enumerate(groups)]


def _in_turn(number: int, found: list[Cell]) -> Cell:
    # Three steps come to every place of two, of four and of eight cells, another one in the next stage.
    return found[(3 * number + number // 8) % len(found)]
