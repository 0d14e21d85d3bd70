"""Show brokers who the proxy is, as an `Authorization` header: for clients that were authenticated without one."""

import base64

from proxy.auth.broker_credentials import BrokerCredentials
from proxy.errors import CredentialsUnavailable
from proxy.web.refused import HttpRefused


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
