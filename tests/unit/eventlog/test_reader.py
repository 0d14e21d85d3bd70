import gzip
from pathlib import Path

import pytest

from eventlog.reader import LONGEST_LINE, Problem, read_events


def read(path: Path) -> tuple[list[object], list[tuple[int, str]]]:
    problems: list[Problem] = []
    events = [event["seq"] for event in read_events(path, problems.append)]
    return events, [(problem.line, problem.reason) for problem in problems]


def text(*numbers: int) -> bytes:
    return b"".join(b'{"seq":%d}\n' % number for number in numbers)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("data", "events", "problems"),
    [
        (b"", [], []),
        (text(1, 2), [1, 2], []),
        (text(1) + b"no json\n" + text(3), [1, 3], [(2, "malformed")]),
        (text(1) + b"[1]\n" + b"\xff\n" + text(4), [1, 4], [(2, "malformed"), (3, "malformed")]),
        (text(1) + b'{"seq":', [1], [(2, "truncated")]),
        (text(1) + b'{"seq":"' + b"x" * 3 * LONGEST_LINE + b'"}\n' + text(3), [1, 3], [(2, "too_long")]),
        (b"[" * 200_000 + b"\n" + text(2), [2], [(1, "malformed")]),
    ],
    ids=["empty", "whole", "no json", "no object", "cut", "too long", "deep"],
)
def test_what_can_be_read_is_given_and_the_rest_told(
    tmp_path: Path, packed: bool, data: bytes, events: list[int], problems: list[tuple[int, str]]
) -> None:
    path = tmp_path / "events"
    path.write_bytes(gzip.compress(data) if packed else data)
    assert read(path) == (events, problems)


@pytest.mark.parametrize("cut", [1, 4, 8, 12, 20])
def test_cut_member_gives_the_lines_it_still_has(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "events"
    path.write_bytes(gzip.compress(text(*range(1, 101))) + gzip.compress(text(101, 102))[:-cut])
    events, problems = read(path)
    assert events[:100] == list(range(1, 101))
    assert [reason for _, reason in problems] == ["truncated"]


def test_damage_between_members_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(gzip.compress(text(1, 2)) + b"\0" * 100 + gzip.compress(text(3)))
    assert read(path) == ([1, 2], [(3, "damaged")])


def test_many_members_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"".join(gzip.compress(text(number)) for number in range(2000)))
    assert read(path) == (list(range(2000)), [])


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_line_without_an_end_is_not_in_memory_as_a_whole(tmp_path: Path, end: bytes) -> None:
    import tracemalloc

    path = tmp_path / "events"
    with gzip.open(path, "wb", 1) as file:
        for _ in range(32):
            file.write(b"x" * 2**20)
        file.write(end)
    tracemalloc.start()
    try:
        assert read(path) == ([], [(1, "too_long")])
        assert tracemalloc.get_traced_memory()[1] < 6 * LONGEST_LINE
    finally:
        tracemalloc.stop()


def test_line_at_the_bound_is_read_and_the_next_longer_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "events"
    frame = len(b'{"seq":1,"x":""}')
    lines = [b'{"seq":1,"x":"%b"}\n' % (b"x" * (LONGEST_LINE - frame + more)) for more in (0, 1)]
    path.write_bytes(gzip.compress(b"".join(lines), 1))
    assert read(path) == ([1], [(2, "too_long")])


def test_problem_shows_the_beginning_of_the_line(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(b"x" * 1000 + b"\n")
    problems: list[Problem] = []
    assert list(read_events(path, problems.append)) == []
    assert problems == [Problem(1, "malformed", "x" * 200)]
