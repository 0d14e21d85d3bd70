"""Which targets clients may name, and when connections may go to an address that a name had until lately."""

import asyncio

import pytest

from proxy.brokers.side import DialSettings, _stale_serves, _validator
from proxy.brokers.target import BrokerAddress
from proxy.core.errors import TargetRefused
from tests.support.configured import configured

TOKEN = {"brokerClientAuthenticationPlugin": "token", "brokerClientAuthenticationParameters": "token:x"}
TLS = {"tlsEnabledWithBroker": "true", "brokerServiceURLTLS": "pulsar+ssl://broker:6651"}
FORWARDS = {"authenticationEnabled": "true", "authenticationProviders": "token", "tokenSecretKey": "file:///key"}
FORWARDS_NOTHING = {**FORWARDS, "forwardAuthorizationCredentials": "false"}


@pytest.mark.parametrize(
    ("keys", "serves"),
    [
        ({}, True),
        (TOKEN, False),
        (FORWARDS, False),
        (FORWARDS_NOTHING, True),
        # Nothing is forwarded where nobody is authenticated.
        ({"forwardAuthorizationCredentials": "true"}, True),
        (FORWARDS | TLS, True),
        (TOKEN | TLS, True),
        (TOKEN | TLS | {"tlsHostnameVerificationEnabled": "false"}, False),
        (TOKEN | TLS | {"tlsAllowInsecureConnection": "true"}, False),
        (TLS | {"tlsAllowInsecureConnection": "true"}, True),
    ],
)
def test_secret_credentials_need_a_broker_that_proves_its_name(keys: dict[str, str], serves: bool) -> None:
    assert _stale_serves(configured(**keys)) is serves


class OneName:
    """Resolves each name to a link-local address."""

    async def resolve(self, host: str, port: int, *, network: str = "") -> list[str]:
        return ["169.254.1.2"]


@pytest.mark.parametrize(("role", "allowed"), [("gateway", False), ("sidecar", True)])
def test_clients_of_a_sidecar_only_may_name_link_local_targets(role: str, allowed: bool) -> None:
    keys = {"proxyRole": role, "brokerProxyAllowedHostNames": "*", "brokerProxyAllowedIPAddresses": "*"}
    target = _validator(configured(**keys), OneName(), ("*",)).resolve(BrokerAddress("metadata", 80))
    if allowed:
        assert asyncio.run(target) == ["169.254.1.2"]
    else:
        with pytest.raises(TargetRefused, match="link-local"):
            asyncio.run(target)


@pytest.mark.parametrize(("sent", "received"), [(0, 1 << 20), (65_536, 262_144), (1 << 30, 1 << 30)])
def test_receive_buffers_are_of_a_size_that_a_socket_takes(sent: int, received: int) -> None:
    assert DialSettings.of(configured(clientSocketSendBufferBytes=str(sent))).receive_bytes == received
