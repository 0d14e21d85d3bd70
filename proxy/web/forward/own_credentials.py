"""Say to brokers who the proxy is, and for whom it asks: headers that are for brokers and function workers alone.

Rule: what is not configured as a broker or function worker, and not led to by one, gets none of them: whoever gets the
proxy's credentials could use them on every broker.
"""

import base64

from proxy.auth.own.broker_credentials import BrokerCredentials
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
        authorization = await own_authorization(own)
        if authorization is not None:
            headers.append(("Authorization", authorization))
    for name, value in headers:
        check(name, value)
    return headers


async def own_authorization(own: BrokerCredentials) -> str | None:
    """Give the header; None for credentials that are no header (a certificate) or for none.

    Raises HttpRefused if they cannot be had now: the proxy's fault, not the client's.
    """
    try:
        found = await own.current()
    except CredentialsUnavailable as error:
        reason = "the proxy has no credentials for brokers now (brokerClientAuthenticationPlugin)"
        raise HttpRefused(503, reason, "own_credentials") from error
    if found is None:
        return None
    if found.method == "token":
        return f"Bearer {found.data.decode('ascii', 'replace')}"
    if found.method == "basic":
        return f"Basic {base64.b64encode(found.data).decode()}"
    return None
