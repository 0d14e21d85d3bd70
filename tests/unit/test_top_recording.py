"""The recording of `top`: screens out of what a terminal got, and the moving picture that is drawn of them."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from benchmarks.top_recording import COLUMNS, HOME, LINES, Frame, Piece, cast, frames, picture

IMAGES = Path(__file__).resolve().parents[2] / "docs/images"
SVG = "{http://www.w3.org/2000/svg}"


def screen(*lines: str) -> str:
    return HOME + "".join(f"\x1b[K{line}\r\n" for line in lines) + "\x1b[J"


def test_a_screen_begins_where_the_cursor_goes_home_and_stands_until_another_is_drawn() -> None:
    first, second = screen("one", "", "two"), screen("three")
    # A read may end anywhere, inside a screen as well.
    pieces = [
        Piece(0.5, "\x1b[?1049h\x1b[?25l" + first[:9]), Piece(0.6, first[9:]), Piece(1.0, first), Piece(2.0, second),
    ]  # fmt: skip
    assert frames(pieces, 5.0) == [Frame(("one", "", "two"), 1.5), Frame(("three",), 3.0)]


def test_every_screen_of_the_picture_is_seen_at_its_time_and_no_two_at_once() -> None:
    drawn = picture([Frame(("a <b> & c",), 1.0), Frame(("[###]",), 3.0)])
    root = ElementTree.fromstring(drawn)
    groups = {group.get("id"): [text.text for text in group] for group in root.iter(f"{SVG}g")}
    assert groups == {"f0": ["a <b> & c"], "f1": ["[###]"]}
    visible = re.findall(r"@keyframes (f\d).*?\}([\d.]+)%,([\d.]+)%\{visibility:visible\}", drawn)
    assert [(name, round(float(first)), round(float(last))) for name, first, last in visible] == [
        ("f0", 0, 25), ("f1", 25, 100),
    ]  # fmt: skip
    # Who wants no motion sees the screen with the fullest bars.
    assert "prefers-reduced-motion:reduce){g{animation:none!important}#f1{visibility:visible}" in drawn


def test_the_recording_is_an_asciicast() -> None:
    head, *events = (json.loads(line) for line in cast([Piece(0.25, "text")]).splitlines())
    assert (head["version"], head["width"], head["height"]) == (2, COLUMNS, LINES)
    assert events == [[0.25, "o", "text"]]


def test_the_pictures_of_the_docs_are_what_the_recording_gives() -> None:
    head, *events = (json.loads(line) for line in (IMAGES / "top.cast").read_text(encoding="utf-8").splitlines())
    pieces = [Piece(at, text) for at, _, text in events]
    shown = [text for _, _, text in events if "heap" in text]
    assert shown, "a storm was seen"
    root = ElementTree.parse(IMAGES / "top.svg").getroot()
    drawn = [[text.text for text in group] for group in root.iter(f"{SVG}g")]
    expected = [[line for line in frame.lines if line.strip()] for frame in frames(pieces, pieces[-1].at + 1.0)]
    assert [lines for lines in drawn if lines not in expected] == []
    assert all(len(line) <= head["width"] for lines in expected for line in lines)
