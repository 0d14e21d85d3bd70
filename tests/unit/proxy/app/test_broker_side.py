"""Which targets clients may name, and when connections may go to an address that a name had until lately."""

from typing import TYPE_CHECKING, cast

import pytest

from proxy.app.broker_side import _stale_serves, _validator
from proxy.config.config import Config

if TYPE_CHECKING:
    from proxy.brokers.target import NameResolver

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
    config = Config.load(overrides={"brokerServiceURL": "pulsar://broker:6650", **keys})
    assert _stale_serves(config) is serves


class NoNames:
    """Resolves nothing."""

    async def resolve(self, host: str, port: int) -> list[str]:
        return []


@pytest.mark.parametrize(("role", "allowed"), [("gateway", False), ("sidecar", True)])
def test_clients_of_a_sidecar_only_may_name_link_local_targets(role: str, allowed: bool) -> None:
    config = Config.load(overrides={"brokerServiceURL": "pulsar://broker:6650", "proxyRole": role})
    assert _validator(config, cast("NameResolver", NoNames()), ("*",))._link_local is allowed
