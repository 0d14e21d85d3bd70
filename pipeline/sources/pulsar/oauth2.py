"""OAuth 2 client credentials for the admin interface; the client library does the same by itself for brokers.

Rule: a token is used until a minute before its end. Source: RFC 6749 section 4.4, RFC 8414 for the address.
"""

import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pipeline.sources.pulsar.errors import TopicError

_TIMEOUT_SECONDS: Final = 15.0
_MARGIN_SECONDS: Final = 60.0
_DATA: Final = "data:application/json;base64,"


def parameters(text: str) -> dict[str, str]:
    """Read the JSON that pulsar-client wants: issuer_url, private_key, perhaps audience, scope; raises TopicError."""
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not {"issuer_url", "private_key"} <= given.keys():
        raise TopicError("--auth oauth2: expected JSON with issuer_url and private_key in the file or variable")
    return {name: str(value) for name, value in given.items()}


class AccessToken:
    """Hold an access token and get a new one when it is about to end."""

    def __init__(
        self, given: Mapping[str, str], context: ssl.SSLContext, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._given = given
        self._context = context
        self._clock = clock
        self._token = ""
        self._until = 0.0

    def current(self) -> str:
        """Give a token that is valid; raises TopicError if the issuer gives none."""
        if not self._token or self._clock() >= self._until:
            answer = self._ask()
            self._token = str(answer["access_token"])
            self._until = self._clock() + float(answer.get("expires_in", 0)) - _MARGIN_SECONDS
        return self._token

    def _ask(self) -> dict[str, Any]:
        issuer = self._given["issuer_url"].rstrip("/")
        try:
            endpoint = self._call(f"{issuer}/.well-known/openid-configuration", None)["token_endpoint"]
            key = self._key()
            form = {"grant_type": "client_credentials", **{name: key[name] for name in ("client_id", "client_secret")}}
            form |= {name: self._given[name] for name in ("audience", "scope") if self._given.get(name)}
            answer = self._call(str(endpoint), urllib.parse.urlencode(form).encode())
            answer["access_token"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            # An answer may quote what was sent: only its kind is told.
            status = ""
            if isinstance(error, urllib.error.HTTPError):
                status = f" {error.code}"
                error.close()
            raise TopicError(f"--auth oauth2: {issuer} gave no access token: {type(error).__name__}{status}") from None
        return answer

    def _key(self) -> dict[str, str]:
        where = self._given["private_key"]
        if where.startswith(_DATA):
            text = b64decode(where.removeprefix(_DATA)).decode()
        else:
            text = Path(where.removeprefix("file://").removeprefix("file:")).read_text()
        return dict(json.loads(text))

    def _call(self, url: str, body: bytes | None) -> dict[str, Any]:
        if not url.startswith(("http://", "https://")):
            raise ValueError("not a web address")
        with urllib.request.urlopen(
            urllib.request.Request(url, data=body), timeout=_TIMEOUT_SECONDS, context=self._context
        ) as answer:
            return dict(json.load(answer))
