"""Decide which headers pass this proxy, in both directions; no I/O, and no HTTP library.

Rules: hop-by-hop headers are removed (RFC 9110, 7.6.1), including those that `Connection` names. Only this proxy sets
the headers with the client's identity. Cookies are for servers of `httpReverseProxy` routes alone: brokers set none.
"""

import json
import re
from collections.abc import Iterable, MutableMapping
from typing import Final

from proxy.auth.providers.http_header import spelt_once

Headers = list[tuple[str, str]]

ORIGINAL_PRINCIPAL: Final = "X-Original-Principal"
_OF_ONE_CONNECTION: Final = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
# The proxy answers `expect` itself and sets `content-length` and `host`; only a proxy may name principals.
_NOT_TO_BROKERS: Final = frozenset({"host", "content-length", "expect", "forwarded", "x-forwarded-server"})
_NOT_TO_CLIENTS: Final = frozenset({"content-length", "server", "date"})
_COOKIES: Final = frozenset({"cookie", "set-cookie"})
_NONE: Final[frozenset[str]] = frozenset()
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Characters that end a line for some server would allow header injection. Bytes that are not UTF-8 arrive as
# surrogates, which cannot be encoded.
_UNSAFE: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_SEPARATORS: Final = re.compile("[^a-z0-9]+")
# With these a client proves who it is, or says so; separators are left out.
_OF_AN_IDENTITY: Final = frozenset({"authorization", "cookie"})
_OF_PULSAR_IDENTITIES: Final = ("xpulsarauth", "xoriginal")
_OURS: Final = frozenset({"xoriginalprincipal", "xforwardedfor", "xforwardedproto", "xforwardedhost"})


class UnsafeHeader(ValueError):
    """A header that must not be passed on; the text contains its name but not its value."""


class RequestLoop(ValueError):
    """A request that this proxy has sent came back to it (RFC 9110, 7.6.3)."""


# Headers in which a client, or a proxy for the client, says by which host and port it was reached.
CLAIMED_HOSTS: Final = ("Forwarded", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Server")


def to_broker(
    headers: Iterable[tuple[str, str]],
    *,
    client_address: str,
    scheme: str,
    host: str,
    via: str = "",
    cookies: bool = False,
) -> Headers:
    """Return a request's headers for any server, without `Host` and `Content-Length`; raises UnsafeHeader.

    `via` is a word that no other proxy has: a request that was here already raises RequestLoop.
    """
    given = list(headers)
    if via and any(name.lower() == "via" and via in value for name, value in given):
        raise RequestLoop("the request comes back to this proxy: a redirect, or a configured server, leads here")
    dropped = _OF_ONE_CONNECTION | _NOT_TO_BROKERS | _named_by_connection(given) | (_NONE if cookies else _COOKIES)
    passed = [(name, value) for name, value in given if name.lower() not in dropped and not _ours(name)]
    passed = [(name, spelt_once(value) if name.lower() == "authorization" else value) for name, value in passed]
    forwarded_for = [value for name, value in given if name.lower() == "x-forwarded-for"]
    passed.append(("X-Forwarded-For", ", ".join([*forwarded_for, client_address])))
    passed.append(("X-Forwarded-Proto", scheme))
    if host:
        passed.append(("X-Forwarded-Host", host))
    passed.append(("Via", f"1.1 pulsar-proxy ({via})" if via else "1.1 pulsar-proxy"))
    for name, value in passed:
        check(name, value)
    return passed


def without_credentials(headers: Headers) -> Headers:
    """Return headers without those that prove, or say, who the client is: for a server that it did not ask."""
    return [(name, value) for name, value in headers if not _of_an_identity(name)]


def without(headers: Headers, names: Iterable[str]) -> Headers:
    """Return headers without those of some names, however they are spelt."""
    left_out = {_letters(name) for name in names}
    return [(name, value) for name, value in headers if _letters(name) not in left_out]


def to_client(headers: Iterable[tuple[str, str]], *, cookies: bool = False) -> Headers:
    """Return the headers of a server's answer for the client; raises UnsafeHeader."""
    given = list(headers)
    dropped = _OF_ONE_CONNECTION | _NOT_TO_CLIENTS | _named_by_connection(given) | (_NONE if cookies else _COOKIES)
    passed = [(name, value) for name, value in given if name.lower() not in dropped]
    for name, value in passed:
        check(name, value)
    return passed


def check(name: str, value: str) -> None:
    """Raise UnsafeHeader if name and value do not make exactly one header line."""
    if not _NAME.fullmatch(name) or _UNSAFE.search(value):
        raise UnsafeHeader(f"header {name[:64]!r} has characters that no header may have")


def finish(answer: MutableMapping[str, str], extra: Headers) -> None:
    """Add the headers that every answer gets, and hide the server's software."""
    answer["Server"] = "pulsar-proxy"
    for name, value in extra:
        answer[name] = value


def extra_headers(text: str) -> Headers:
    """Parse `proxyHttpResponseHeadersJson`, an object of strings; raises ValueError naming the key."""
    if not text.strip():
        return []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"proxyHttpResponseHeadersJson: expected a json object, got {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"proxyHttpResponseHeadersJson: expected a json object, got {type(found).__name__}")
    headers = [(name, str(value)) for name, value in found.items()]
    for name, value in headers:
        check(name, value)
        if name.lower() in _OF_ONE_CONNECTION | {"content-length"}:
            raise ValueError(f"proxyHttpResponseHeadersJson: {name} is not for configurations to set")
    return headers


def _ours(name: str) -> bool:
    return _letters(name) in _OURS


def _of_an_identity(name: str) -> bool:
    letters = _letters(name)
    return letters in _OF_AN_IDENTITY or letters.startswith(_OF_PULSAR_IDENTITIES)


def _letters(name: str) -> str:
    # Some servers treat an underscore like a hyphen, others a dot or any other character.
    return _SEPARATORS.sub("", name.lower())


def _named_by_connection(headers: Headers) -> frozenset[str]:
    return frozenset(
        option.strip().lower()
        for name, value in headers
        if name.lower() == "connection"
        for option in value.split(",")
        # A client must not be able to remove the headers that authenticate or limit it.
        if option.strip().lower() not in ("authorization", "content-type", "content-encoding", "")
    )
