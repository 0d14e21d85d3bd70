"""Who asks on the web ports: the address, and the role that a request's credentials prove.

Rule: credentials are judged before anything is asked or read in their name; a client's own word on who it is, and on
whom it speaks for, counts for nothing.
"""

import ssl
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from protocol.host_port import host_port
from proxy.auth.identity import AuthData, Authenticated, AuthenticationFailed, Principal
from proxy.auth.providers.http_header import credentials_of_header
from proxy.web.http.errors import HttpRefused, retry_after

if TYPE_CHECKING:
    from aiohttp.web import BaseRequest

LONGEST_ADDRESS: Final = 64
AGAIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class WebClient:
    """One request's client: its name for logs, the address its connection came from, which may be a balancer's, and its
    role (None: nobody is authenticated here).
    """

    name: str
    accepted_from: str
    role: str | None = None

    @property
    def principal(self) -> Hashable:
        """Give what memory is shared by, the same as for a client of the binary port."""
        return None if self.role is None else Principal(self.role)


class Verifier(Protocol):
    """Who vouches for credentials (`proxy.auth.client_authentication.ClientAuthentication`)."""

    async def verify(self, presented: AuthData, certificate: bytes | None) -> Authenticated:
        """Find the role; raises AuthenticationFailed."""

    def refused(self, client: str, failure: AuthenticationFailed) -> None:
        """Tell the operator of a client that proved nothing."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What `authenticationEnabled` means for the web ports."""

    verifier: Verifier

    async def role_of(self, client: WebClient, authorization: str | None, certificate: bytes | None) -> str:
        """Give the role of a request's header or certificate; raises HttpRefused with 401, or 503 if nobody judged."""
        try:
            presented = _presented(authorization, certificate)
            return (await self.verifier.verify(presented, certificate)).role
        except AuthenticationFailed as failed:
            self.verifier.refused(client.name, failed)
            if failed.busy:
                reason = f"failed to authenticate: {failed}"
                raise HttpRefused(503, reason, "busy", retry_after(AGAIN_SECONDS)) from failed
            challenge = (("WWW-Authenticate", "Bearer"), ("WWW-Authenticate", "Basic"))
            raise HttpRefused(401, f"failed to authenticate: {failed}", "authentication", challenge) from failed


def _presented(authorization: str | None, certificate: bytes | None) -> AuthData:
    if authorization is None:
        return AuthData("none" if certificate is None else "tls", b"")
    found = credentials_of_header(authorization)
    if found is None:
        raise AuthenticationFailed("the authorization header is of no known kind")
    return found


def client_of(request: "BaseRequest", accepted_from: str, *, trust_forwarded_for: bool) -> WebClient:
    """Name a request's client: where its connection came from or, if it is trusted, what a balancer says."""
    address = accepted_from
    if trust_forwarded_for and (said := request.headers.get("X-Forwarded-For")):
        address = said.partition(",")[0].strip()[:LONGEST_ADDRESS] or accepted_from
    peer: Any = request.transport.get_extra_info("peername") if request.transport is not None else None
    port = peer[1] if isinstance(peer, tuple) else 0
    return WebClient(host_port(address, port), accepted_from)


def certificate_of(request: "BaseRequest") -> bytes | None:
    """Give the certificate that the client's TLS connection has proven, DER."""
    transport = request.transport
    session = transport.get_extra_info("ssl_object") if transport is not None else None
    return session.getpeercert(binary_form=True) if isinstance(session, ssl.SSLObject) else None
