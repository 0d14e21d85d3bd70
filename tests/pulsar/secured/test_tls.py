"""Real clients in three languages over TLS, with and without certificates, and TLS to a real broker; both versions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.pulsar.java_consumers import Client, Role
from tests.pulsar.own_broker import in_one_line
from tests.pulsar.secured.clients import authentication, client, exchange
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import PLUGIN, PROVIDER, SecuredProxy
from tests.support.go_build import built
from tests.support.programs import succeeded

pytestmark = pytest.mark.pulsar

NewProxy = Callable[..., SecuredProxy]
# More than a record, and than the buffers of a socket.
COUNT, BYTES = 10, 1_000_000
EXPECTED: Final = [f"{number} {len(f'{number} ') + BYTES}" for number in range(COUNT)]
SECONDS: Final = 60.0
GO: Final = Path(__file__).parent.parent / "go"
versions = pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])


class JavaExchange(Role):
    """What arrives at a client in Java of what it has sent."""

    def __init__(self, directory: Path, *words: object) -> None:
        self.arrived: list[str] = []
        super().__init__(directory, Client.NEW, "exchange", "exchange", *words)

    def look(self) -> None:
        self.arrived += map(" ".join, self.news())


def in_java(directory: Path, *words: object) -> list[str]:
    with in_one_line():
        role = JavaExchange(directory, *words)
        role.process.wait_ready(role.is_over, SECONDS)
    return role.arrived


def in_go(directory: Path, *words: object) -> list[str]:
    return succeeded([built(GO, "pulsar", "transactions"), "exchange", *words], cwd=directory).splitlines()


@versions
@pytest.mark.parametrize("shown", [True, False], ids=["certificate", "token"])
def test_clients_in_three_languages_produce_and_consume_over_tls(
    secured_proxy: NewProxy, credentials: Credentials, namespace: str, tmp_path: Path, version: str, shown: bool
) -> None:
    if shown:
        kind, parameters = (
            "tls",
            dict(zip(("tlsCertFile", "tlsKeyFile"), credentials.certificate("alice"), strict=True)),
        )
        keys = {"tlsRequireTrustedClientCertOnConnect": "true", "tlsEnabledWithBroker": "true"}
    else:
        # No client is asked for a certificate, and sessions may be resumed.
        kind, parameters = "token", {"token": credentials.token("alice")}
        keys = {"tlsTrustCertsFilePath": "", "authenticationProviders": PROVIDER + "Token"}
    url = secured_proxy(tlsProtocols=version, brokerClientTlsProtocols=version, **keys).tls_url
    with client(url, credentials, authentication(credentials, kind, "alice")) as alice:
        exchange(alice, f"persistent://{namespace}/python")
    for name, run in {"java": in_java, "go": in_go}.items():
        plugin = PLUGIN + kind.capitalize()
        topic = f"persistent://{namespace}/{name}"
        assert (
            run(tmp_path, url, topic, COUNT, BYTES, credentials.ca_file, plugin, json.dumps(parameters)) == EXPECTED
        ), name


@versions
def test_a_client_without_tls_is_joined_to_a_broker_that_has_it(
    secured_proxy: NewProxy, credentials: Credentials, namespace: str, version: str
) -> None:
    url = secured_proxy(tlsEnabledWithBroker="true", brokerClientTlsProtocols=version).url
    with client(url, credentials, authentication(credentials, "token", "alice")) as alice:
        exchange(alice, f"persistent://{namespace}/topic")
