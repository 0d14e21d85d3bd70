"""How this source logs in: one token for brokers and for the admin interface, or a certificate.

Rule: a secret is read where and when it is used, so that a renewed file counts, and goes nowhere else: not into a log,
an error, or what travels between processes. OAuth 2.0 is that of client credentials (RFC 6749 section 4.4, RFC 8414),
with the parameters of pulsar-client, whose own tokens cannot be asked for.
"""

import base64
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pulsar

from pipeline.sources.pulsar.errors import TopicError
from pipeline.sources.pulsar.options import Login

_TIMEOUT_SECONDS: Final = 5.0
# An access token is used until so long before its end.
_MARGIN_SECONDS: Final = 60.0
_DATA: Final = "data:application/json;base64,"


class Credentials:
    """Hold what a login needs, and its access token, if an issuer gives one."""

    def __init__(self, login: Login, clock: Callable[[], float] = time.monotonic) -> None:
        self._login = login
        self._clock = clock
        self._token = ""
        self._until = float("-inf")

    def token(self) -> str:
        """Return a token that is valid now; raises TopicError."""
        text = _text(self._login.auth_file)
        if not text.startswith("{"):
            return text
        if self._clock() >= self._until:
            self._token, seconds = self._asked(text)
            self._until = self._clock() + seconds - _MARGIN_SECONDS
        return self._token

    def headers(self) -> dict[str, str]:
        """Return the headers of a request to the admin interface; raises TopicError."""
        return {"Authorization": f"Bearer {self.token()}"} if self._login.auth_file else {}

    def authentication(self) -> pulsar.Authentication | None:
        """Return what the client logs in with; raises TopicError."""
        if self._login.auth_file:
            self.token()
            # Asked again at each connection: tokens end.
            return pulsar.AuthenticationToken(self.token)
        if self._login.tls_certificate:
            return pulsar.AuthenticationTLS(self._login.tls_certificate, self._login.tls_key)
        return None

    def tls(self) -> ssl.SSLContext:
        """Return the context of requests to the admin interface; raises TopicError for files that are none."""
        try:
            context = ssl.create_default_context(cafile=self._login.tls_trust or None)
            if self._login.tls_certificate:
                context.load_cert_chain(self._login.tls_certificate, self._login.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise TopicError(f"--tls-trust, --tls-certificate, --tls-key: cannot use these files: {error}") from None
        context.check_hostname = self._login.tls_check_hostname
        return context

    def _asked(self, text: str) -> tuple[str, float]:
        """Ask the issuer for a token; returns it, and its life in seconds."""
        given = _object(text)
        if not {"issuer_url", "private_key"} <= given.keys():
            raise TopicError(f"--auth-file {self._login.auth_file}: expected JSON with issuer_url and private_key")
        issuer = str(given["issuer_url"]).rstrip("/")
        try:
            endpoint = str(self._call(f"{issuer}/.well-known/openid-configuration")["token_endpoint"])
            if not endpoint.startswith("https://" if issuer.startswith("https://") else ("http://", "https://")):
                raise ValueError("the secret would leave https")
            key = _key(str(given["private_key"]))
            form = {"grant_type": "client_credentials", **{name: key[name] for name in ("client_id", "client_secret")}}
            form |= {name: given[name] for name in ("audience", "scope") if given.get(name)}
            answer = self._call(endpoint, urllib.parse.urlencode(form).encode())
            return str(answer["access_token"]), float(answer.get("expires_in", 0))
        except (OSError, ValueError, KeyError, TypeError) as error:
            # An answer may quote what was sent: only its kind is told.
            status = f" {error.code}" if isinstance(error, urllib.error.HTTPError) else ""
            raise TopicError(f"--auth-file: {issuer} gave no access token: {type(error).__name__}{status}") from None

    def _call(self, url: str, body: bytes | None = None) -> Mapping[str, Any]:
        # The issuer may be anybody's: it is shown no certificate of ours.
        context = ssl.create_default_context()
        if self._login.tls_trust:
            context.load_verify_locations(self._login.tls_trust)
        with urllib.request.urlopen(url, body, _TIMEOUT_SECONDS, context=context) as answer:
            return _object(answer.read())


def _text(file: str) -> str:
    try:
        return Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise TopicError(f"--auth-file: cannot read {file}: {reason}") from None


def _key(where: str) -> Mapping[str, Any]:
    if where.startswith(_DATA):
        return _object(base64.b64decode(where.removeprefix(_DATA)))
    return _object(Path(where.removeprefix("file://").removeprefix("file:")).read_text())


def _object(text: str | bytes) -> Mapping[str, Any]:
    """Read a JSON object, an empty one where it is none."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
