"""The broker of this package demands a certificate of whoever connects with TLS: the proxy's."""

from collections.abc import Callable

import pytest

from protocol.pb import PulsarApi_pb2 as pb
from tests.pulsar.proxy_process import connected
from tests.pulsar.secured.clients import authentication, client, exchange
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredProxy
from tests.pulsar.secured.test_tls import versions

pytestmark = pytest.mark.pulsar


@versions
def test_a_broker_that_demands_a_certificate_serves_a_proxy_that_has_one(
    secured_proxy: Callable[..., SecuredProxy], credentials: Credentials, namespace: str, version: str
) -> None:
    certificate, key = credentials.certificate("proxy")
    own = {"brokerClientCertificateFilePath": certificate, "brokerClientKeyFilePath": key}
    keys = {"tlsEnabledWithBroker": "true", "brokerClientTlsProtocols": version}
    topic, token = f"persistent://{namespace}/topic", credentials.token("alice").encode()
    for given, answer in (
        (own, pb.CommandLookupTopicResponse.Connect),
        ({}, pb.CommandLookupTopicResponse.Failed),
    ):
        proxy = secured_proxy(forwardAuthorizationCredentials="true", **keys, **given)
        with connected(proxy.url, auth_method_name="token", auth_data=token) as wire:
            assert wire.lookup(topic).response == answer
        for url in (proxy.url, proxy.tls_url) if given else ():
            with client(url, credentials, authentication(credentials, "token", "alice")) as alice:
                exchange(alice, topic)
