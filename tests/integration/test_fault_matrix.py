"""The short version of the fault matrix, and what its table promises; `make faults` runs the whole."""

import asyncio
from pathlib import Path

import pytest

from proxy.core.errors import DisconnectCause
from tests.faults.__main__ import in_processes
from tests.faults.cell import run, unlike
from tests.faults.ends import SORTS, Ending, ending_of
from tests.faults.short import short_version
from tests.faults.table import ENGINES, STAGES, Cell, cells, no_sense, to_run
from tests.support.faults.kinds import Kind
from tests.support.tools import native_extension


@pytest.mark.parametrize("cell", short_version(), ids=lambda cell: cell.name)
async def test_a_cell_of_the_matrix_ends_as_promised(cell: Cell, tmp_path: Path) -> None:
    if cell.engine == "native":
        native_extension()
    result = await run(cell, tmp_path)
    assert not result.failure, result
    assert not ending_of(cell).unlike(result.outcome, result.causes), result


def test_the_short_version_has_every_stage_fault_side_and_engine() -> None:
    short = short_version()
    assert {(cell.stage, cell.kind) for cell in short} == {(cell.stage, cell.kind) for cell in to_run()}
    assert {(cell.stage, cell.side) for cell in short} == {(cell.stage, cell.side) for cell in to_run()}
    assert {(cell.stage, cell.engine) for cell in short} == {(cell.stage, cell.engine) for cell in to_run()}


def test_a_cell_that_is_not_run_says_why() -> None:
    table = set(cells())
    assert len(table) == len(STAGES) * len(Kind) * 2 * 2 * len(ENGINES)
    assert all(no_sense(cell) for cell in table - set(to_run()))
    assert SORTS.keys() == {stage.name for stage in STAGES}


def test_no_cell_may_end_with_an_internal_error() -> None:
    endings = [ending_of(cell) for cell in to_run()]
    assert all(ending.outcomes for ending in endings)
    assert all(DisconnectCause.INTERNAL_ERROR not in ending.causes | ending.others for ending in endings)


def test_another_outcome_another_cause_and_no_cause_are_failures() -> None:
    ending = Ending(frozenset({"closed"}), frozenset({"read_timeout"}), frozenset({"connection_reset"}))
    assert ending.unlike("closed", {"read_timeout": 1, "client_closed": 2, "admin": 0}) == ""
    assert "got answered" in ending.unlike("answered", {"read_timeout": 1})
    assert "read_timeout" in ending.unlike("closed", {"connection_reset": 1})
    assert "internal_error" in ending.unlike("closed", {"read_timeout": 1, "internal_error": 1})


def test_books_that_grow_or_lose_a_session_are_not_as_before() -> None:
    before = {"sessions": 2, "tasks": 5, "direct held": 0}
    assert unlike(before, {"sessions": 2, "tasks": 4, "direct held": 0}) == {}
    assert unlike(before, {"sessions": 1, "tasks": 6, "direct held": 1}) == {
        "sessions": (2, 1),
        "tasks": (5, 6),
        "direct held": (0, 1),
    }


def test_the_whole_goes_on_when_processes_have_done_their_part() -> None:
    numbers = list(range(-9, 0))
    assert list(in_processes(abs, numbers, workers=2, of_a_process=1)) == [-number for number in numbers]


async def test_a_fault_that_never_begins_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.faults.carried.Carried.arm", lambda *_: None)
    cell = next(cell for cell in to_run() if (cell.stage, cell.kind, cell.engine) == ("lookup", Kind.SLICE, ENGINES[0]))
    result = await run(cell._replace(engine="asyncio"), tmp_path)
    assert "never began" in result.failure
    await asyncio.sleep(0)
