"""WebSockets through the proxy to a broker that asks who is there: each client has its own rights, never the proxy's.

The broker's service of WebSockets does not know for whom a proxy speaks: it would take the proxy's token for the
client's.
"""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Final

import aiohttp
import pytest

from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredBroker, SecuredProxy
from tests.support.patience import in_time, patient

pytestmark = pytest.mark.pulsar

NewProxy = Callable[..., SecuredProxy]
# The first WebSocket makes the broker connect to itself.
OPEN_SECONDS: Final = patient(30.0)
# Opened: the client may produce. Else the status of the refusal.
OPENED: Final = 101


def bearer(credentials: Credentials, role: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {credentials.token(role)}"}


async def produced(web_url: str, namespace: str, headers: Mapping[str, str], token: str = "") -> int:
    """Produce a message over a WebSocket; give `OPENED`, or the status of the refusal."""
    url = f"{web_url}/ws/v2/producer/persistent/{namespace}/topic" + (f"?token={token}" if token else "")
    async with in_time(OPEN_SECONDS), aiohttp.ClientSession() as session:
        try:
            async with session.ws_connect(url, headers=headers) as socket:
                await socket.send_json({"payload": base64.b64encode(b"hello").decode()})
                answer = json.loads((await socket.receive(OPEN_SECONDS)).data)
                assert answer["result"] == "ok", answer
                return OPENED
        except aiohttp.WSServerHandshakeError as refusal:
            return refusal.status


async def test_the_broker_would_give_who_shows_the_proxys_token_the_proxys_rights(
    broker: SecuredBroker, credentials: Credentials, namespace: str
) -> None:
    # The danger itself: without it the tests below would prove nothing.
    headers = {**bearer(credentials, "proxy"), "X-Original-Principal": "bob"}
    assert await produced(broker.admin_url, namespace, headers) == OPENED


@pytest.mark.threat("websocket-as-proxy")
@pytest.mark.parametrize("certificate", [False, True], ids=["token", "certificate"])
async def test_a_websocket_has_the_rights_of_its_client(
    secured_proxy: NewProxy, credentials: Credentials, namespace: str, certificate: bool
) -> None:
    own = {}
    if certificate:
        # A certificate is shown to the broker with every connection, whoever the client is.
        file, key = credentials.certificate("proxy")
        plugin = "org.apache.pulsar.client.impl.auth.AuthenticationTls"
        own = {
            "tlsEnabledWithBroker": "true", "brokerClientAuthenticationPlugin": plugin,
            "brokerClientAuthenticationParameters": f"tlsCertFile:{file},tlsKeyFile:{key}",
            "brokerClientCertificateFilePath": file, "brokerClientKeyFilePath": key,
        }  # fmt: skip
    url = secured_proxy(anonymousUserRole="nobody", **own).web_url
    assert await produced(url, namespace, bearer(credentials, "alice")) == OPENED
    assert await produced(url, namespace, {}, credentials.token("alice")) == OPENED
    for refused in (
        await produced(url, namespace, bearer(credentials, "bob")),
        await produced(url, namespace, {}, credentials.token("bob")),
        await produced(url, namespace, {"X-Original-Principal": "alice"}, credentials.token("bob")),
        await produced(url, namespace, {}),
        await produced(url, namespace, {"X-Original-Principal": "alice"}),
        await produced(url, namespace, {"X-Pulsar-Auth-Method-Name": "tls"}, credentials.token("bob")),
    ):
        assert refused in (401, 403)
