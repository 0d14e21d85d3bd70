"""Where clients show certificates no session is resumed, and the settings of the context still hold."""

import ssl
import time
from pathlib import Path

import pytest
import trustme

from proxy.config.config import Config
from proxy.net.tls.contexts import Name, context_settings, load
from tests.support.auth.tls import HOST, PemFiles, authority, client_context

MODERN, OLD = ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2


@pytest.fixture
def files(tmp_path: Path) -> PemFiles:
    return PemFiles.write(tmp_path)


def served(files: PemFiles, name: Name = "server", /, **keys: object) -> ssl.SSLContext:
    given = {"brokerServiceURL": "pulsar://broker", "clusterName": "c", "webServicePortTls": 0} | files.server_keys
    config = Config.load(overrides={key: str(value) for key, value in (given | keys).items()})
    (settings,) = (settings for settings in context_settings(config) if settings.name == name)
    return load(settings, time.time()).context


def client(version: ssl.TLSVersion, *, tickets: bool = True, own: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = client_context(own=own)
    context.minimum_version = context.maximum_version = version
    if not tickets:
        context.options |= ssl.OP_NO_TICKET
    return context


def shaken(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Give both ends of a connection in memory, hands shaken, tickets read; raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=HOST, session=session),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    ends[1].write(b"x")
    assert ends[0].read(1) == b"x"
    return ends


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
        near, far = shaken(server, context, session)
        assert not near.session_reused
        assert far.getpeercert()
        session = near.session


@pytest.mark.parametrize(("version", "tickets"), [(MODERN, True), (OLD, True), (OLD, False)])
def test_a_client_that_is_not_asked_for_a_certificate_resumes(
    files: PemFiles, version: ssl.TLSVersion, tickets: bool
) -> None:
    server, context = served(files), client(version, tickets=tickets)
    near, _ = shaken(server, context)
    assert shaken(server, context, near.session)[0].session_reused


def test_versions_and_suites_stay_those_of_the_configuration(files: PemFiles) -> None:
    suite = "ECDHE-ECDSA-AES128-GCM-SHA256"
    server = served(files, tlsCiphers=suite, tlsTrustCertsFilePath=files.trust)
    for _ in range(2):
        used = shaken(server, client(OLD))[1].cipher()
        assert used is not None
        assert used[0] == suite
        with pytest.raises(ssl.SSLError):
            shaken(server, client(MODERN))
