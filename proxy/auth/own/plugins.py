"""The proxy's own credentials by the configuration; the only module that knows all plugins.

The code of OAuth2 is loaded only where OAuth2 is configured: loading is part of the time that a start takes.
"""

from collections.abc import Callable

from proxy.auth.own.broker_credentials import BrokerCredentials, plain_credentials
from proxy.config.credential_parameters import OAuth2Parameters, parse_credentials
from proxy.core.loop_budget import LoopBudget


def own_credentials(
    plugin: str, parameters: str, on_crash: Callable[[BaseException], None], loop_budget: LoopBudget
) -> BrokerCredentials:
    """Return the credentials of the proxy for brokers; raise BadParameters.

    `on_crash` is called with an unexpected exception of a background task. Waiters for a token go on in turns of the
    `loop_budget`.
    """
    given = parse_credentials(plugin, parameters)
    if isinstance(given, OAuth2Parameters):
        from proxy.auth.own.oauth2 import HttpIssuer, OAuth2Credentials

        return OAuth2Credentials(HttpIssuer(given).fetch, on_crash, loop_budget)
    return plain_credentials(given)


def find_secrets(plugin: str, parameters: str) -> None:
    """Read the file or the variable that holds the secret; issuers are not asked.

    Raise CredentialsUnavailable if there is no secret now, and BadParameters.
    """
    given = parse_credentials(plugin, parameters)
    if isinstance(given, OAuth2Parameters):
        from proxy.auth.own.oauth2 import read_key

        read_key(given.private_key)
    else:
        plain_credentials(given).read()
