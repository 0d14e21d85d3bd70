"""Where clients show certificates no session is resumed: each connection shows its own, and it is checked."""

import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme

from proxy.config.config import Config
from proxy.net.tls.contexts import Name, context_settings, load
from tests.support.auth.tls import PemFiles, authority, client_context, hands_shaken

if TYPE_CHECKING:
    from proxy.core.native import TlsConfig

MODERN, OLD = ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2


@pytest.fixture
def files(tmp_path: Path) -> PemFiles:
    return PemFiles.write(tmp_path)


def served(files: PemFiles, name: Name = "server", /, **keys: object) -> "TlsConfig":
    given = {"brokerServiceURL": "pulsar://broker", "clusterName": "c", "webServicePortTls": 0} | files.server_keys
    config = Config.load(overrides={key: str(value) for key, value in (given | keys).items()})
    (settings,) = (settings for settings in context_settings(config) if settings.name == name)
    return load(settings, time.time()).config


def client(version: ssl.TLSVersion, *, tickets: bool = True, own: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = client_context(own=own)
    context.minimum_version = context.maximum_version = version
    if not tickets:
        context.options |= ssl.OP_NO_TICKET
    return context


@pytest.mark.threat("session-outlives-certificate")
@pytest.mark.parametrize("name", ["server", "web"])
@pytest.mark.parametrize("demand", ["true", "false"])
@pytest.mark.parametrize(("version", "tickets"), [(MODERN, True), (OLD, True), (OLD, False)])
def test_a_client_that_shows_a_certificate_does_so_at_each_connect(
    files: PemFiles, name: Name, demand: str, version: ssl.TLSVersion, tickets: bool
) -> None:
    server = served(files, name, tlsTrustCertsFilePath=files.trust, tlsRequireTrustedClientCertOnConnect=demand)
    context = client(version, tickets=tickets, own=authority().issue_cert("somebody"))
    session = None
    for _ in range(4):
        ours, theirs = hands_shaken(server, context, session=session)
        assert not theirs.session_reused
        assert ours.peer_certificates()
        session = theirs.session


@pytest.mark.parametrize(("version", "tickets"), [(MODERN, True), (OLD, True), (OLD, False)])
def test_a_client_that_is_not_asked_for_a_certificate_resumes(
    files: PemFiles, version: ssl.TLSVersion, tickets: bool
) -> None:
    server, context = served(files), client(version, tickets=tickets)
    _, theirs = hands_shaken(server, context)
    assert hands_shaken(server, context, session=theirs.session)[1].session_reused
