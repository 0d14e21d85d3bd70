"""Identify the clients of the web ports: the address, and the role that a request's credentials prove.

Rule: credentials are verified before any work is done for them; a client's own claim of an identity, or of acting for
another principal, is ignored.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from protocol.host_port import host_port
from proxy.auth.client_authentication import ClientAuthentication
from proxy.auth.identity import AuthData, AuthenticationFailed, Principal
from proxy.auth.providers.http_header import credentials_of_header
from proxy.config.keys.networks import is_loopback
from proxy.core.addresses import host_network
from proxy.core.public_causes import PublicCause, authentication_text
from proxy.net.trusted_balancers import TrustedBalancers
from proxy.web.http.errors import HttpRefused, retry_after

if TYPE_CHECKING:
    from aiohttp.web import BaseRequest

LONGEST_ADDRESS: Final = 64
# Headers by which a proxy says for whom it asks.
_OF_PROXIES: Final = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP")
AGAIN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class WebClient:
    """The client of a request: its name for logs, the address of its connection (maybe a load balancer's), its role.

    Without authentication the role is None; `anonymous`: the role is that of everybody without credentials. The
    credentials expire at `expires_at`, in seconds since the epoch (None: never). Checks of passwords take turns by
    `seen_as`, the name with the address that a balancer has seen: a client may claim another.
    """

    name: str
    accepted_from: str
    role: str | None = None
    expires_at: float | None = None
    seen_as: str = ""
    anonymous: bool = False

    @property
    def principal(self) -> Hashable:
        """Return the principal for fair shares of memory, the same as for a client of the binary port."""
        return None if self.role is None else Principal(self.role)

    @property
    def turn_key(self) -> Hashable:
        """Return the key that takes turns: the principal, or the host of a client that has proven nothing."""
        if self.principal is not None and not self.anonymous:
            return self.principal
        return host_network(self.name.rpartition(":")[0].strip("[]"))


@dataclass(frozen=True, slots=True)
class Guard:
    """The authentication of the web ports, with `authenticationEnabled`.

    `certificates`: a certificate is the credential of a request without a header; else such a request has none.
    """

    verifier: ClientAuthentication
    certificates: bool

    def expired(self, client: WebClient) -> bool:
        """Return whether the credentials of a client have expired since they were verified."""
        return client.expires_at is not None and self.verifier.now() >= client.expires_at

    async def identified(self, client: WebClient, authorization: str | None, certificate: bytes | None) -> WebClient:
        """Return the client with the role of its header or certificate; raises HttpRefused with 401, or 503 if busy."""
        try:
            presented = _presented(authorization, certificate if self.certificates else None)
            found = await self.verifier.verify(presented, certificate, client.seen_as or client.name)
            return replace(client, role=found.role, expires_at=found.expires_at, anonymous=found.anonymous)
        except AuthenticationFailed as failed:
            self.verifier.refused(client.name, failed)
            reason, detail = authentication_text(failed.public), f"failed to authenticate: {failed}"
            if failed.busy:
                raise HttpRefused(503, reason, "busy", retry_after(AGAIN_SECONDS), detail=detail) from failed
            challenge = (("WWW-Authenticate", "Bearer"), ("WWW-Authenticate", "Basic"))
            raise HttpRefused(401, reason, "authentication", challenge, detail=detail) from failed


def _presented(authorization: str | None, certificate: bytes | None) -> AuthData:
    if authorization is None:
        return AuthData("none" if certificate is None else "tls", b"")
    found = credentials_of_header(authorization)
    if found is None:
        raise AuthenticationFailed("the authorization header is of no known kind", public=PublicCause.NOT_ACCEPTED)
    return found


def client_of(request: "BaseRequest", accepted_from: str, balancers: TrustedBalancers | None) -> WebClient:
    """Return a request's client: the address of its connection or, from a trusted balancer, that in X-Forwarded-For."""
    address = seen = accepted_from
    if balancers is not None and (said := ",".join(request.headers.getall("X-Forwarded-For", ()))):
        address = balancers.client_of(accepted_from, said)[:LONGEST_ADDRESS]
        seen = balancers.seen_client_of(accepted_from, said)[:LONGEST_ADDRESS]
    peer: Any = request.transport.get_extra_info("peername") if request.transport is not None else None
    port = peer[1] if isinstance(peer, tuple) else 0
    return WebClient(host_port(address, port), accepted_from, seen_as=host_port(seen, port))


def asks_on_loopback(request: "BaseRequest", accepted_from: str) -> bool:
    """Return whether a request came over loopback from this machine itself, by an address or as localhost.

    A proxy on this machine asks for clients that are elsewhere, and a web page elsewhere may have a name that leads
    here: neither counts.
    """
    if any(name in request.headers for name in _OF_PROXIES) or not is_loopback(accepted_from):
        return False
    own = request.transport.get_extra_info("socket") if request.transport is not None else None
    peer = own.getpeername() if own is not None else None
    # The PROXY protocol may have named another address than the connection's own; a Unix socket has none.
    if isinstance(peer, tuple) and not is_loopback(peer[0]):
        return False
    host = request.headers.get("Host", "").rpartition("@")[2]
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name)


def certificate_of(request: "BaseRequest") -> bytes | None:
    """Return the certificate of the client's TLS connection as DER, None without one."""
    transport = request.transport
    found = transport.get_extra_info("peer_certificate") if transport is not None else None
    return found if isinstance(found, bytes) else None
