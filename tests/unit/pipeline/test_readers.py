"""What streams have read of a table's files: no file is taken for read that a living stream has not."""

from pathlib import Path

from pipeline.changes import NOTES, Change, Directory
from pipeline.readers import ReadFiles

A, B, C = (Path("events", f"part-{name}.parquet") for name in "abc")


def begun(root: Path, stream: str) -> ReadFiles:
    reads = ReadFiles(root, "events")
    with Directory(root).exclusive() as writer:
        reads.begin(stream)
        writer.make(Change(stream, notes={stream: -1}))
    return reads


def test_table_without_a_stream_has_nothing_that_is_unread(tmp_path: Path) -> None:
    assert ReadFiles(tmp_path, "events").unread([A, B]) == set()


def test_file_is_read_once_every_stream_has_read_it(tmp_path: Path) -> None:
    reads = begun(tmp_path, "usage")
    begun(tmp_path, "bills")
    assert reads.unread([A, B, C]) == {A, B, C}
    reads.add("usage", 0, {A.name, B.name})
    reads.add("bills", 7, {B.name, C.name})
    assert reads.unread([A, B, C]) == {A, C}
    assert (reads.has("usage", 0), reads.has("usage", 7)) == (True, False)


def test_stream_whose_note_was_deleted_holds_nothing_up(tmp_path: Path) -> None:
    reads = begun(tmp_path, "usage")
    (tmp_path / NOTES / "usage").unlink()
    assert reads.unread([A]) == set()


def test_stream_that_begins_anew_has_read_nothing(tmp_path: Path) -> None:
    begun(tmp_path, "usage").add("usage", 0, {A.name})
    assert begun(tmp_path, "usage").unread([A]) == {A}


def test_batches_whose_files_are_gone_are_forgotten_but_for_the_last(tmp_path: Path) -> None:
    reads = begun(tmp_path, "usage")
    for number, path in ((9, A), (10, B), (11, C)):
        reads.add("usage", number, {path.name})
    reads.forget([B])
    assert [reads.has("usage", number) for number in (9, 10, 11)] == [False, True, True]


def test_note_that_was_not_written_to_its_end_counts_for_nothing(tmp_path: Path) -> None:
    reads = begun(tmp_path, "usage")
    (tmp_path / NOTES / "usage.read" / "events" / ".0").write_text(A.name)
    assert reads.unread([A]) == {A}
