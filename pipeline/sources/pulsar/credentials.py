"""Credentials with which we log in, to brokers and to the admin interface, by the same settings.

Rule: a secret is read where and when it is used, so that a renewed file counts, and goes nowhere else: not into a log,
an error, or what travels between processes. An access token is used until a minute before its end. Source: RFC 6749
section 4.4, RFC 8414 for the address; for brokers the client library does the same by itself.
"""

import base64
import json
import os
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
from pipeline.sources.pulsar.options import PulsarSettings

_TIMEOUT_SECONDS: Final = 15.0
_MARGIN_SECONDS: Final = 60.0
_DATA: Final = "data:application/json;base64,"


def secret(settings: PulsarSettings) -> str:
    """Read the secret that the settings name; raises TopicError."""
    if settings.auth_env:
        if settings.auth_env not in os.environ:
            raise TopicError(f"--auth-env: the environment has no variable {settings.auth_env}")
        return os.environ[settings.auth_env].strip()
    try:
        return Path(settings.auth_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise TopicError(f"--auth-file: cannot read {settings.auth_file}: {reason}") from None


def _login(settings: PulsarSettings) -> str:
    login = secret(settings)
    if login.find(":") < 1:
        raise TopicError("--auth basic: expected USER:PASSWORD in the file or variable, got something else")
    return login


def authentication(settings: PulsarSettings) -> pulsar.Authentication | None:
    """Return what the client logs in with; raises TopicError."""
    if settings.auth == "token":
        secret(settings)
        # Asked again at each connection: tokens end.
        return pulsar.AuthenticationToken(lambda: secret(settings))
    if settings.auth == "tls":
        return pulsar.AuthenticationTLS(settings.tls_certificate, settings.tls_key)
    if settings.auth == "basic":
        return pulsar.AuthenticationBasic(*_login(settings).split(":", 1))
    if settings.auth == "oauth2":
        return pulsar.AuthenticationOauth2(json.dumps(parameters(secret(settings))))
    return None


def header_source(settings: PulsarSettings) -> Callable[[], dict[str, str]]:
    """Return a maker of the headers of one admin request; it raises TopicError."""
    if settings.auth == "token":
        return lambda: {"Authorization": f"Bearer {secret(settings)}"}
    if settings.auth == "basic":
        return lambda: {"Authorization": f"Basic {base64.b64encode(_login(settings).encode()).decode()}"}
    if settings.auth == "oauth2":
        token = AccessToken(parameters(secret(settings)), tls_context(settings))
        return lambda: {"Authorization": f"Bearer {token.current()}"}
    return dict


def tls_context(settings: PulsarSettings) -> ssl.SSLContext:
    """Return the context of https requests; raises TopicError for files that are none."""
    try:
        context = ssl.create_default_context(cafile=settings.tls_trust or None)
        if settings.tls_certificate:
            context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise TopicError(f"--tls-trust, --tls-certificate, --tls-key: cannot use these files: {error}") from None
    context.check_hostname = settings.tls_check_hostname
    return context


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
        self._until = float("-inf")

    def current(self) -> str:
        """Return a token that is valid; raises TopicError if the issuer gives none."""
        if self._clock() >= self._until:
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
            text = base64.b64decode(where.removeprefix(_DATA)).decode()
        else:
            text = Path(where.removeprefix("file://").removeprefix("file:")).read_text()
        return dict(json.loads(text))

    def _call(self, url: str, body: bytes | None) -> dict[str, Any]:
        if not url.startswith(("http://", "https://")):
            raise ValueError("not a web address")
        with urllib.request.urlopen(url, body, _TIMEOUT_SECONDS, context=self._context) as answer:
            return dict(json.load(answer))
