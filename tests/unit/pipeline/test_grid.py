import argparse
from pathlib import Path

import pytest

from pipeline.core.errors import PipelineError
from pipeline.core.model import MIB, Limits
from pipeline.replay.grid import Grid, add_grid, grid_of


def read(*words: str) -> Grid:
    parser = argparse.ArgumentParser()
    add_grid(parser)
    return grid_of(parser.parse_args(words))


def test_grid_is_every_combination_and_the_rest_as_recorded() -> None:
    recorded = Limits(heap_queue=77)
    grid = read("--heap-mb", "10,0", "--direct-mb", "5", "--coalescing", "on,off", "--load", "1,2,10", "--fleet", "4")
    limits = grid.limits(recorded, 1, 1)
    assert [(each.heap_bytes, each.coalescing) for each in limits] == [
        (10 * MIB, True),
        (10 * MIB, False),
        (0, True),
        (0, False),
    ]
    assert {(each.direct_bytes, each.heap_queue) for each in limits} == {(5 * MIB, 77)}
    assert (grid.loads, grid.fleets) == ((1, 2, 10), (4,))


def test_grid_of_nothing_goes_around_the_recorded_limits_and_not_below_the_largest_list() -> None:
    limits = read().limits(Limits(heap_bytes=100 * MIB, direct_bytes=16 * MIB), 30 * MIB + 1, MIB)
    assert sorted({each.heap_bytes // MIB for each in limits}) == [31, 50, 100, 200, 400]
    assert sorted({each.direct_bytes // MIB for each in limits}) == [2, 4, 8, 16, 32, 64]
    assert len(limits) == 30


def test_file_names_the_grid_and_options_go_before_it(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text('heap-mb = [1, 2]\ncoalescing = [true, false]\nfairness = "tenant"\nheap-timeout-ms = [50]\n')
    grid = read("--grid", str(file), "--heap-mb", "3")
    assert grid.values == {
        "heap_bytes": (3 * MIB,),
        "coalescing": (True, False),
        "fairness": ("tenant",),
        "heap_timeout_us": (50_000,),
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [("heap = [1]", "got heap, expected some of heap-mb"), ("heap-mb = [", "is no TOML"), ("load = []", "no value")],
)
def test_file_that_makes_no_sense_is_refused(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(content)
    with pytest.raises(PipelineError, match=said):
        read("--grid", str(file))


@pytest.mark.parametrize(
    "words",
    [
        ("--heap-mb", "-1"),
        ("--load", "0"),
        ("--fleet", "1,"),
        ("--fairness", "lottery"),
        ("--key-cap-percent", "101"),
    ],
)
def test_value_that_makes_no_sense_is_refused(words: tuple[str, str]) -> None:
    with pytest.raises(PipelineError, match=f"^{words[0]}: got"):
        read(*words)


def test_grid_too_large_to_be_meant_is_refused() -> None:
    many = ",".join(map(str, range(1, 102)))
    with pytest.raises(PipelineError, match="got a grid of 10201 scenarios"):
        read("--heap-mb", many, "--direct-mb", many, "--load", "1", "--fleet", "1").limits(Limits(), 1, 1)
