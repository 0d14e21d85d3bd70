"""Convert the proxy's own credentials and TLS settings for pulsar-client.

Rule: credentials belong to the event loop; the sink's thread asks the loop for them. The client library asks for a
fresh token for each connection, from a thread in which an exception would end the process, so `_fresh_token` never
raises.

pulsar-client cannot restrict TLS versions and cipher suites (`brokerClientTlsProtocols`, `brokerClientTlsCiphers`);
`proxy.config.rules` warns about that.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from proxy.auth.identity import AuthData
from proxy.auth.own.broker_credentials import BrokerCredentials, authorization_header
from proxy.config.config import Config
from proxy.core.errors import CredentialsUnavailable
from proxy.telemetry.events.topic_sink import TopicTls

if TYPE_CHECKING:
    import pulsar

__all__ = ["TopicCredentials", "topic_tls"]

# OAuth 2.0 issuers get 10 s; the rest is for an event loop that is busy.
ANSWER_SECONDS: Final = 20.0


class TopicCredentials:
    """Credentials of `own`, which live on `loop`, for a client in another thread."""

    def __init__(self, own: BrokerCredentials, loop: asyncio.AbstractEventLoop) -> None:
        self._own = own
        self._loop = loop
        self._token = ""

    def authentication(self) -> "pulsar.Authentication | None":
        """Return the authentication for pulsar-client, None without one; raises CredentialsUnavailable. Blocks."""
        import pulsar

        files = self._own.tls_files()
        if files is not None:
            return pulsar.AuthenticationTLS(*files)
        data = self._ask()
        if data is None:
            return None
        if data.method == "basic":
            user, _, password = data.data.decode().partition(":")
            return pulsar.AuthenticationBasic(user, password)
        self._token = data.data.decode()
        return pulsar.AuthenticationToken(self._fresh_token)

    async def headers(self) -> Mapping[str, str]:
        """Return the headers with the credentials for the admin API; raises CredentialsUnavailable."""
        header = await authorization_header(self._own)
        return {} if header is None else {"Authorization": header}

    def _ask(self) -> AuthData | None:
        question = self._own.current()
        try:
            return asyncio.run_coroutine_threadsafe(question, self._loop).result(ANSWER_SECONDS)
        except CredentialsUnavailable:
            raise
        except Exception as error:
            question.close()
            raise CredentialsUnavailable(f"no credentials for brokers: {type(error).__name__}") from error

    def _fresh_token(self) -> str:
        try:
            data = self._ask()
        except Exception:  # the thread is pulsar-client's; the broker refuses an old token with a clear answer
            return self._token
        if data is not None:
            self._token = data.data.decode()
        return self._token


def topic_tls(config: Config, *, own_cluster: bool) -> TopicTls:
    """Return the TLS settings towards brokers; another cluster is not shown this proxy's certificate."""
    insecure = config.tls_allow_insecure_connection
    return TopicTls(
        # pulsar-client would trust its own bundle; the rest of the proxy trusts the system's authorities.
        trust_path=config.broker_client_trust_certs_file_path or ssl.get_default_verify_paths().cafile or "",
        certificate_path=config.broker_client_certificate_file_path if own_cluster else "",
        key_path=config.broker_client_key_file_path if own_cluster else "",
        allow_insecure=insecure,
        check_hostname=config.tls_hostname_verification_enabled and not insecure,
    )
