"""A session of TLS bears any bytes of its peer: it fails with a reason, or goes on; it never panics."""

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from proxy.net.tls.session import FAILED, MORE, new_session
from tests.support.auth.tls import HOST, calling_config, served_config

if TYPE_CHECKING:
    from proxy.core.native import TlsSession

NO_ROOM = memoryview(bytearray())
ROUNDS = 400


def pair() -> "tuple[TlsSession, TlsSession]":
    return new_session(served_config(), ""), new_session(calling_config(), HOST)


def pieces(data: bytes, source: random.Random) -> list[bytes]:
    """Cut bytes at random places."""
    cuts = sorted({0, len(data), *(source.randrange(len(data) + 1) for _ in range(source.randrange(6)))})
    return [data[start:end] for start, end in pairwise(cuts)]


def mutated(data: bytes, source: random.Random) -> bytes:
    """Change some bytes, repeat, drop or fragment a part, as a peer could."""
    changed = bytearray(data)
    for _ in range(source.randrange(1, 4)):
        if not changed:
            break
        start = source.randrange(len(changed))
        end = min(len(changed), start + source.randrange(40))
        match source.randrange(5):
            case 0:
                changed[start] = source.randrange(256)
            case 1:
                del changed[start:end]
            case 2:
                changed[start:start] = changed[start:end]
            case 3:
                changed[start:start] = source.randbytes(source.randrange(20))
            case 4:
                # The first record in two, cut anywhere: a handshake message over records.
                body = bytes(changed[5:])
                cut = source.randrange(len(body) + 1)
                head = bytes(changed[:3])
                changed = bytearray(
                    head
                    + cut.to_bytes(2, "big")
                    + body[:cut]
                    + head
                    + (len(body) - cut).to_bytes(2, "big")
                    + body[cut:]
                )
    return bytes(changed)


def go_on(sessions: "tuple[TlsSession, TlsSession]", source: random.Random, *, spoil: float) -> None:
    """Pass bytes to and fro, and have both write whatever becomes of the other."""
    room = memoryview(bytearray(700))
    # What each has sealed and not sent.
    sealed = {id(session): b"" for session in sessions}
    for _ in range(5):
        for sender, receiver in (sessions[::-1], sessions):
            sent, sealed[id(sender)] = sealed[id(sender)] + sender.take_own(), b""
            if not sender.handshaking and not sender.flags & FAILED:
                sent += sender.seal([source.randbytes(source.randrange(3000))])
            if sent and source.random() < spoil:
                sent = mutated(sent, source)
            for piece in pieces(sent, source):
                receiver.receive(piece, NO_ROOM if receiver.handshaking else room)
                while receiver.flags & MORE and not receiver.flags & FAILED and not receiver.handshaking:
                    receiver.receive(b"", room)
                if not receiver.handshaking and not receiver.flags & FAILED and source.random() < 0.3:
                    # While a part of a record is kept.
                    sealed[id(receiver)] += receiver.seal([b"words"])


def test_bytes_that_a_peer_has_changed_end_a_session_with_a_reason() -> None:
    failed = 0
    for seed in range(ROUNDS):
        source = random.Random(seed)
        sessions = pair()
        go_on(sessions, source, spoil=0.4)
        for session in sessions:
            if session.flags & FAILED:
                failed += 1
                assert session.failure is not None
                assert session.failure[1]
                assert session.receive(b"\x17\x03\x03\x00\x01a", NO_ROOM) == 0
                with pytest.raises(ValueError, match=r".") as caught:
                    session.seal([b"a"])
                assert caught.value.args == session.failure
    assert failed > ROUNDS // 2


def test_records_cut_anywhere_pass_whole() -> None:
    for seed in range(ROUNDS // 4):
        source = random.Random(seed)
        sessions = served, called = pair()
        go_on(sessions, source, spoil=0)
        assert (served.flags & FAILED, called.flags & FAILED) == (0, 0)
        assert (served.handshaking, called.handshaking) == (False, False)


@pytest.mark.parametrize("size", [1, 5, 100, 16_384, 40_000])
def test_bytes_that_are_no_hello_are_refused(size: int) -> None:
    source = random.Random(size)
    for _ in range(20):
        session = new_session(served_config(), "")
        session.receive(b"\x16\x03\x01" + source.randbytes(size), NO_ROOM)
        session.receive(source.randbytes(size), NO_ROOM)
        assert session.handshaking
