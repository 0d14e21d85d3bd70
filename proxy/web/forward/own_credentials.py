"""Headers for brokers and function workers: the proxy's own credentials, and the role of its client.

Rules: only servers that are configured as brokers or function workers, or that these redirect to, get the headers: any
other server could use the proxy's credentials on every broker. A service that does not heed the client's role gets
none of the proxy's credentials: it would give the proxy's rights to the client. So it is with the certificate of the
proxy, which TLS shows: only requests that name the client's role go over a connection that has shown it.
"""

from typing import Final

from proxy.auth.own.broker_credentials import BrokerCredentials, authorization_header, has_credentials
from proxy.core.errors import CredentialsUnavailable
from proxy.web.forward.headers import ORIGINAL_PRINCIPAL, Headers, UnsafeHeader, check
from proxy.web.http.errors import HttpRefused

AUTHORIZATION: Final = "Authorization"
_METHOD: Final = "X-Pulsar-Auth-Method-Name"
_NEEDS_OWN: Final = (
    "websockets need an authorization header of their client: the broker would give a client without one the rights of "
    "the proxy (brokerClientAuthenticationPlugin)"
)
# A part of the reason why a server did not answer.
UNSHOWN: Final = (
    "; if it demands a certificate: brokers are not shown that of the proxy for a client without a role "
    "(authenticationEnabled)"
)
_NOT_ASCII: Final = (
    "the role of these credentials has characters beyond ASCII, which a broker would read as another role: over HTTP "
    "use credentials whose role is ASCII"
)


async def identity_headers(own: BrokerCredentials | None, role: str | None, *, has_authorization: bool) -> Headers:
    """Return the headers with the client's role and, for a request without credentials, the proxy's own credentials.

    Raises HttpRefused if the credentials are not available now, and UnsafeHeader for a role that is no header text.
    """
    if role is None:
        # Without a role header a broker would treat any client as the proxy itself.
        return []
    if not role.isascii():
        # Servers read ISO-8859-1, this proxy's HTTP client writes UTF-8: another role would arrive.
        raise UnsafeHeader(_NOT_ASCII)
    headers = [(ORIGINAL_PRINCIPAL, role)]
    if own is not None and not has_authorization:
        authorization = await _own_authorization(own)
        if authorization is not None:
            headers.append((AUTHORIZATION, authorization))
    for name, value in headers:
        check(name, value)
    return headers


async def check_rights(own: BrokerCredentials | None, role: str | None, *, certificate: bool) -> None:
    """Raise HttpRefused for a client without credentials, where a service would take the proxy's for the client's.

    `certificate`: connections to brokers show a certificate of the proxy.
    """
    if role is not None and (certificate or (own is not None and await has_credentials(own))):
        raise HttpRefused(401, _NEEDS_OWN, "authentication", (("WWW-Authenticate", "Bearer"),))


def judged_by_header(headers: Headers) -> Headers:
    """Return the headers of a client with credentials, for a broker that is shown the proxy's certificate as well.

    Without the name of a method a broker tries its providers, and may take the certificate first (Pulsar's
    AuthenticationService). A method that the client names could be that of certificates.
    """
    given = next((value for name, value in headers if name.lower() == AUTHORIZATION.lower()), "")
    method = "basic" if given.lower().startswith("basic ") else "token"
    return [*((name, value) for name, value in headers if name.lower() != _METHOD.lower()), (_METHOD, method)]


async def _own_authorization(own: BrokerCredentials) -> str | None:
    try:
        return await authorization_header(own)
    except CredentialsUnavailable as error:
        # 503: the fault is the proxy's, not the client's.
        reason = "the proxy has no credentials for brokers now (brokerClientAuthenticationPlugin)"
        raise HttpRefused(503, reason, "own_credentials") from error
