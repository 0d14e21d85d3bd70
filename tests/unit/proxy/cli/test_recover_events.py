"""What `pulsar-proxy recover-events` makes of damaged files."""

import gzip
from pathlib import Path

import pytest

from proxy.cli.main import FAILED, main

NAME = "events-p-0123456789abcdef-000001.jsonl.gz"


def member(*numbers: int) -> bytes:
    return gzip.compress(b"".join(b'{"seq":%d}\n' % number for number in numbers))


def broken(*numbers: int) -> bytes:
    """Give a member whose packed bytes are damaged."""
    data = bytearray(member(*numbers))
    data[-9] ^= 255
    return bytes(data)


@pytest.mark.parametrize("name", [NAME, f".{NAME}.damaged", f".{NAME}.open"])
def test_flushes_before_and_behind_the_damage_are_copied_and_the_file_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path, data = tmp_path / name, member(1, 2) + broken(3) + member(4) + member(5)[:-1]
    path.write_bytes(data)

    assert main(["recover-events", str(path)]) == 0

    copy = tmp_path / NAME.replace(".jsonl", ".recovered.jsonl")
    assert gzip.decompress(copy.read_bytes()) == b'{"seq":1}\n{"seq":2}\n{"seq":4}\n'
    assert path.read_bytes() == data
    assert set(tmp_path.iterdir()) == {path, copy}
    lost = len(data) - copy.stat().st_size
    assert capsys.readouterr().out == f"{path}: 3 events copied to {copy}, {lost} damaged bytes skipped\n"


def test_of_several_files_each_has_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, text, absent = (tmp_path / name for name in ("whole.jsonl.gz", "text.jsonl", "absent.jsonl.gz"))
    whole.write_bytes(member(1) + member(2, 3))
    text.write_bytes(b'{"seq":1}\n')

    assert main(["recover-events", str(absent), str(text), str(whole)]) == FAILED

    out, err = capsys.readouterr()
    assert out == f"{whole}: sound, 3 events\n"
    assert err.splitlines() == [
        f"error: {absent}: cannot be recovered: no such file or directory",
        f"error: {text}: got no sound flush, expected a file of the event log (*.jsonl.gz)",
    ]
    assert set(tmp_path.iterdir()) == {whole, text}
