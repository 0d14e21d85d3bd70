import pytest

from tests.support.each import each


def test_a_failure_names_every_row_also_where_an_error_that_was_expected_did_not_come() -> None:
    @each("number", [1, 2, 3])
    def checked(number: int) -> None:
        if number > 1:
            with pytest.raises(ValueError, match="never"):
                pass

    with pytest.raises(AssertionError, match=r"(?s)2 of 3 rows failed\n2\n.*DID NOT RAISE.*\n3\n.*DID NOT RAISE"):
        checked()
