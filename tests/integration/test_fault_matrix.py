"""The short version of the fault matrix, and what its table promises; `make faults` runs the whole."""

from pathlib import Path

import pytest

from proxy.core.errors import DisconnectCause
from tests.faults.cell import run
from tests.faults.ends import SORTS, ending_of
from tests.faults.table import STAGES, Cell, cells, no_sense, short_version, to_run


@pytest.mark.parametrize("cell", short_version(), ids=lambda cell: cell.name)
async def test_a_cell_of_the_matrix_ends_as_promised(cell: Cell, tmp_path: Path) -> None:
    result = await run(cell, tmp_path)
    assert not result.failure, result


def test_the_short_version_has_every_stage_and_every_fault_on_every_side() -> None:
    short = short_version()
    assert {(cell.stage, cell.side) for cell in short} == {(cell.stage, cell.side) for cell in to_run()}
    assert {(cell.kind, cell.side) for cell in short} == {(cell.kind, cell.side) for cell in to_run()}


def test_every_cell_has_an_end_that_is_no_internal_error_or_a_reason_not_to_run() -> None:
    assert all(no_sense(cell) for cell in set(cells()) - set(to_run()))
    assert SORTS.keys() == {stage.name for stage in STAGES}
    endings = [ending_of(cell) for cell in to_run()]
    assert all(ending.outcomes for ending in endings)
    assert all(DisconnectCause.INTERNAL_ERROR not in ending.causes | ending.others for ending in endings)
