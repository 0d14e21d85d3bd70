"""When connections to brokers may go to an address that a name had until lately."""

import pytest

from proxy.app.broker_side import _stale_serves
from proxy.config.config import Config

TOKEN = {"brokerClientAuthenticationPlugin": "token", "brokerClientAuthenticationParameters": "token:x"}
TLS = {"tlsEnabledWithBroker": "true", "brokerServiceURLTLS": "pulsar+ssl://broker:6651"}
FORWARD = {"authenticationEnabled": "true", "forwardAuthorizationCredentials": "true"}


@pytest.mark.parametrize(
    ("keys", "serves"),
    [
        ({}, True),
        (TOKEN, False),
        (FORWARD, False),
        (TOKEN | TLS, True),
        (TOKEN | TLS | {"tlsHostnameVerificationEnabled": "false"}, False),
        (TOKEN | TLS | {"tlsAllowInsecureConnection": "true"}, False),
        (TLS | {"tlsAllowInsecureConnection": "true"}, True),
    ],
)
def test_secret_credentials_need_a_broker_that_proves_its_name(keys: dict[str, str], serves: bool) -> None:
    config = Config.load(overrides={"brokerServiceURL": "pulsar://broker:6650", **keys})
    assert _stale_serves(config) is serves
