"""Refuse requests that a foreign web page makes with somebody's browser; no I/O.

A browser sends what a page asks for, from inside the network and with the credentials that it has cached; the page
cannot read the answer, but a change is done by then (CSRF). A page whose name leads to this proxy (DNS rebinding) may
read as well: its requests carry that name as `Host`.

Rules: a request that changes something, or opens a WebSocket, comes from the proxy's own origin, from an origin of
`webServiceAllowedOrigins`, or from a program that is no browser. `webServiceAllowedHosts` lists the names that the
proxy is reached by; an address is no name, so nobody can rebind one. Source: Fetch metadata (Sec-Fetch-Site).
"""

import fnmatch
import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Final

from proxy.web.http.errors import HttpRefused

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# `none`: the user typed the address.
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_ANY: Final = "*"
_HOST: Final = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z._-]+))(?::[0-9]*)?")


def names_a_page(headers: Mapping[str, str]) -> bool:
    """Return whether a request says that any web page made it."""
    return "Origin" in headers or headers.get("Sec-Fetch-Site", "none").lower() != "none"


class OriginRules:
    """The web pages and the names that are served; both lists may have `*`."""

    def __init__(self, hosts: Iterable[str] = (_ANY,), origins: Iterable[str] = ()) -> None:
        hosts = tuple(hosts)
        self._hosts = None if _ANY in hosts else [re.compile(fnmatch.translate(name.lower())) for name in hosts]
        self._origins = frozenset(origin.lower() for origin in origins)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OriginRules) and (self._hosts, self._origins) == (other._hosts, other._origins)

    def __hash__(self) -> int:
        return hash(self._origins)

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Raise HttpRefused with 421 for a name that is not served, and for what is no host[:port]."""
        if self._hosts is None:
            return
        header = headers.get("Host", "")
        host = host_of(header).lower().rstrip(".")
        # A client of HTTP/1.0 may send no name; a browser does always.
        if not header or _is_address(host):
            return
        if not any(pattern.fullmatch(host) for pattern in self._hosts):
            raise HttpRefused(421, "this name is not served here (webServiceAllowedHosts)", "host", close=True)

    def check_site(self, method: str, headers: Mapping[str, str]) -> None:
        """Raise HttpRefused with 403 for a change, or a WebSocket, that a page of another origin asks for."""
        if method in _SAFE_METHODS and "Upgrade" not in headers:
            return
        origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site")
        if _ANY in self._origins or (origin is not None and origin.lower() in self._origins):
            return
        if site is not None:
            own = site.lower() in _OWN_SITES
        else:
            # Browsers send Sec-Fetch-Site only over TLS and to this machine. The scheme is left out: a balancer may
            # have ended TLS.
            own = origin is None or origin.lower().partition("://")[1:] == ("://", headers.get("Host", "").lower())
        if not own:
            reason = "a web page of another origin may change nothing here (webServiceAllowedOrigins)"
            raise HttpRefused(403, reason, "cross_origin", close=True)


def host_of(header: str) -> str:
    """Return the host of a `Host` header without the port; empty for what is no host[:port] (RFC 9110, 7.2)."""
    found = _HOST.fullmatch(header)
    return found["address"] or found["name"] if found else ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
