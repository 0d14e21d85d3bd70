"""Parse the proxy's own credentials: `brokerClientAuthenticationPlugin` and its parameters, without reading files.

Names and formats are those of the Java client, so a proxy.conf of the Java proxy works unchanged. Error texts name keys
and formats only, never a part of a value. This module must not import `limiter` or `protocol`: `serve` reads the
configuration before it checks which distribution owns these packages.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

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
# A name or a text of JSON as the parser of the Java client takes it: in quotes of either kind, or in none. A text
# without quotes has none of these characters: nobody could say whether the text ends there.
_QUOTED: Final = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_BARE: Final = r"""[^\s"'{}\[\],;:=#\\]"""
_PAIR: Final = re.compile(
    rf"""\s*({_QUOTED}|{_BARE}+)\s*(?::|=>?)\s*({_QUOTED}|{_BARE}[^\s"'{{}}\[\],;#\\]*)\s*(?:[,;]|$)"""
)
_NO_TOKEN: Final = re.compile(r"""[\s,{}"']""")


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
    text = _unquoted(parameters)
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


def odd_spelling(plugin: str, parameters: str) -> str | None:
    """Return what is odd about parameters that `parse_credentials` takes, None if nothing is."""
    given, text = parse_credentials(plugin, parameters), _unquoted(parameters)
    if given is None:
        return None
    if text != parameters.strip():
        return "the quotes around the value are left out"
    if text.startswith("{") and _strict(text) is None:
        return 'names and texts of JSON without double quotes, which a shell may have taken: read as {"name": "text"}'
    if isinstance(given, TokenParameters) and _NO_TOKEN.search(given.text):
        return "all of it is taken for the token, as the Java client does, with characters that no token has"
    return None


def shown_certificate(plugin: str, parameters: str) -> CertificateParameters | None:
    """Return the paths of certificate and key, if these are the credentials; raise BadParameters."""
    given = parse_credentials(plugin, parameters)
    return given if isinstance(given, CertificateParameters) else None


def is_secret(plugin: str) -> bool:
    """Return whether credentials of `plugin` can be used by every host that is shown them."""
    return _method(plugin) not in ("none", "tls")


def path_of(url: str) -> str:
    """Return the path of a `file:` URL; raise BadParameters."""
    parts = _split(url)
    if (
        parts is None
        or parts.scheme != "file"
        or parts.netloc not in ("", "localhost")
        or not parts.path.startswith("/")
    ):
        raise BadParameters(PARAMETERS, "file:///path with an absolute path")
    return unquote(parts.path)


def _split(url: str) -> SplitResult | None:
    """Return the parts of a URL, None if it has none."""
    try:
        parts = urlsplit(url)
        # Raises for what is no port.
        return parts if parts.port is None or parts.port else None
    except ValueError:
        return None


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
    if not token.strip() or not token.strip().isprintable():
        raise BadParameters(PARAMETERS, 'token:..., file:///path, env:NAME or JSON {"token": "..."}')
    return TokenParameters(token.strip())


def _oauth2(given: dict[str, str]) -> OAuth2Parameters:
    if given.get("type", "client_credentials") != "client_credentials":
        raise BadParameters(PARAMETERS, "type client_credentials, the only flow that is supported")
    issuer, key = given.get("issuerUrl", ""), given.get("privateKey", "")
    found = _split(issuer)
    if found is None or found.scheme not in ("http", "https") or not found.hostname:
        raise BadParameters(PARAMETERS, "issuerUrl with http:// or https://")
    if key.startswith("file:"):
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


def _unquoted(parameters: str) -> str:
    """Return parameters without blanks and a pair of quotes around them: none of their forms begins with quotes."""
    text = parameters.strip()
    return text[1:-1].strip() if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _fields(text: str) -> dict[str, str]:
    """Parse JSON, strict or as the Java client takes it, or the older form `name:value,name:value`."""
    if not text.startswith("{"):
        parts = [part.partition(":") for part in text.split(",") if part.strip()]
        if not all(separator for _, separator, _ in parts):
            # A password with a comma in it, perhaps: its beginning is not the password.
            raise BadParameters(PARAMETERS, "name:value,name:value, or JSON if a value has a comma")
        return {name.strip(): value.strip() for name, _, value in parts}
    given = _strict(text)
    if given is None:
        given = _lenient(text)
    fields: dict[str, str] = {}
    for name, value in given.items():
        if isinstance(value, bool):
            value = json.dumps(value)
        if value is None:
            continue
        if not isinstance(value, str) or not value.strip().isprintable():
            raise BadParameters(PARAMETERS, "a JSON object of texts without control characters")
        fields[name] = value
    return fields


def _strict(text: str) -> dict[str, object] | None:
    """Return the object that a text of JSON is, with numbers as they are written; None for any other text."""
    try:
        found: dict[str, object] = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        # The parser's own text would quote the value.
        return None
    return found


def _lenient(text: str) -> dict[str, object]:
    """Return the pairs of an object whose names and texts have single quotes or none; raise BadParameters."""
    inside, at = text[1:].removesuffix("}").strip(), 0
    found: dict[str, object] = {}
    while at < len(inside):
        pair = _PAIR.match(inside, at)
        if pair is None or not text.endswith("}"):
            raise BadParameters(PARAMETERS, "JSON that can be read, with names and texts in double quotes")
        if pair[2] != "null":
            found[_bare(pair[1])] = _bare(pair[2])
        at = pair.end()
    return found


def _bare(word: str) -> str:
    """Return what is inside quotes; a word without them is itself."""
    if word[0] not in "\"'":
        return word
    try:
        body = word[1:-1]
        return str(json.loads(f'"{body}"' if word[0] == '"' else _in_double_quotes(body)))
    except (ValueError, RecursionError):
        raise BadParameters(PARAMETERS, "JSON that can be read, with names and texts in double quotes") from None


def _in_double_quotes(body: str) -> str:
    return '"' + body.replace("\\'", "'").replace('"', '\\"') + '"'
