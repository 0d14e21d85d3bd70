"""Parse the proxy's own credentials: `brokerClientAuthenticationPlugin` and its parameters, without reading files.

Names and formats are those of the Java client, so a proxy.conf of the Java proxy works unchanged. Error texts name keys
and formats only, never a part of a value. This module must not import `limiter` or `protocol`: `serve` reads the
configuration before it checks which distribution owns these packages.
"""

import json
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

PLUGIN: Final = "brokerClientAuthenticationPlugin"
PARAMETERS: Final = "brokerClientAuthenticationParameters"
WELL_KNOWN: Final = "/.well-known/openid-configuration"
_JAVA_PACKAGE: Final = "org.apache.pulsar.client.impl.auth."
_SUPPORTED: Final = "token, tls, basic, oauth2, or the class name of the Java client for one of them"
_METHODS: Final = {
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


class BadParameters(Exception):
    """The configured credentials are invalid; `key` is the key at fault, `expected` describes a valid value."""

    def __init__(self, key: str, expected: str) -> None:
        super().__init__(f"{key}: expected {expected}")
        self.key = key
        self.expected = expected


@dataclass(frozen=True, slots=True)
class TokenParameters:
    """The source of a token: the path of a file, an environment variable, or (with neither) the token in `text`."""

    text: str = field(default="", repr=False)
    path: str = ""
    variable: str = ""


@dataclass(frozen=True, slots=True)
class CertificateParameters:
    """The paths of a certificate and its key, which TLS shows to brokers."""

    certificate: str
    private_key: str


@dataclass(frozen=True, slots=True)
class BasicParameters:
    """A user and its password."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class OAuth2Parameters:
    """The issuer of a token and the credentials for the issuer, with the names of the Java client's parameters."""

    issuer_url: str
    private_key: str = field(repr=False)
    audience: str = ""
    scope: str = ""
    trust_certs_file_path: str = ""
    well_known_path: str = WELL_KNOWN


PlainParameters = TokenParameters | CertificateParameters | BasicParameters


def parse_credentials(plugin: str, parameters: str) -> PlainParameters | OAuth2Parameters | None:
    """Return the credentials that both keys describe, None for no credentials; raise BadParameters."""
    method = _method(plugin)
    text = parameters.strip()
    if method == "none":
        return None
    if method == "token":
        return _token(text)
    if method == "tls":
        given = _fields(text)
        certificate, private_key = given.get("tlsCertFile", ""), given.get("tlsKeyFile", "")
        if not certificate or not private_key:
            raise BadParameters(PARAMETERS, "tlsCertFile:/path,tlsKeyFile:/path or the same as JSON")
        return CertificateParameters(certificate, private_key)
    if method == "basic":
        given = _fields(text)
        if not given.get("userId") or "password" not in given:
            raise BadParameters(PARAMETERS, 'JSON {"userId": "...", "password": "..."}')
        return BasicParameters(given["userId"], given["password"])
    if method == "oauth2":
        return _oauth2(_fields(text))
    raise BadParameters(PLUGIN, _SUPPORTED)


def shown_certificate(plugin: str, parameters: str) -> CertificateParameters | None:
    """Return the paths of certificate and key, if these are the credentials; raise BadParameters."""
    given = parse_credentials(plugin, parameters)
    return given if isinstance(given, CertificateParameters) else None


def is_secret(plugin: str) -> bool:
    """Return whether credentials of `plugin` can be used by every host that is shown them."""
    return _method(plugin) not in ("none", "tls")


def path_of(url: str) -> str:
    """Return the path of a `file:` URL; raise BadParameters."""
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise BadParameters(PARAMETERS, "file:///path with an absolute path")
    return unquote(parts.path)


def _method(plugin: str) -> str:
    return _METHODS.get(plugin.strip().removeprefix(_JAVA_PACKAGE).lower(), "")


def _token(text: str) -> TokenParameters:
    if text.startswith("file:"):
        return TokenParameters(path=path_of(text))
    if text.startswith("env:"):
        return TokenParameters(variable=text.removeprefix("env:"))
    token = text.removeprefix("token:")
    if text.startswith("{"):
        token = _fields(text).get("token", "")
    if not token.strip():
        raise BadParameters(PARAMETERS, 'token:..., file:///path, env:NAME or JSON {"token": "..."}')
    return TokenParameters(token.strip())


def _oauth2(given: dict[str, str]) -> OAuth2Parameters:
    if given.get("type", "client_credentials") != "client_credentials":
        raise BadParameters(PARAMETERS, "type client_credentials, the only flow that is supported")
    issuer, key = given.get("issuerUrl", ""), given.get("privateKey", "")
    if urlsplit(issuer).scheme not in ("http", "https") or not urlsplit(issuer).hostname:
        raise BadParameters(PARAMETERS, "issuerUrl with http:// or https://")
    if urlsplit(key).scheme == "file":
        path_of(key)
    elif not key.startswith("data:application/json"):
        raise BadParameters(PARAMETERS, "privateKey as file:///path or data:application/json;base64,...")
    return OAuth2Parameters(
        issuer.rstrip("/"),
        key,
        given.get("audience", ""),
        given.get("scope", ""),
        given.get("trustCertsFilePath", ""),
        given.get("wellKnownMetadataPath") or WELL_KNOWN,
    )


def _fields(text: str) -> dict[str, str]:
    """Parse JSON, or the older form `name:value,name:value`."""
    if text.startswith("{"):
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            # The parser's own text would quote the value.
            raise BadParameters(PARAMETERS, "JSON that can be read") from None
        if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
            raise BadParameters(PARAMETERS, "a JSON object of texts")
        return given
    pairs = (part.partition(":") for part in text.split(",") if part.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}
