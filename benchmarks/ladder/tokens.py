"""Owns the tokens of one run: one for each connection, of one role, signed with a secret that lives as long as the run.

The keys are those that our proxy and the Java proxy have in common; the fake broker takes every token.
"""

from __future__ import annotations

import hmac
import json
import os
from base64 import b64encode, urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path

SECRET_BYTES = 64


@dataclass(frozen=True)
class Tokens:
    """A file with a token in each line, and the secret that proves them."""

    file: Path
    secret: bytes

    def proxy_lines(self) -> list[str]:
        """Return the keys of both proxies: clients prove who they are, and the broker gets their tokens."""
        return [
            "authenticationEnabled=true",
            "authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
            f"tokenSecretKey=data:;base64,{b64encode(self.secret).decode()}",
            "forwardAuthorizationCredentials=true",
            # For the look whether the server answers, which has no token.
            "anonymousUserRole=onlooker",
        ]

    def load_options(self) -> list[str]:
        """Return what makes each connection of the load generator present a token of its own."""
        return ["--tokens", str(self.file)]


def make_tokens(directory: Path, count: int) -> Tokens:
    """Write so many tokens into `directory`, over those of an earlier run."""
    directory.mkdir(parents=True, exist_ok=True)
    secret, file = os.urandom(SECRET_BYTES), directory / "tokens"
    file.write_text("".join(f"{_token(secret, number)}\n" for number in range(count)))
    return Tokens(file, secret)


def _token(secret: bytes, number: int) -> str:
    covered = b".".join(_part(part) for part in ({"alg": "HS256"}, {"sub": "storm", "jti": f"{number:08}"}))
    return (covered + b"." + _encoded(hmac.digest(secret, covered, "sha256"))).decode()


def _part(part: dict[str, str]) -> bytes:
    return _encoded(json.dumps(part).encode())


def _encoded(content: bytes) -> bytes:
    return urlsafe_b64encode(content).rstrip(b"=")
