"""What can be a role."""

import pytest

from proxy.auth.roles import LONGEST_ROLE, is_role


@pytest.mark.threat("role-changed-by-header")
@pytest.mark.parametrize("role", [" admin", "admin ", "  admin  ", "admin\u3000", "\u00a0admin", "\tadmin", "admin\r"])
def test_text_that_a_header_would_change_into_another_role_is_no_role(role: str) -> None:
    assert not is_role(role)


@pytest.mark.parametrize("role", ["admin", "ad min", "\u00fcber", "a" * LONGEST_ROLE])
def test_printable_text_is_a_role(role: str) -> None:
    assert is_role(role)


@pytest.mark.parametrize("value", ["", " ", "a\nb", "a" * (LONGEST_ROLE + 1), None, 7, b"admin", "a\udcff"])
def test_what_breaks_a_line_or_is_no_text_is_no_role(value: object) -> None:
    assert not is_role(value)
