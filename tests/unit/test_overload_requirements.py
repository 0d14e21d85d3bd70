"""docs/reference/overload-requirements.md: no promise is missing, and the tests that are named exist."""

import re

import pytest

from tests.unit.test_security_page import NAMED, ROOT, functions

PAGE = (ROOT / "docs" / "reference" / "overload-requirements.md").read_text(encoding="utf-8")
ROW = re.compile(r"^- \*\*(\w+)\*\*: (.+(?:\n  .+)*)", re.MULTILINE)
ROWS = dict(ROW.findall(PAGE))
PROMISES = [f"{letter}{number}" for letter, last in (("K", 11), ("Q", 11), ("A", 10)) for number in range(1, last + 1)]
FAULTS = [f"F{number}" for number in range(1, 10)]
BAD_INPUT = [f"B{number}" for number in range(1, 9)]


def test_every_promise_fault_and_bad_input_has_one_row() -> None:
    assert [name for name, _ in ROW.findall(PAGE)] == [*PROMISES, *FAULTS, *BAD_INPUT]


@pytest.mark.parametrize("name", [*PROMISES, *FAULTS, *BAD_INPUT])
def test_a_row_says_what_is_promised_and_names_a_test(name: str) -> None:
    promise, shown, tests = " ".join(ROWS[name].split()).partition(" Shown by ")
    assert promise.endswith(".")
    assert shown
    assert re.sub(NAMED, "", tests).strip(" ,") == ""


@pytest.mark.parametrize("name", PROMISES)
def test_a_promise_has_a_test_that_is_named_after_it(name: str) -> None:
    named_after = re.compile(rf"test_(?:[a-z]\d+_)*{name.lower()}_")
    assert any(named_after.match(function) for _, function in NAMED.findall(ROWS[name]))


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(PAGE))))
def test_a_test_that_is_named_exists(file: str, name: str) -> None:
    assert (ROOT / file).is_file()
    assert name in functions(ROOT / file)
