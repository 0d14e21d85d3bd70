"""The proxy's own credentials towards brokers (`proxy.config.credential_parameters` parses their keys).

Data is read anew for each CONNECT and each challenge: a token file that is replaced counts from the next connection on.
Logs and error texts name keys, files and plugins only, never a secret.
"""

import base64
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from proxy.auth.identity import AuthData
from proxy.config.credential_parameters import PARAMETERS, CertificateParameters, PlainParameters, TokenParameters
from proxy.core.errors import CredentialsUnavailable

MAX_FILE_BYTES: Final = 64 * 1024


class BrokerCredentials(Protocol):
    """What the proxy presents to brokers."""

    async def current(self) -> AuthData | None:
        """Return fresh credentials, None if the proxy has none; raises CredentialsUnavailable."""

    def tls_files(self) -> tuple[str, str] | None:
        """Return the paths of certificate and key for TLS towards brokers, if they are the credentials."""

    async def close(self) -> None:
        """End what was begun to get the credentials."""


@dataclass(frozen=True, slots=True)
class Plain:
    """Credentials that `read` returns at once: none, a token, a user and password, or a certificate shown by TLS."""

    read: Callable[[], AuthData | None]
    certificate: tuple[str, str] | None = None

    async def current(self) -> AuthData | None:
        """Read the credentials; raises CredentialsUnavailable."""
        return self.read()

    def tls_files(self) -> tuple[str, str] | None:
        """Return the paths of certificate and key."""
        return self.certificate

    async def close(self) -> None:
        """Do nothing: nothing was begun."""


def plain_credentials(given: PlainParameters | None) -> Plain:
    """Make the credentials that parameters describe, without looking at files."""
    if given is None:
        return Plain(lambda: None)
    if isinstance(given, TokenParameters):
        return Plain(_token(given))
    if isinstance(given, CertificateParameters):
        return Plain(lambda: AuthData("tls", b""), (given.certificate, given.private_key))
    pair = AuthData("basic", f"{given.user}:{given.password}".encode())
    return Plain(lambda: pair)


async def authorization_header(own: BrokerCredentials) -> str | None:
    """Return the value of an `Authorization` header; None for credentials that are no header (a certificate) or none.

    Raises CredentialsUnavailable.
    """
    found = await own.current()
    if found is None:
        return None
    if found.method == "token":
        return f"Bearer {found.data.decode('ascii', 'replace')}"
    if found.method == "basic":
        return f"Basic {base64.b64encode(found.data).decode()}"
    return None


def read_file(path: str) -> bytes:
    """Read a small file without the white space around it; raises CredentialsUnavailable if it holds nothing.

    The read runs on the loop: secrets are mounted in memory, and a thread would cost more than the read.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        problem = (error.strerror or "cannot be read").lower()
        raise CredentialsUnavailable(f"{PARAMETERS}: {path}: {problem}") from None
    if len(data) > MAX_FILE_BYTES:
        raise CredentialsUnavailable(f"{PARAMETERS}: {path}: more than {MAX_FILE_BYTES} bytes")
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
