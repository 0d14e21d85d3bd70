"""How we log in, to brokers and to the admin interface, by the same settings.

Rule: a secret is read where and when it is used, so that a renewed file counts, and goes nowhere else: not into a log,
an error, or what travels between processes.
"""

import base64
import json
import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pulsar

from pipeline.sources.pulsar.errors import TopicError
from pipeline.sources.pulsar.oauth2 import AccessToken, parameters
from pipeline.sources.pulsar.options import PulsarSettings


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


def _user_and_password(settings: PulsarSettings) -> tuple[str, str]:
    user, separator, password = secret(settings).partition(":")
    if not separator or not user:
        raise TopicError("--auth basic: expected USER:PASSWORD in the file or variable, got something else")
    return user, password


def authentication(settings: PulsarSettings) -> pulsar.Authentication | None:
    """Give what the client logs in with; raises TopicError."""
    if settings.auth == "token":
        secret(settings)
        # Asked again at each connection: tokens end.
        return pulsar.AuthenticationToken(lambda: secret(settings))
    if settings.auth == "tls":
        return pulsar.AuthenticationTLS(settings.tls_certificate, settings.tls_key)
    if settings.auth == "basic":
        return pulsar.AuthenticationBasic(*_user_and_password(settings))
    if settings.auth == "oauth2":
        return pulsar.AuthenticationOauth2(json.dumps(parameters(secret(settings))))
    return None


def header_source(settings: PulsarSettings) -> Callable[[], dict[str, str]]:
    """Give a maker of the headers of one admin request; it raises TopicError."""
    if settings.auth == "oauth2":
        token = AccessToken(parameters(secret(settings)), tls_context(settings))
        return lambda: {"Authorization": f"Bearer {token.current()}"}
    return lambda: _headers(settings)


def _headers(settings: PulsarSettings) -> dict[str, str]:
    if settings.auth == "token":
        return {"Authorization": f"Bearer {secret(settings)}"}
    if settings.auth == "basic":
        encoded = base64.b64encode(":".join(_user_and_password(settings)).encode()).decode()
        return {"Authorization": f"Basic {encoded}"}
    return {}


def tls_context(settings: PulsarSettings) -> ssl.SSLContext:
    """Give the context of https requests; raises TopicError for files that are none."""
    try:
        context = ssl.create_default_context(cafile=settings.tls_trust or None)
        if settings.tls_certificate:
            context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise TopicError(f"--tls-trust, --tls-certificate, --tls-key: cannot use these files: {error}") from None
    context.check_hostname = settings.tls_check_hostname
    return context
