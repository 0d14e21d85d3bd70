"""Run a cell on an event loop of its own, and judge its end by the table: what `make faults` and pytest both do."""

import asyncio
import tempfile
from pathlib import Path

import uvloop

from tests.faults.cell import Result, run
from tests.faults.ends import ending_of
from tests.faults.table import Cell


def in_a_loop(cell: Cell) -> Result:
    """Run a cell on a loop of its own, and judge its end."""
    with (
        tempfile.TemporaryDirectory(prefix="faults-") as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        result = runner.run(run(cell, Path(directory)))
    result.failure = result.failure or ending_of(cell).unlike(result.outcome, result.causes)
    return result
