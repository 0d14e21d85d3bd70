"""Make the parts of the event log's topic from the configuration: its store, and the check whether it keeps events.

Rule: a server that gets the proxy's credentials could use them on every broker. So the proxy's credentials and its
certificate go to its own brokers only; another cluster for events (`eventLogTopicServiceURL`) gets the credentials of
`eventLogTopicAuthenticationPlugin` instead.
"""

import asyncio
import ssl
from collections.abc import Callable

from eventlog.topic_admin import TopicAdmin, topic_name
from protocol.host_port import host_port
from proxy.auth.failures import SettingFault
from proxy.auth.own.broker_credentials import BrokerCredentials
from proxy.auth.own.plugins import own_credentials
from proxy.config.config import Config
from proxy.config.keys.key import PLAIN_SCHEME, TLS_SCHEME, split_broker_urls
from proxy.core.log import Logger
from proxy.core.loop_budget import LoopBudget
from proxy.telemetry.events.requirements import MISSING_CLIENT, client_missing
from proxy.telemetry.events.topic_credentials import TopicCredentials, topic_tls
from proxy.telemetry.events.topic_sink import TopicEventStore, TopicSettings
from proxy.telemetry.events.topic_watch import ADMIN_TIMEOUT_SECONDS, Headers, TopicWatch

__all__ = ["TopicParts", "service_url"]


class TopicParts:
    """Makes the store and the watch of the topic; raises SettingFault if pulsar-client is not installed."""

    def __init__(
        self,
        config: Config,
        loop: asyncio.AbstractEventLoop,
        own: BrokerCredentials,
        broker_tls: Callable[[], ssl.SSLContext],
        crashed: Callable[[BaseException], None],
    ) -> None:
        if client_missing():
            raise SettingFault(Config.event_log_topic.name, MISSING_CLIENT)
        self._config = config
        self._broker_tls = broker_tls
        self._own_cluster = not config.event_log_topic_service_url
        # Credentials configured for the topic go to its cluster; the proxy's own go to its own brokers only.
        self._other: BrokerCredentials | None = None
        if config.event_log_topic_authentication_plugin:
            own = self._other = own_credentials(
                config.event_log_topic_authentication_plugin,
                config.event_log_topic_authentication_parameters,
                crashed,
                LoopBudget(loop, loop.time),
            )
        shown = self._own_cluster or self._other is not None
        self._credentials = TopicCredentials(own, loop) if shown else None

    def store(self) -> TopicEventStore:
        """Return the store that writes to the topic."""
        tls = topic_tls(self._config, own_cluster=self._own_cluster)
        settings = TopicSettings(self._config.event_log_topic, service_url(self._config), tls)
        credentials = self._credentials
        return TopicEventStore(settings, (lambda: None) if credentials is None else credentials.authentication)

    def watch(self, log: Logger) -> TopicWatch:
        """Return the watch that asks the admin service of the topic's cluster."""
        name, urls = topic_name(self._config.event_log_topic), self._admin_urls()
        headers = None if self._credentials is None else self._credentials.headers
        return TopicWatch(name, self._admin if urls else None, headers, log)

    async def close(self) -> None:
        """Close the credentials of the topic."""
        if self._other is not None:
            await self._other.close()

    def _admin(self, headers: Headers) -> TopicAdmin:
        config = self._config
        own_context = self._own_cluster and config.tls_enabled_with_broker
        context = self._broker_tls() if own_context else _without_certificate(config)
        return TopicAdmin(self._admin_urls(), lambda: headers, context, ADMIN_TIMEOUT_SECONDS)

    def _admin_urls(self) -> tuple[str, ...]:
        config = self._config
        if not self._own_cluster:
            return ()
        return config.broker_web_service_url_tls if config.tls_enabled_with_broker else config.broker_web_service_url


def service_url(config: Config) -> str:
    """Return the URL of the topic's cluster in the form of pulsar-client."""
    tls, url = config.tls_enabled_with_broker, config.event_log_topic_service_url
    if url:
        tls = url.startswith(TLS_SCHEME)
    else:
        url = config.broker_service_url_tls if tls else config.broker_service_url
    hosts = split_broker_urls(url, tls=tls)
    return (TLS_SCHEME if tls else PLAIN_SCHEME) + ",".join(host_port(*host) for host in hosts)


def _without_certificate(config: Config) -> ssl.SSLContext:
    """Return a context that trusts the same authorities as for brokers, without a certificate of the proxy."""
    context = ssl.create_default_context(cafile=config.broker_client_trust_certs_file_path or None)
    if config.tls_allow_insecure_connection:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif not config.tls_hostname_verification_enabled:
        context.check_hostname = False
    return context
