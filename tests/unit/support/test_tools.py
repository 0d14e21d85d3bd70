import sys
from pathlib import Path

import pytest

from tests.support.tools import tool, unusable


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the only directory in which programs are found."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.delenv("REQUIRE_TOOLS", raising=False)
    return tmp_path


def test_a_missing_tool_skips_the_test_and_says_where_it_is_had() -> None:
    with pytest.raises(pytest.skip.Exception, match="promtool: not found, it is in Debian's prometheus"):
        tool("promtool")
    with pytest.raises(pytest.skip.Exception, match="native extension: not installed"):
        unusable("native extension", "not installed")


@pytest.mark.parametrize("name", ["cargo", "go", "native extension", "chromium"])
def test_what_is_missing_fails_the_test_where_tools_are_required(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUIRE_TOOLS", "1")
    with pytest.raises(pytest.fail.Exception, match=f"{name}: no .* REQUIRE_TOOLS is set"):
        unusable(name, "no such thing")


@pytest.mark.parametrize(("name", "value"), [("miri", "1"), ("cargo", ""), ("cargo", "0")])
def test_what_is_missing_skips_the_test_where_it_is_not_required(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUIRE_TOOLS", value)
    with pytest.raises(pytest.skip.Exception):
        unusable(name, "no such thing")
