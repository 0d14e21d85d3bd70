"""The proxy's own credentials by the configuration; the only module that knows all plugins."""

from collections.abc import Callable, Mapping

from proxy.auth.own.broker_credentials import BrokerCredentials, Plain, broker_credentials
from proxy.auth.own.oauth2 import HttpIssuer, OAuth2Credentials, oauth2_settings, read_key


def own_credentials(plugin: str, parameters: str, on_crash: Callable[[BaseException], None]) -> BrokerCredentials:
    """Return the credentials of the proxy for brokers; raise BadParameters.

    `on_crash` is called with an unexpected exception of a background task.
    """

    def oauth2(given: Mapping[str, str]) -> BrokerCredentials:
        return OAuth2Credentials(HttpIssuer(oauth2_settings(given)), on_crash)

    return broker_credentials(plugin, parameters, oauth2)


def shown_certificate(plugin: str, parameters: str) -> tuple[str, str] | None:
    """Return the paths of certificate and key, if these are the credentials; raise BadParameters."""
    return own_credentials(plugin, parameters, lambda _: None).tls_files()


def check_credentials(plugin: str, parameters: str) -> None:
    """Raise BadParameters if both keys describe no credentials; files and issuers are not read."""
    own_credentials(plugin, parameters, lambda _: None)


def find_secrets(plugin: str, parameters: str) -> None:
    """Read the file or the variable that holds the secret; issuers are not asked.

    Raise CredentialsUnavailable if there is no secret now, and BadParameters.
    """

    def oauth2(given: Mapping[str, str]) -> BrokerCredentials:
        read_key(oauth2_settings(given).private_key)
        return Plain(lambda: None)

    credentials = broker_credentials(plugin, parameters, oauth2)
    if isinstance(credentials, Plain):
        credentials.read()
