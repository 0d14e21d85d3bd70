"""Own the credentials of the transcripts: signed with a key that is no secret, the same bytes in every run.

Nothing here expires by itself: what is valid is valid for ever, what is expired was so from the beginning.
"""

import base64
import hashlib
import hmac
import json
from typing import Any, Final

SECRET: Final = b"the key of the transcripts, which is no secret at all"
SECRET_KEY: Final = "data:;base64," + base64.b64encode(SECRET).decode()
_LONG_AGO: Final = 1_000_000_000


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _token(secret: bytes, **claims: Any) -> str:
    head = _part(b'{"alg":"HS256"}') + "." + _part(json.dumps(claims, separators=(",", ":")).encode())
    return f"{head}.{_part(hmac.digest(secret, head.encode(), hashlib.sha256))}"


ALICE: Final = _token(SECRET, sub="alice")
PROXY: Final = _token(SECRET, sub="proxy")
EXPIRED: Final = _token(SECRET, sub="alice", exp=_LONG_AGO)
NO_SUBJECT: Final = _token(SECRET, role="alice")
FOREIGN: Final = _token(b"another key that nobody has ever told anybody about", sub="alice")
UNSIGNED: Final = _part(b'{"alg":"none"}') + "." + _part(b'{"sub":"alice"}') + "."

# What a transcript calls each of them.
TOKENS: Final = {
    ALICE: "<token of alice>",
    PROXY: "<token of the proxy>",
    EXPIRED: "<expired token of alice>",
    NO_SUBJECT: "<token without a subject>",
    FOREIGN: "<token signed with another key>",
    UNSIGNED: "<unsigned token>",
}
