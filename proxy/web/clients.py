"""Who asks on the web ports: the address, and the role that a request's credentials prove.

Rule: credentials are judged before anything is asked or read in their name; a client's own word on who it is, and on
whom it speaks for, counts for nothing.
"""

import ssl
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from proxy.auth.identity import AuthData, Authenticated, AuthenticationFailed, Principal
from proxy.web.refused import HttpRefused

if TYPE_CHECKING:
    from aiohttp.web import BaseRequest

LONGEST_ADDRESS: Final = 64


@dataclass(frozen=True, slots=True)
class WebClient:
    """One request's client: its name for logs, its address, and its role (None: nobody is authenticated here)."""

    name: str
    address: str
    role: str | None = None

    @property
    def principal(self) -> Hashable:
        """Give what memory is shared by, the same as for a client of the binary port."""
        return None if self.role is None else Principal(self.role)


class HttpAuthenticator(Protocol):
    """Who vouches for credentials (`proxy.auth.providers.Authenticator` is one)."""

    async def authenticate(self, method: str, data: bytes, certificate: bytes | None) -> Authenticated:
        """Find the role; raises AuthenticationFailed."""


class HeaderReader(Protocol):
    """How an `Authorization` header is read (`proxy.auth.providers.credentials_of_header`)."""

    def __call__(self, value: str) -> AuthData | None:
        """Give the method and its data, None for a header of no known kind."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What `authenticationEnabled` means for the web ports."""

    authenticator: HttpAuthenticator
    read_header: HeaderReader

    async def role_of(self, authorization: str | None, certificate: bytes | None) -> str:
        """Give the role of a request's header or certificate; raises HttpRefused with 401."""
        try:
            found = None if authorization is None else self.read_header(authorization)
            if authorization is not None and found is None:
                raise AuthenticationFailed("the authorization header is of no known kind")
            if found is None:
                found = AuthData("none" if certificate is None else "tls", b"")
            return (await self.authenticator.authenticate(found.method, found.data, certificate)).role
        except AuthenticationFailed as failed:
            challenge = (("WWW-Authenticate", "Bearer"), ("WWW-Authenticate", "Basic"))
            raise HttpRefused(401, f"failed to authenticate: {failed}", "authentication", challenge) from failed


def client_of(request: "BaseRequest", accepted_from: str, *, trust_forwarded_for: bool) -> WebClient:
    """Name a request's client: where its connection came from or, if it is trusted, what a balancer says."""
    address = accepted_from
    if trust_forwarded_for and (said := request.headers.get("X-Forwarded-For")):
        address = said.partition(",")[0].strip()[:LONGEST_ADDRESS] or accepted_from
    peer: Any = request.transport.get_extra_info("peername") if request.transport is not None else None
    port = peer[1] if isinstance(peer, tuple) else 0
    return WebClient(f"[{address}]:{port}" if ":" in address else f"{address}:{port}", address)


def certificate_of(request: "BaseRequest") -> bytes | None:
    """Give the certificate that the client's TLS connection has proven, DER."""
    transport = request.transport
    session = transport.get_extra_info("ssl_object") if transport is not None else None
    return session.getpeercert(binary_form=True) if isinstance(session, ssl.SSLObject) else None
