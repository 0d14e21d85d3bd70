"""Identify the clients of the web ports: the address, and the role that a request's credentials prove.

Rule: credentials are verified before any work is done for them; a client's own claim of an identity, or of acting for
another principal, is ignored.
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
    """The client of a request: its name for logs, the address of its connection (maybe a load balancer's), its role.

    Without authentication the role is None.
    """

    name: str
    accepted_from: str
    role: str | None = None

    @property
    def principal(self) -> Hashable:
        """Return the principal for fair shares of memory, the same as for a client of the binary port."""
        return None if self.role is None else Principal(self.role)


class Verifier(Protocol):
    """The verifier of credentials (`proxy.auth.client_authentication.ClientAuthentication`)."""

    async def verify(self, presented: AuthData, certificate: bytes | None) -> Authenticated:
        """Return the role that the credentials prove; raises AuthenticationFailed."""

    def refused(self, client: str, failure: AuthenticationFailed) -> None:
        """Log a client whose credentials prove no role."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The authentication of the web ports, with `authenticationEnabled`."""

    verifier: Verifier

    async def role_of(self, client: WebClient, authorization: str | None, certificate: bytes | None) -> str:
        """Return the role of a request's header or certificate; raises HttpRefused with 401, or 503 if busy."""
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
    """Return a request's client: the address of its connection or, if trusted, the address in X-Forwarded-For."""
    address = accepted_from
    if trust_forwarded_for and (said := request.headers.get("X-Forwarded-For")):
        address = said.partition(",")[0].strip()[:LONGEST_ADDRESS] or accepted_from
    peer: Any = request.transport.get_extra_info("peername") if request.transport is not None else None
    port = peer[1] if isinstance(peer, tuple) else 0
    return WebClient(host_port(address, port), accepted_from)


def certificate_of(request: "BaseRequest") -> bytes | None:
    """Return the certificate of the client's TLS connection as DER, None without one."""
    transport = request.transport
    session = transport.get_extra_info("ssl_object") if transport is not None else None
    return session.getpeercert(binary_form=True) if isinstance(session, ssl.SSLObject) else None
