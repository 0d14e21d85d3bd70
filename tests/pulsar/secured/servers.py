"""Own the configuration of the secured broker and of the proxies before it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.pulsar.process import ChildProcess
from tests.pulsar.proxy_process import run_proxy
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.standalone import Broker, Kind
from tests.support.sockets.ports import free_ports

PROVIDER: Final = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
PLUGIN: Final = "org.apache.pulsar.client.impl.auth.Authentication"
PROVIDERS: Final = ",".join(PROVIDER + kind for kind in ("Token", "Tls", "Basic"))


@dataclass(frozen=True, slots=True)
class SecuredBroker(Broker):
    """Say where the secured broker listens for TLS, too."""

    tls_port: int
    web_tls_port: int

    @property
    def tls_url(self) -> str:
        return f"pulsar+ssl://127.0.0.1:{self.tls_port}"


@dataclass(frozen=True, slots=True)
class SecuredProxy:
    """Say where a proxy listens, with and without TLS."""

    url: str
    tls_url: str
    web_url: str
    process: ChildProcess


def _authentication(credentials: Credentials, role: str) -> dict[str, str]:
    return {
        "authenticationEnabled": "true",
        "authenticationProviders": PROVIDERS,
        "tokenPublicKey": f"file://{credentials.public_key_file}",
        "basicAuthConf": f"file://{credentials.password_file}",
        "brokerClientAuthenticationPlugin": f"{PLUGIN}Token",
        "brokerClientAuthenticationParameters": f"token:{credentials.token(role)}",
        "authenticationRefreshCheckSeconds": "1",
    }


def _tls(credentials: Credentials, name: str) -> dict[str, str]:
    certificate, key = credentials.certificate(name)
    return {
        "tlsCertificateFilePath": certificate,
        "tlsKeyFilePath": key,
        "tlsTrustCertsFilePath": str(credentials.ca_file),
        "tlsCertRefreshCheckDurationSec": "1",
    }


def secured_kind(release: Kind, credentials: Credentials, tls_port: int, web_tls_port: int) -> Kind:
    """Describe the secured broker: all three kinds of credentials, authorization, and `proxy` as the proxy's role.

    It has the keys of its release, too.
    """
    keys = {
        **_authentication(credentials, "admin"),
        **_tls(credentials, "broker"),
        "brokerServicePortTls": str(tls_port),
        "webServicePortTls": str(web_tls_port),
        "authorizationEnabled": "true",
        "superUserRoles": "admin,proxy",
        "proxyRoles": "proxy",
        # As in the standalone.conf that Pulsar ships.
        "webSocketServiceEnabled": "true",
        **release.keys,
    }
    return replace(release, keys=keys, admin_token=credentials.token("admin"), files=credentials.directory)


def proxy_keys(credentials: Credentials, broker: SecuredBroker) -> dict[str, str]:
    """Give the keys that the proxy before the secured broker has unless a test says otherwise."""
    return {
        **_authentication(credentials, "proxy"),
        **_tls(credentials, "server"),
        "brokerServiceURLTLS": broker.tls_url,
        "brokerWebServiceURLTLS": f"https://127.0.0.1:{broker.web_tls_port}",
        "brokerClientTrustCertsFilePath": str(credentials.ca_file),
    }


@contextmanager
def run_secured_proxy(
    directory: Path, broker: SecuredBroker, credentials: Credentials, overrides: Mapping[str, str]
) -> Iterator[SecuredProxy]:
    """Run a proxy before the secured broker until the block ends; raises ProcessFailedError."""
    (tls_port,) = free_ports(1)
    keys = {**proxy_keys(credentials, broker), "servicePortTls": str(tls_port), **overrides}
    tls_url = f"pulsar+ssl://127.0.0.1:{tls_port}"
    with run_proxy(directory, broker, keys) as proxy:
        yield SecuredProxy(proxy.service_url, tls_url, proxy.web_url, proxy.process)
