from pathlib import Path

import pytest

from tests.mutants.choosing import Mutant

MUTANT = Mutant("limiter/doors.py", "Door.full", 0, "return n >= 1", "return n > 1", "boundary")
SOURCE = """
def full(n):
    return n >= 1

class Door:
    def full(self, n):
        {}
"""


def _tree(root: Path, line: str) -> Path:
    (root / "limiter").mkdir()
    (root / "limiter" / "doors.py").write_text(SOURCE.format(line))
    return root


def test_a_mutant_changes_its_line_in_its_function_only(tmp_path: Path) -> None:
    tree = _tree(tmp_path, "return n >= 1")
    MUTANT.apply(tree)
    assert (tree / "limiter" / "doors.py").read_text() == SOURCE.format("return n > 1")


def test_a_mutant_whose_line_was_rewritten_is_gone(tmp_path: Path) -> None:
    tree = _tree(tmp_path, "return self.most <= n")
    with pytest.raises(ValueError, match="no such line"):
        MUTANT.apply(tree)
    assert MUTANT.line(tree) is None
