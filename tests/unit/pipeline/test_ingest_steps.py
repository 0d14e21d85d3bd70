"""A step of an ingest is as large as the cluster can read at a time, and no larger."""

import pytest

from pipeline.ingest.batch import STEP_BYTES, _portions
from pipeline.sources.files import EventFile

LARGE = STEP_BYTES // 4


@pytest.mark.parametrize(("cores", "steps"), [(1, [4, 4, 4, 4, 4, 4]), (2, [6, 6, 6, 6]), (8, [24]), (16, [24])])
def test_files_of_a_step_follow_the_cores(cores: int, steps: list[int]) -> None:
    files = [EventFile(str(number), LARGE) for number in range(24)]
    assert [len(step) for step in _portions(files, 3 * cores)] == steps


def test_small_files_fill_a_step() -> None:
    files = [EventFile(str(number), STEP_BYTES // 100) for number in range(150)]
    assert [len(step) for step in _portions(files, 6)] == [100, 50]
