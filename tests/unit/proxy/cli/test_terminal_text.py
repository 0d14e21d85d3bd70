"""What a stranger chose as a name does no harm on the terminal of an operator."""

import pytest

from proxy.cli.admin.tables import Column, table
from proxy.cli.admin.terminal_text import cut, pad, plain, width
from proxy.cli.top.screen import render
from tests.unit.proxy.cli.test_top import document

HOSTILE = [
    "\x1b[2J\x1b[H", "\x9b2J", "\x07", "a\r\nb", "a\tb", "\u2028", "\u202ecba", "\u2066abc\u2069", "\u200b", "\ufeff",
    "e" + "\u0301" * 50, "a\u20dd", "\u05d0\u05d1", "\u0627\u0628", "\u0661\u0662", "\U000e0041", "\ud800", "\u061c",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_what_moves_or_turns_the_text_around_it_is_replaced(text: str) -> None:
    shown = plain(text)
    assert "?" in shown
    assert len(shown) == len(text)
    assert shown.isprintable()
    assert plain(shown) == shown
    assert width(shown) == len(text)


@pytest.mark.parametrize("text", ["alice", "müller", "Ωmega", "日本語", "-:=.@/"])
def test_names_of_people_stay_as_they_are(text: str) -> None:
    assert plain(text) == text


def test_wide_characters_take_two_columns() -> None:
    assert width("日本語") == 6
    assert cut("日本語日本語", 10) == "日本語..."
    assert cut("日本語", 6) == "日本語"
    assert width(cut("日" * 100, 44)) <= 44
    assert cut("a" * 50, 44) == "a" * 41 + "..."
    assert pad("日本", 6) == "日本  "
    assert pad("日本", 6, right=True) == "  日本"
    assert pad("abcdef", 3) == "abcdef"


WIDE = "日" * 60


@pytest.mark.threat("names-distort-screen")
def test_no_row_of_a_table_is_moved_by_a_name() -> None:
    hostile = "\u202e\u05d0e\u0301" * 5
    columns = (Column("NAME", lambda row: str(row["name"]), 20), Column("SIZE", lambda row: "7", 4, number=True))
    _, *rows = table(columns, [{"name": name} for name in ("alice", "日本語", hostile, "x" * 500, *HOSTILE)])
    assert {row.isprintable() for row in rows} == {True}
    assert {width(row) for row in rows if len(row) <= 26} == {26}


@pytest.mark.threat("names-distort-screen")
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_line_of_the_screen_is_wider_than_the_terminal_whatever_clients_are_called(columns: int) -> None:
    for name in (WIDE, "\u05d0" * 60, *HOSTILE):
        shown = document()
        shown["usage"]["namespaces"] = shown["usage"]["principals"] = [
            {"name": name, "byte_seconds": 1.0, "sent_bytes": 1.0, "refused": 1.0}
        ]
        shown["refusals"][0].update(client=name, subject=name, top_holders=[[name, 1]])
        for line in render(shown, columns):
            assert width(line) <= columns
            assert plain(line) == line
