"""Sessions of the native extension under the fuzzer (see `targets`): an input is a list of steps.

The first byte says which peers there are. Even: two sessions, whose bytes are cut, kept back, broken, doubled or lost
on the way. Odd: a session and a client that has its keys and seals what no honest one does: handshake messages in
pieces, updates of keys, alerts, empty records.
"""

import ssl
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Final

from proxy.net.tls.pem import CERTIFICATES, KEYS, of_kind
from proxy.net.tls.session import FAILED, MORE, new_config, new_session
from tests.support.auth.key_updates import HandSealer, logging_context
from tests.support.auth.tls import HOST, Sealer, authority, certificate, served_config

if TYPE_CHECKING:
    from proxy.core.native import TlsConfig, TlsSession

MOST_STEPS: Final = 64
# What a session keeps at most: plain bytes of a record, and of what was read last a part of a message and of a record
# (native/src/tls.rs).
MOST_KEPT: Final = 16 * 1024 + 4 * 1024 + 17 * 1024
_ROOMS: Final = (0, 1, 100, 70_000)
_NOTHING: Final = b""


class End:
    """A session, the ciphertext on its way to it, the data that it was sent, and those that it gave."""

    def __init__(self, config: "TlsConfig", name: str = "") -> None:
        self.session: TlsSession = new_session(config, name)
        self.wire, self.sent, self.given = bytearray(), bytearray(), bytearray()
        self.over = False

    def receive(self, count: int, room_bytes: int) -> None:
        taken, self.wire = bytes(self.wire[:count]), self.wire[count:]
        room = bytearray(room_bytes)
        self.given += room[: self.session.receive(taken, memoryview(room))]
        assert self.sent.startswith(self.given), "plaintext that nobody sent"

    def keep(self, count: int) -> None:
        taken, self.wire = bytes(self.wire[:count]), self.wire[count:]
        self.session.keep(taken)

    def says(self, data: bytes | None) -> bytes:
        """Seal data, or the end of them; what a session cannot say is nothing."""
        own = self.session.take_own()
        if self.over or self.session.handshaking:
            return own
        self.over = data is None
        with suppress(ValueError):
            return own + (self.session.close_notify() if data is None else self.session.seal([data]))
        return own

    def read_all(self) -> None:
        """Take all that came, until there is no more."""
        for _ in range(MOST_STEPS):
            self.receive(len(self.wire), _ROOMS[-1])
            if not self.session.flags & MORE:
                return
        raise AssertionError("more and more is left")


@cache
def _configs(kind: int) -> "tuple[TlsConfig, TlsConfig]":
    """Return the settings of both sides, with one version or the other, with certificates of clients or without."""
    version, asks = (0x0303, 0x0304)[kind & 1], kind >> 1 & 1
    own, roots = certificate(), of_kind(authority().cert_pem.bytes(), CERTIFICATES)
    chain = of_kind(own.cert_chain_pems[0].bytes(), CERTIFICATES)
    both = {"lists": [], "versions": [version], "suites": [], "key": of_kind(own.private_key_pem.bytes(), KEYS)[0]}
    return (
        new_config(server_side=False, chain=chain, roots=roots, verify=2, check_name=True, resumes=False, **both),
        new_config(server_side=True, chain=chain, roots=roots, verify=asks, check_name=False, resumes=not asks, **both),
    )


def _steps(data: bytes) -> Iterator[tuple[int, int]]:
    return zip(data[1 : 2 * MOST_STEPS : 2], data[2 : 2 * MOST_STEPS + 1 : 2], strict=False)


def tls_session(data: bytes) -> None:
    kind = data[0] if data else 0
    if kind & 1:
        _by_hand(data)
    else:
        _between(kind >> 1, data)


def _between(kind: int, data: bytes) -> None:
    client_config, server_config = _configs(kind)
    client, server = End(client_config, HOST), End(server_config)
    harmed = False
    for step, value in _steps(data):
        end, other = (client, server) if step & 0x80 else (server, client)
        room, at = _ROOMS[step >> 5 & 3], min(value, len(end.wire))
        match step & 0xF:
            case 0 | 1 | 2 | 3:
                end.receive(1 + value * value, room)
            case 4:
                end.keep(1 + value * 8)
            case 5 | 6:
                said = bytes((value,)) * (value * value)
                if not (end.session.handshaking or end.over or end.session.flags & FAILED):
                    other.sent += said
                other.wire += end.says(said)
            case 7 if value % 4 == 0:
                other.wire += end.says(None)
            case 8 | 9:
                _settle(client, server)
            case 10 if end.wire:
                end.wire[value * len(end.wire) // 256] ^= 1 << (step >> 5 & 3)
                harmed = True
            case 11:
                end.wire[at:at] = data[value : value + 40]
                harmed = True
            case 12:
                del end.wire[at : at + 1 + (step >> 5 & 3) * 20]
                harmed = True
            case 13:
                end.wire += end.wire[:at]
                harmed = True
            case 14 if end.wire[:1] == b"\x16":
                end.wire = _in_pieces(end.wire, 1 + value)
                harmed = True
            case _:
                end.wire.clear()
                harmed = True
        other.wire += end.session.take_own()
    _settle(client, server)
    for end in (client, server):
        assert harmed or (end.given == end.sent and not end.session.flags & FAILED), "bytes were lost"


def _settle(client: End, server: End) -> None:
    for _ in range(6):
        for end, other in ((server, client), (client, server)):
            end.wire += other.says(_NOTHING)
            end.read_all()


def _in_pieces(wire: bytearray, size: int) -> bytearray:
    """Return the first record as many."""
    end = 5 + int.from_bytes(wire[3:5], "big")
    parts = (wire[at : min(at + size, end)] for at in range(5, end, size))
    return bytearray().join(bytes(wire[:3]) + len(part).to_bytes(2, "big") + part for part in parts) + wire[end:]


@cache
def _logging() -> tuple[Path, ssl.SSLContext]:
    place = Path(mkdtemp())
    return place, logging_context(place)


def _by_hand(data: bytes) -> None:
    place, context = _logging()
    end, peer = End(served_config()), Sealer(context)
    (place / "keys").write_bytes(b"")
    for _ in range(3):
        with suppress(ssl.SSLWantReadError):
            peer.tls.do_handshake()
        end.wire += peer.outgoing.read()
        end.read_all()
        peer.incoming.write(end.says(_NOTHING))
    assert not end.session.handshaking
    hand, raw = HandSealer.of(place, peer.tls), False
    for step, value in _steps(data):
        body = data[value : value + (step >> 4)]
        match step & 0xF:
            case 0 | 1:
                end.receive(1 + value, _ROOMS[step >> 5 & 3])
            case 2:
                end.keep(1 + value)
            case 3 | 4:
                end.says(body)
            case 5:
                end.wire += hand.updates(1 + value % 40, requested=bool(step & 0x10))
            case 6 | 7:
                end.sent += b"" if raw else body
                end.wire += hand.record(body, 23)
            case 8 | 9 | 10:
                end.wire += b"".join(hand.record(bytes((each,)), 22) for each in body)
            case 11:
                end.wire += hand.record(_MESSAGES[value % len(_MESSAGES)], 22)
            case 12:
                end.wire += b"".join(hand.record(body, (20, 21, 22, 24)[value % 4]) for _ in range(1 + value % 50))
            case 13:
                end.wire += hand.record(bytes((1 + value % 3, step >> 4)), 21)
            case 14:
                end.says(None if value % 8 == 0 else bytes(value * value))
            case _:
                end.wire, raw = end.wire + body, raw or bool(body)
        if not end.session.flags & MORE:
            assert end.session.kept <= MOST_KEPT, "too much is kept"
    end.read_all()
    assert end.session.kept <= MOST_KEPT, "too much is kept"


# The heads of messages that a peer may send behind its handshake, or that claim to be long.
_MESSAGES: Final = (
    bytes((24, 0, 0, 1, 0)) * 3, bytes((24, 0, 0, 1, 9)), bytes((4, 0, 0, 80)), bytes((13, 0, 0, 3, 0, 0, 0)),
    bytes((1, 0, 255, 255)) + bytes(16_000), bytes((0, 0, 0, 0)), bytes((24, 0, 0)), bytes((11, 255, 255, 255)),
)  # fmt: skip


def tls_seeds() -> list[bytes]:
    talk = bytes((8, 0, 5, 9, 0x85, 200, 0x60, 90, 0xE0, 90, 8, 0, 7, 0, 0x87, 0, 8, 0))
    shaken = bytes((0x60, 9, 0xE0, 40, 0x60, 90, 0x61, 90, 0xE0, 90, 0x45, 3, 0x04, 2, 0x40, 7, 8, 0))
    broken = [bytes((0x60, 9, step, 77, 8, 0)) for step in (10, 0x8A, 11, 12, 13, 14, 0x8E)]
    by_hand = [
        bytes((0x48, 1, 0, 70, 2, 30, 0x13, 1, 5, 3, 0, 99)), bytes((0x16, 1, 6, 30, 0, 255, 14, 8, 0x17, 2, 1, 255)),
        *(bytes((11, each, 0, 255, 2, 90, 0x13, 1)) for each in range(len(_MESSAGES))),
        bytes((12, 2, 0x2C, 49, 13, 0, 0x1D, 1)), bytes((15, 3, 0x3F, 1)),
    ]  # fmt: skip
    between = [bytes((kind << 1,)) + each for kind in range(4) for each in (talk, shaken, shaken + talk, *broken)]
    return between + [b"\x01" + each for each in by_hand]
