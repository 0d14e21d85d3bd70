"""Say to brokers who the proxy is, and for whom it asks: headers that are for brokers and function workers alone.

Rule: what is not configured as a broker or function worker, and not led to by one, gets none of them: whoever gets the
proxy's credentials could use them on every broker.
"""

from proxy.auth.own.broker_credentials import BrokerCredentials, authorization_header
from proxy.core.errors import CredentialsUnavailable
from proxy.web.forward.headers import ORIGINAL_PRINCIPAL, Headers, check
from proxy.web.http.errors import HttpRefused


async def introduction(own: BrokerCredentials | None, role: str | None, *, has_authorization: bool) -> Headers:
    """Give the headers that name the client's role and, for a request without credentials, show the proxy's own.

    Raises HttpRefused if those cannot be had now, and UnsafeHeader for a role that no header may carry.
    """
    if role is None:
        # Without a role, a broker would take anybody for the proxy.
        return []
    headers = [(ORIGINAL_PRINCIPAL, role)]
    if own is not None and not has_authorization:
        authorization = await _own_authorization(own)
        if authorization is not None:
            headers.append(("Authorization", authorization))
    for name, value in headers:
        check(name, value)
    return headers


async def _own_authorization(own: BrokerCredentials) -> str | None:
    try:
        return await authorization_header(own)
    except CredentialsUnavailable as error:
        # The proxy's fault, not the client's.
        reason = "the proxy has no credentials for brokers now (brokerClientAuthenticationPlugin)"
        raise HttpRefused(503, reason, "own_credentials") from error
