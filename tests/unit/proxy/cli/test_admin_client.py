"""What the commands that ask a proxy bear of whoever answers."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from proxy.cli.admin import client
from proxy.cli.admin.client import AdminClient, NoAnswer

PIECE = b"10000\r\n" + b" " * 0x10000 + b"\r\n"


@contextmanager
def answering(*pieces: bytes, again: bytes = b"") -> Iterator[tuple[Path, list[int]]]:
    """Answer one request with `pieces`, then with `again` without end; give the path, and the bytes that were taken."""
    taken: list[int] = []
    # A test's own directory may have a name that is too long for a socket.
    with TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listening:
        path = Path(directory, "s")
        listening.bind(str(path))
        listening.listen(1)

        def answer() -> None:
            accepted, _ = listening.accept()
            with accepted, suppress(OSError):
                accepted.recv(65536)
                for piece in pieces:
                    accepted.sendall(piece)
                while again:
                    accepted.sendall(again)
                    taken.append(len(again))

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield path, taken
        finally:
            thread.join()


@pytest.mark.threat("default-path-taken")
@pytest.mark.parametrize("framing", [b"Transfer-Encoding: chunked\r\n", b"", b"Content-Length: 99999999999\r\n"])
def test_an_answer_without_end_is_read_up_to_a_bound(framing: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = 4 * len(PIECE)
    monkeypatch.setattr(client, "LARGEST_ANSWER_BYTES", bound)
    with (
        answering(b"HTTP/1.1 200 OK\r\n", framing, b"\r\n", again=PIECE) as (path, taken),
        pytest.raises(NoAnswer, match=f"more than {bound} bytes"),
    ):
        AdminClient([path]).ask("GET", "/v1/top")
    # What is not read stays in kernel buffers.
    assert sum(taken) < 2 * bound + 1024 * 1024


def test_an_answer_at_the_bound_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"a": "%s"}' % (b"x" * 100_000)
    monkeypatch.setattr(client, "LARGEST_ANSWER_BYTES", len(body))
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body) as (path, _):
        assert len(AdminClient([path]).ask("GET", "/v1/top")["a"]) == 100_000


def test_an_answer_that_breaks_off_is_none() -> None:
    with (
        answering(b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"a": 1') as (path, _),
        pytest.raises(NoAnswer, match="no valid answer"),
    ):
        AdminClient([path]).ask("GET", "/v1/top")
