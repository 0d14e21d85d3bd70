"""Make the proxy's own credentials out of the configuration: the one place that knows all plugins."""

from collections.abc import Callable, Mapping

from proxy.auth.own.broker_credentials import BrokerCredentials, Plain, broker_credentials
from proxy.auth.own.oauth2 import HttpIssuer, OAuth2Credentials, oauth2_settings, read_key


def own_credentials(plugin: str, parameters: str, on_crash: Callable[[BaseException], None]) -> BrokerCredentials:
    """Make what the proxy presents to brokers; raises BadParameters.

    `on_crash` hears of an unexpected exception in the background.
    """

    def oauth2(given: Mapping[str, str]) -> BrokerCredentials:
        return OAuth2Credentials(HttpIssuer(oauth2_settings(given)), on_crash)

    return broker_credentials(plugin, parameters, oauth2)


def shown_certificate(plugin: str, parameters: str) -> tuple[str, str] | None:
    """Give the paths of certificate and key, if they are the credentials; raises BadParameters."""
    return own_credentials(plugin, parameters, lambda _: None).tls_files()


def check_credentials(plugin: str, parameters: str) -> None:
    """Raise BadParameters if nothing can be made of both keys; files and issuers are not asked."""
    own_credentials(plugin, parameters, lambda _: None)


def find_secrets(plugin: str, parameters: str) -> None:
    """Read the file or the variable that holds the secret; issuers are not asked.

    Raises CredentialsUnavailable if it holds none now, BadParameters.
    """

    def oauth2(given: Mapping[str, str]) -> BrokerCredentials:
        read_key(oauth2_settings(given).private_key)
        return Plain(lambda: None)

    credentials = broker_credentials(plugin, parameters, oauth2)
    if isinstance(credentials, Plain):
        credentials.read()
