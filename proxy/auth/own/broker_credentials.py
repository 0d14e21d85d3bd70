"""The proxy's own credentials for brokers: `brokerClientAuthenticationPlugin` and its parameters.

Names and formats are those of the Java client, so a proxy.conf of the Java proxy works unchanged. Credentials are read
again for each CONNECT and each challenge: a replaced token file counts from the next connection on. Logs and error
texts contain names of keys, files and plugins, and nothing else of the credentials.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from proxy.auth.identity import AuthData
from proxy.core.errors import CredentialsUnavailable, ProxyError

PLUGIN: Final = "brokerClientAuthenticationPlugin"
PARAMETERS: Final = "brokerClientAuthenticationParameters"
MAX_FILE_BYTES: Final = 64 * 1024
_JAVA_PACKAGE: Final = "org.apache.pulsar.client.impl.auth."
_SUPPORTED: Final = "token, tls, basic, oauth2, or the class name of the Java client for one of them"


class BadParameters(ProxyError):
    """The configured credentials are invalid; `key` is the key at fault, `expected` describes a valid value."""

    def __init__(self, key: str, expected: str) -> None:
        super().__init__(f"{key}: expected {expected}")
        self.key = key
        self.expected = expected


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


MakeOAuth2 = Callable[[Mapping[str, str]], BrokerCredentials]


def broker_credentials(plugin: str, parameters: str, oauth2: MakeOAuth2) -> BrokerCredentials:
    """Return the credentials that both keys describe, without reading files; raise BadParameters.

    `oauth2` makes credentials of OAuth 2.0, which are fetched later.
    """
    name = _short_name(plugin.strip())
    text = parameters.strip()
    if name == "none":
        return Plain(lambda: None)
    if name == "token":
        return Plain(_token(text))
    if name == "tls":
        given = _parameters(text)
        cert, key = given.get("tlsCertFile", ""), given.get("tlsKeyFile", "")
        if not cert or not key:
            raise BadParameters(PARAMETERS, "tlsCertFile:/path,tlsKeyFile:/path or the same as JSON")
        return Plain(lambda: AuthData("tls", b""), (cert, key))
    if name == "basic":
        given = _parameters(text)
        if not given.get("userId") or "password" not in given:
            raise BadParameters(PARAMETERS, 'JSON {"userId": "...", "password": "..."}')
        pair = AuthData("basic", f"{given['userId']}:{given['password']}".encode())
        return Plain(lambda: pair)
    if name == "oauth2":
        return oauth2(_parameters(text))
    raise BadParameters(PLUGIN, _SUPPORTED)


def is_secret(plugin: str) -> bool:
    """Return whether credentials of `plugin` can be used by every host that is shown them."""
    return _short_name(plugin.strip()) not in ("none", "tls")


def _short_name(plugin: str) -> str:
    known = {
        "": "none",
        "authenticationdisabled": "none",
        "disabled": "none",
        "none": "none",
        "authenticationtoken": "token",
        "token": "token",
        "authenticationtls": "tls",
        "tls": "tls",
        "authenticationbasic": "basic",
        "basic": "basic",
        "oauth2.authenticationoauth2": "oauth2",
        "authenticationoauth2": "oauth2",
        "oauth2": "oauth2",
    }
    return known.get(plugin.removeprefix(_JAVA_PACKAGE).lower(), "")


# --- tokens ---------------------------------------------------------------------------------------


def _token(text: str) -> Callable[[], AuthData]:
    """Return a function that reads the token: from the text itself, a file, or an environment variable."""
    if text.startswith("file:"):
        path = path_of(text)
        return lambda: AuthData("token", read_file(path))
    if text.startswith("env:"):
        variable = text.removeprefix("env:")
        return lambda: AuthData("token", _variable(variable))
    token = text.removeprefix("token:")
    if text.startswith("{"):
        token = _parameters(text).get("token", "")
    if not token.strip():
        raise BadParameters(PARAMETERS, 'token:..., file:///path, env:NAME or JSON {"token": "..."}')
    found = AuthData("token", token.strip().encode())
    return lambda: found


def _variable(name: str) -> bytes:
    value = os.environ.get(name, "").strip()
    if not value:
        raise CredentialsUnavailable(f"{PARAMETERS}: the environment has no variable {name}")
    return value.encode()


def path_of(url: str) -> str:
    """Return the path of a `file:` URL; raise BadParameters."""
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise BadParameters(PARAMETERS, "file:///path with an absolute path")
    return unquote(parts.path)


def read_file(path: str) -> bytes:
    """Read a small file and strip white space; raise CredentialsUnavailable if it is empty.

    The file is read on the event loop: secrets are mounted in memory, and a thread would cost more than the read.
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


# --- parameters -----------------------------------------------------------------------------------


def _parameters(text: str) -> dict[str, str]:
    """Parse JSON, or the older form `name:value,name:value`."""
    if text.startswith("{"):
        try:
            given = json.loads(text)
        except ValueError:
            # The parser's own text would quote the value.
            raise BadParameters(PARAMETERS, "JSON that can be read") from None
        if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
            raise BadParameters(PARAMETERS, "a JSON object of texts")
        return given
    pairs = (part.partition(":") for part in text.split(",") if part.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}
