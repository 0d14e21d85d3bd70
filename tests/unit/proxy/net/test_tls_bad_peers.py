"""What peers show and send that nobody should: each ends with one cause, or is borne."""

import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from proxy.app.memory.budget import RELAYED_RECORD_BYTES
from proxy.net.tls.pem import CERTIFICATES, KEYS, of_kind
from proxy.net.tls.session import FAILED, MORE, PEER_CLOSED, new_config, new_session
from tests.support.auth.key_updates import HandSealer, logging_context
from tests.support.auth.odd_certificates import (
    NOW,
    Odd,
    below,
    first_version,
    huge_key,
    odd,
    root,
    signed_with_sha1,
)
from tests.support.auth.tls import HOST, Refused, Sealer, certificate, hands_shaken, served_config

if TYPE_CHECKING:
    from proxy.core.native import TlsConfig, TlsSession

DAY = timedelta(days=1)
TLS_1_2, TLS_1_3 = 0x0303, 0x0304
# What a session keeps of a message that is not whole (native/src/tls.rs).
PIECES_BYTES = 4 * 1024
HANDSHAKE = 22
UPDATE = bytes((24, 0, 0, 1, 0))
NOTHING = memoryview(bytearray())
Talk = tuple["TlsSession", HandSealer]


def trusting(roots: Sequence[Odd], *, brokers: bool, version: int, check_name: bool) -> "TlsConfig":
    """Give settings of the proxy towards brokers, or of its port, which demands certificates."""
    own = certificate()
    chain = [] if brokers else of_kind(own.cert_chain_pems[0].bytes(), CERTIFICATES)
    key = b"" if brokers else of_kind(own.private_key_pem.bytes(), KEYS)[0]
    return new_config(
        server_side=not brokers, chain=chain, key=key, roots=[each.der for each in roots], lists=[], verify=2,
        check_name=check_name, versions=[version], suites=[], resumes=False,
    )  # fmt: skip


def shown_by_a_broker(shown: Odd, roots: Sequence[Odd], version: int, *, check_name: bool = True) -> None:
    context = shown.shown(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    hands_shaken(trusting(roots, brokers=True, version=version, check_name=check_name), context, HOST)


def shown_by_a_client(shown: Odd, roots: Sequence[Odd], version: int) -> None:
    hands_shaken(trusting(roots, brokers=False, version=version, check_name=False), shown.shown(unchecking()))


def unchecking() -> ssl.SSLContext:
    """Give what a client uses that trusts anybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


both_versions = pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
BAD: dict[str, tuple[Callable[[], Odd], str]] = {
    "seven between": (lambda: below(7), "more than 6 stand between"),
    "a chain of 100": (lambda: below(99), "certificates beside it, expected at most 31"),
    "a key of 16 Kbit": (lambda: odd(root(), key=huge_key()), "more than 8,192 bits"),
    "a key of 1,024 bits": (lambda: odd(root(), key=rsa.generate_private_key(65537, 1024)), "less than 2,048"),
    "expired": (lambda: odd(root(), ends=NOW - DAY), "has expired"),
    "not yet valid": (lambda: odd(root(), begins=NOW + DAY), "not yet valid"),
    "an authority's own": (lambda: odd(authority=True, subject="other"), "not itself in the file of trusted ones"),
    "version 1": (lambda: first_version(odd(subject="other")), "not of version 3"),
    "signed by itself": (lambda: odd(subject="other"), "nobody trusted has signed it"),
    "SHA-1": (lambda: signed_with_sha1(odd(root()), root()), "as with SHA-1"),
    "SHA-1 above": (
        lambda: odd(signed_with_sha1(odd(root(), authority=True, subject="middle"), root())), "as with SHA-1",
    ),
}  # fmt: skip


@both_versions
@pytest.mark.parametrize("shows", [shown_by_a_broker, shown_by_a_client])
@pytest.mark.parametrize(("bad", "told"), BAD.values(), ids=BAD)
def test_a_certificate_that_will_not_do_is_refused_for_what_is_wrong_with_it(
    shows: Callable[[Odd, Sequence[Odd], int], None], bad: Callable[[], Odd], told: str, version: int
) -> None:
    with pytest.raises(Refused, match=rf"^the certificate is refused: .*{told}"):
        shows(bad(), [root()], version)


@both_versions
@pytest.mark.parametrize("shows", [shown_by_a_broker, shown_by_a_client])
def test_an_empty_subject_and_six_between_are_no_fault(
    shows: Callable[[Odd, Sequence[Odd], int], None], version: int
) -> None:
    shows(odd(root(), subject=""), [root()], version)
    shows(below(6), [root()], version)


@both_versions
def test_a_broker_of_another_name_is_told_with_both_names(version: int) -> None:
    with pytest.raises(Refused, match="hostname mismatch: got elsewhere, nowhere, expected localhost"):
        shown_by_a_broker(odd(root(), names=("elsewhere", "nowhere")), [root()], version)


@both_versions
@pytest.mark.parametrize("pinned", [odd(), odd(authority=True), first_version(odd())], ids=["leaf", "CA", "version 1"])
def test_a_certificate_that_is_itself_trusted_is_enough(pinned: Odd, version: int) -> None:
    shown_by_a_client(pinned, [pinned], version)
    shown_by_a_broker(pinned, [pinned], version, check_name=False)


@both_versions
def test_a_client_connects_however_many_authorities_are_trusted(version: int) -> None:
    key = root().key
    many = [odd(authority=True, key=key, subject=f"{number:04}{'x' * 60}") for number in range(1200)]
    shown_by_a_client(odd(root()), [*many, root()], version)


def test_whoever_shows_a_trusted_certificate_of_version_1_has_to_have_its_key() -> None:
    pinned = first_version(odd())
    ours = new_session(trusting([pinned], brokers=False, version=TLS_1_2, check_name=False), "")
    peer = Sealer(pinned.shown(unchecking()))
    for _ in range(2):
        peer.incoming.write(ours.take_own())
        with suppress(ssl.SSLWantReadError):
            peer.tls.do_handshake()
        said, at = bytearray(peer.outgoing.read()), 0
        while at < len(said):
            kind, at = said[at + 5], at + 5 + int.from_bytes(said[at + 3 : at + 5], "big")
            # CertificateVerify ends with the signature.
            said[at - 1] ^= kind == 15
        ours.receive(said, NOTHING)
    assert ours.failure is not None
    assert "a signature is wrong" in ours.failure[1]


# --- behind the handshake -------------------------------------------------------------------------


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    """Give the proxy's session with a client, and what seals the client's records."""
    ours, theirs = hands_shaken(served_config(), logging_context(tmp_path))
    return ours, HandSealer.of(tmp_path, theirs)


def test_a_message_in_pieces_does_not_disturb_what_is_written_meanwhile(talk: Talk) -> None:
    ours, hand = talk
    ours.receive(hand.record(UPDATE[:2], HANDSHAKE), NOTHING)
    ours.keep(hand.record(UPDATE[2:], HANDSHAKE)[:9])
    assert ours.seal([b"answer"])
    assert ours.failure is None


def test_an_empty_message_and_a_full_room_do_not_disturb_what_is_written_next(talk: Talk) -> None:
    ours, hand = talk
    room = bytearray(4)
    assert ours.receive(hand.record(b"", HANDSHAKE) + hand.data(b"data") + hand.data(b"more"), memoryview(room)) == 4
    assert ours.seal([b"answer"])
    assert ours.receive(b"", memoryview(room)) == 4
    assert bytes(room) == b"more"


def test_records_that_come_cut_within_a_head_are_all_handed_out(talk: Talk) -> None:
    ours, hand = talk
    records = hand.data(b"1") + hand.data(b"2") + hand.data(b"3")
    room = memoryview(bytearray(1))
    ours.receive(records[:3], room)
    ours.receive(records[3:], room)
    given = bytearray(room)
    while ours.flags & MORE:
        ours.receive(b"", room)
        given += room
    assert given == b"123"


@pytest.mark.parametrize("rest", [b"\0", bytes(1000), bytes(16_000)])
def test_pieces_of_a_message_that_never_ends_are_kept_up_to_a_bound(talk: Talk, rest: bytes) -> None:
    ours, hand = talk
    piece, sent = hand.record(bytes((24, 0, 255, 255)), HANDSHAKE), 0
    while not ours.flags & FAILED:
        assert ours.kept <= PIECES_BYTES
        # A part of a record may be kept behind them, and no budget has more of an unread one.
        ours.receive(piece[:-1], NOTHING)
        assert ours.kept <= PIECES_BYTES + len(piece) <= RELAYED_RECORD_BYTES
        ours.receive(piece[-1:], NOTHING)
        sent += len(piece)
        assert sent <= PIECES_BYTES + 2 * len(piece)
        piece = hand.record(rest, HANDSHAKE)
    assert ours.failure is not None
    assert "of a message in pieces" in ours.failure[1]
    assert ours.kept == 0


def test_what_comes_behind_the_end_of_the_stream_is_not_kept(talk: Talk) -> None:
    ours, hand = talk
    ours.receive(hand.record(b"\x01\0", 21) + bytes(100), NOTHING)
    assert ours.flags == PEER_CLOSED
    ours.receive(bytes(1000), NOTHING)
    ours.keep(bytes(1000))
    assert ours.kept == 0


def test_a_peer_that_breaks_the_rules_is_told_apart_in_words(talk: Talk) -> None:
    ours, hand = talk
    ours.receive(b"".join(hand.data(b"") for _ in range(33)), NOTHING)
    assert ours.failure == ("other", "the client breaks the rules of tls: too many empty fragments")


def test_a_buffer_is_not_read_and_written_at_once(talk: Talk) -> None:
    ours, hand = talk
    both = memoryview(bytearray(hand.data(b"data")))
    with pytest.raises(BufferError, match="share no bytes"):
        ours.receive(both[:-1], both[1:])
