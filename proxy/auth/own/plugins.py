"""Make the proxy's own credentials out of the configuration: the one place that knows all plugins."""

from collections.abc import Callable

from proxy.auth.own.broker_credentials import BrokerCredentials, plain_credentials
from proxy.auth.own.oauth2 import HttpIssuer, OAuth2Credentials, read_key
from proxy.config.credential_parameters import OAuth2Parameters, parse_credentials


def own_credentials(plugin: str, parameters: str, on_crash: Callable[[BaseException], None]) -> BrokerCredentials:
    """Make what the proxy presents to brokers; raises BadParameters.

    `on_crash` is called with an unexpected exception in the background.
    """
    given = parse_credentials(plugin, parameters)
    if isinstance(given, OAuth2Parameters):
        return OAuth2Credentials(HttpIssuer(given), on_crash)
    return plain_credentials(given)


def find_secrets(plugin: str, parameters: str) -> None:
    """Read the file or the variable that holds the secret; issuers are not asked.

    Raises CredentialsUnavailable if it holds none now, BadParameters.
    """
    given = parse_credentials(plugin, parameters)
    if isinstance(given, OAuth2Parameters):
        read_key(given.private_key)
    else:
        plain_credentials(given).read()
