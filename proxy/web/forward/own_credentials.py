"""Headers for brokers and function workers: the proxy's own credentials, and the role of its client.

Rule: only servers that are configured as brokers or function workers, or that these redirect to, get the headers: any
other server could use the proxy's credentials on every broker.
"""

from typing import Final

from proxy.auth.own.broker_credentials import BrokerCredentials, authorization_header
from proxy.core.errors import CredentialsUnavailable
from proxy.web.forward.headers import ORIGINAL_PRINCIPAL, Headers, check
from proxy.web.http.errors import HttpRefused

AUTHORIZATION: Final = "Authorization"


async def identity_headers(own: BrokerCredentials | None, role: str | None, *, has_authorization: bool) -> Headers:
    """Return the headers with the client's role and, for a request without credentials, the proxy's own credentials.

    Raises HttpRefused if the credentials are not available now, and UnsafeHeader for a role that is no header text.
    """
    if role is None:
        # Without a role header a broker would treat any client as the proxy itself.
        return []
    headers = [(ORIGINAL_PRINCIPAL, role)]
    if own is not None and not has_authorization:
        authorization = await _own_authorization(own)
        if authorization is not None:
            headers.append((AUTHORIZATION, authorization))
    for name, value in headers:
        check(name, value)
    return headers


async def _own_authorization(own: BrokerCredentials) -> str | None:
    try:
        return await authorization_header(own)
    except CredentialsUnavailable as error:
        # 503: the fault is the proxy's, not the client's.
        reason = "the proxy has no credentials for brokers now (brokerClientAuthenticationPlugin)"
        raise HttpRefused(503, reason, "own_credentials") from error
