"""Check the size of a ClientHello before a session gets any of it.

Rule: a session gets a ClientHello whole or not at all, so that it begins with work and not with waiting. The proxy
keeps only the bytes that were sent, with a limit.
"""

from typing import Final

from proxy.core.errors import DisconnectCause
from proxy.net.tls.failures import TlsFailed

# Real ClientHellos are below 4 KiB; with post-quantum key shares and a ticket with certificates, below 8 KiB.
LARGEST_HELLO_BYTES: Final = 16 * 1024
# Clients send a ClientHello in one record, or a few.
MOST_RECORDS: Final = 64
# Limit of what `hello_end` may have to look at: a ClientHello with all its records, the last of which holds more.
MOST_HELLO_BYTES: Final = 2 * LARGEST_HELLO_BYTES + 1024
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_RECORD_HEADER_BYTES: Final = 5
_MESSAGE_HEADER_BYTES: Final = 4
# A client may send this record before its second ClientHello (RFC 8446, D.4).
_CHANGE_CIPHER_SPEC: Final = b"\x14\x03\x03\x00\x01\x01"
# The random value that marks a ServerHello as HelloRetryRequest (RFC 8446, 4.1.3), and its offset in the first record.
_RETRY_RANDOM: Final = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
_RANDOM_AT: Final = _RECORD_HEADER_BYTES + _MESSAGE_HEADER_BYTES + 2


def hello_end(held: bytes) -> int:
    """Return the end of the ClientHello at the beginning of `held`; 0 if it is incomplete.

    Raises TlsFailed if `held` does not begin with a ClientHello, or with one that claims to be too large.
    """
    end, _ = hello_progress(held)
    return end


def hello_progress(held: bytes) -> tuple[int, int]:
    """Return what `hello_end` does, and how many bytes `held` must have before another look can tell more.

    A client that drips is then looked at twice for each record, whatever number of pieces the record comes in.
    """
    start = len(_CHANGE_CIPHER_SPEC) if held.startswith(_CHANGE_CIPHER_SPEC) else 0
    if start == 0 and _CHANGE_CIPHER_SPEC.startswith(held):
        return 0, len(_CHANGE_CIPHER_SPEC)
    missing = _MESSAGE_HEADER_BYTES
    for number in range(MOST_RECORDS):
        body = start + _RECORD_HEADER_BYTES
        if held[start : start + 1] not in (b"", bytes((_HANDSHAKE,))):
            raise _refused(f"got a record of type {held[start]} within it, expected type {_HANDSHAKE}")
        if len(held) < body:
            return 0, body
        length = int.from_bytes(held[body - 2 : body], "big")
        if number == 0:
            if length < _MESSAGE_HEADER_BYTES:
                raise _refused(f"got a first record of {length} bytes, expected {_MESSAGE_HEADER_BYTES} or more")
            if len(held) < body + _MESSAGE_HEADER_BYTES:
                return 0, body + _MESSAGE_HEADER_BYTES
            missing = _MESSAGE_HEADER_BYTES + _claimed(held[body : body + _MESSAGE_HEADER_BYTES])
        if length > LARGEST_HELLO_BYTES + _MESSAGE_HEADER_BYTES:
            raise _refused(f"got a record of {length} bytes within it")
        # The last record may hold more than the ClientHello: the session judges the rest.
        missing -= length
        start = body + length
        if missing <= 0:
            return (start if len(held) >= start else 0), start
        if len(held) < start:
            # The next record's header says more.
            return 0, start + _RECORD_HEADER_BYTES
    raise _refused(f"got more than {MOST_RECORDS} records of it")


def bytes_after(hello: bytes) -> int:
    """Return how many bytes of the records of a whole ClientHello belong to the messages after it."""
    start = len(_CHANGE_CIPHER_SPEC) if hello.startswith(_CHANGE_CIPHER_SPEC) else 0
    first = start + _RECORD_HEADER_BYTES
    rest = -_MESSAGE_HEADER_BYTES - _claimed(hello[first : first + _MESSAGE_HEADER_BYTES])
    while start < len(hello):
        body = start + _RECORD_HEADER_BYTES
        length = int.from_bytes(hello[body - 2 : body], "big")
        rest += length
        start = body + length
    return rest


def check_first_byte(byte: int) -> None:
    """Raise TlsFailed if `byte` begins no TLS handshake."""
    if byte != _HANDSHAKE:
        raise TlsFailed(DisconnectCause.NOT_TLS, "not_tls", "the client does not speak TLS")


def asks_again(answer: bytes) -> bool:
    """Return whether the server's answer is a HelloRetryRequest, after which a second ClientHello comes."""
    return answer[_RANDOM_AT : _RANDOM_AT + len(_RETRY_RANDOM)] == _RETRY_RANDOM


def _claimed(header: bytes) -> int:
    if header[0] != _CLIENT_HELLO:
        raise _refused(f"got handshake type {header[0]}, expected {_CLIENT_HELLO}")
    size = int.from_bytes(header[1:], "big")
    if size > LARGEST_HELLO_BYTES:
        raise _refused(f"got one that claims {size} bytes, expected at most {LARGEST_HELLO_BYTES}")
    return size


def _refused(detail: str) -> TlsFailed:
    return TlsFailed(DisconnectCause.TLS_HANDSHAKE_FAILED, "other", f"the client's hello is refused: {detail}")
