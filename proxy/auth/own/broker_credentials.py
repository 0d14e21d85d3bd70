"""The proxy's own credentials for brokers (`proxy.config.credential_parameters` parses their keys).

Credentials are read again for each CONNECT and each challenge: a replaced token file counts from the next connection
on. Logs and error texts name keys, files and plugins only, never a secret.
"""

import base64
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from proxy.auth.identity import AuthData
from proxy.config.credential_parameters import PARAMETERS, CertificateParameters, PlainParameters, TokenParameters
from proxy.core.errors import CredentialsUnavailable
from proxy.core.files import read_regular

MAX_FILE_BYTES: Final = 64 * 1024


class BrokerCredentials(Protocol):
    """The credentials of the proxy for brokers."""

    async def current(self) -> AuthData | None:
        """Return fresh credentials, None if the proxy has none; raise CredentialsUnavailable."""

    def tls_files(self) -> tuple[str, str] | None:
        """Return the paths of certificate and key for TLS to brokers, None if the credentials are no certificate."""

    async def close(self) -> None:
        """Cancel a fetch of credentials under way."""


@dataclass(frozen=True, slots=True)
class Plain:
    """Credentials that `read` returns at once: none, a token, a user and password, or a certificate shown by TLS."""

    read: Callable[[], AuthData | None]
    certificate: tuple[str, str] | None = None

    async def current(self) -> AuthData | None:
        """Read the credentials; raise CredentialsUnavailable."""
        return self.read()

    def tls_files(self) -> tuple[str, str] | None:
        """Return the paths of certificate and key, if the credentials are a certificate."""
        return self.certificate

    async def close(self) -> None:
        """Return at once: there is no fetch to cancel."""


def plain_credentials(given: PlainParameters | None) -> Plain:
    """Return the credentials that the parameters describe, without reading files."""
    if given is None:
        return Plain(lambda: None)
    if isinstance(given, TokenParameters):
        return Plain(_token(given))
    if isinstance(given, CertificateParameters):
        return Plain(lambda: AuthData("tls", b""), (given.certificate, given.private_key))
    pair = AuthData("basic", f"{given.user}:{given.password}".encode())
    return Plain(lambda: pair)


async def authorization_header(own: BrokerCredentials) -> str | None:
    """Return the value of an `Authorization` header; None without credentials, and for a certificate.

    Raise CredentialsUnavailable.
    """
    found = await own.current()
    if found is None:
        return None
    if found.method == "token":
        return f"Bearer {found.data.decode('ascii', 'replace')}"
    if found.method == "basic":
        return f"Basic {base64.b64encode(found.data).decode()}"
    return None


async def has_credentials(own: BrokerCredentials) -> bool:
    """Return whether the proxy would prove a role to brokers, by a header or a certificate; yes if that fails now."""
    try:
        return await own.current() is not None
    except CredentialsUnavailable:
        return True


def read_file(path: str) -> bytes:
    """Read a small file and strip white space; raise CredentialsUnavailable if it is empty.

    The file is read on the event loop: secrets are mounted in memory, and a thread would cost more than the read.
    """
    try:
        data = read_regular(path, MAX_FILE_BYTES)
    except OSError as error:
        problem = (error.strerror or "cannot be read").lower()
        raise CredentialsUnavailable(f"{PARAMETERS}: {path}: {problem}") from None
    if not data.strip():
        raise CredentialsUnavailable(f"{PARAMETERS}: {path}: the file is empty")
    return data.strip()


def _token(given: TokenParameters) -> Callable[[], AuthData]:
    if given.path:
        return lambda: AuthData("token", read_file(given.path))
    if given.variable or not given.text:
        return lambda: AuthData("token", _variable(given.variable))
    found = AuthData("token", given.text.encode())
    return lambda: found


def _variable(name: str) -> bytes:
    value = os.environ.get(name, "").strip()
    if not value:
        raise CredentialsUnavailable(f"{PARAMETERS}: the environment has no variable {name}")
    return value.encode()
