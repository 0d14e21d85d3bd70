"""The fuzzer's targets in short: seeds, kept inputs, inputs that once broke a rule, and some mutations of them.

`make fuzz` does the same for as long as you like.
"""

import pytest

from tests.fuzz import corpus
from tests.fuzz.own import fuzz
from tests.fuzz.targets import BY_NAME, TARGETS, Target


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_rule_holds_for_inputs_that_coverage_chose(target: Target) -> None:
    found = fuzz(target, [*target.seeds(), *corpus.kept(target.name)], target.short_runs)
    assert found.broke is None, f"{found.error!r} by {found.broke!r}"
    # The seeds alone do not reach all that a guided search reaches.
    assert found.inputs > target.short_runs
    assert found.kept


def test_kept_inputs_are_small_and_belong_to_targets() -> None:
    for place in (corpus.CORPORA, corpus.REGRESSIONS):
        assert {path.name for path in place.iterdir() if path.is_dir()} <= BY_NAME.keys()
    files = [path for place in (corpus.CORPORA, corpus.REGRESSIONS) for path in place.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= corpus.MOST_BYTES
