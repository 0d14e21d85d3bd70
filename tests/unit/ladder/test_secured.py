"""TLS in the ladder: its certificates hold, and each server is told what the scenario says, in words it knows."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from benchmarks.ladder.certificates import Certificates, make_certificates
from benchmarks.ladder.measure import Stage
from benchmarks.ladder.processes import Child
from benchmarks.ladder.rows import ROWS
from benchmarks.ladder.secured import Secured
from benchmarks.ladder.servers import Place, Running, _haproxy_lines, _proxy_conf
from proxy.config.keys_table import ConfigKeys


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path / "certificates")


def running(port: int, tls_port: int) -> Running:
    return Running(Child.__new__(Child), port, 0.0, tls_port=tls_port)


def shake(client: ssl.SSLContext, shown: Certificates, asked: str) -> None:
    """Let a client and a server shake hands in memory; `SSLError` if they do not get on."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(shown.certificate, shown.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=asked),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(3):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_the_client_trusts_the_server_by_address_and_by_name(certificates: Certificates, name: str) -> None:
    shake(Secured(certificates).context(), certificates, name)


def test_certificates_of_another_run_are_not_trusted(certificates: Certificates, tmp_path: Path) -> None:
    other = make_certificates(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(Secured(certificates).context(), other, "127.0.0.1")


def test_certificates_are_made_anew_for_a_day_and_keys_are_private(certificates: Certificates) -> None:
    before = certificates.key.read_bytes()
    again = make_certificates(certificates.key.parent)
    shown = x509.load_pem_x509_certificate(again.certificate.read_bytes())
    assert again == certificates
    assert again.key.read_bytes() != before
    assert (shown.not_valid_after_utc - datetime.now(UTC)).days <= 1
    assert {path.stat().st_mode & 0o777 for path in (again.key, again.combined)} == {0o600}


def place(secured: Secured | None) -> Place:
    return Place(running(port=1001, tls_port=1002), port=2001, web_port=2003, tls_port=2002, secured=secured)


def keys(secured: Secured | None) -> dict[str, str]:
    pairs = [line.partition("=") for line in _proxy_conf(place(secured))]
    return {key: value for key, _, value in pairs}


@pytest.mark.parametrize("towards_broker", [False, True])
def test_what_the_proxies_are_told_are_keys_that_ours_knows(certificates: Certificates, towards_broker: bool) -> None:
    known = {key.name for key in ConfigKeys.keys()}  # noqa: SIM118  # not a dict
    assert keys(Secured(certificates, towards_broker)).keys() <= known


def test_the_broker_hears_tls_only_if_that_was_asked_for(certificates: Certificates) -> None:
    assert "tlsEnabledWithBroker" not in keys(Secured(certificates))
    both = keys(Secured(certificates, towards_broker=True))
    assert (both["tlsEnabledWithBroker"], both["brokerServiceURLTLS"]) == ("true", "pulsar+ssl://127.0.0.1:1002")


def test_without_tls_no_server_is_told_of_it() -> None:
    assert not [key for key in keys(None) if "tls" in key.lower()]
    assert _haproxy_lines(ROWS["07"], place(None))[-2:] == [
        "  bind 127.0.0.1:2001 backlog 4096",
        "  server broker 127.0.0.1:1001",
    ]


@pytest.mark.parametrize(("towards_broker", "broker_port"), [(False, 1001), (True, 1002)])
def test_haproxy_listens_under_tls_and_connects_as_asked(
    certificates: Certificates, towards_broker: bool, broker_port: int
) -> None:
    bind, server = _haproxy_lines(ROWS["07"], place(Secured(certificates, towards_broker)))[-2:]
    assert bind.startswith("  bind 127.0.0.1:2002 ")
    assert bind.endswith(f" ssl crt {certificates.combined}")
    assert server.startswith(f"  server broker 127.0.0.1:{broker_port}")
    assert ("ssl verify required" in server) == towards_broker


@pytest.mark.parametrize(("towards_broker", "relay_port"), [(False, 1001), (True, 1002)])
def test_relays_lead_to_the_brokers_port_that_speaks_what_the_proxy_speaks(
    certificates: Certificates, towards_broker: bool, relay_port: int
) -> None:
    stage = Stage(running(1001, 1002), None, Secured(certificates, towards_broker))
    assert stage.relay_port() == relay_port
    assert stage.target(running(2001, 2002)) == ["--address", "127.0.0.1:2002", "--trust", str(certificates.trust)]


def test_without_tls_the_plain_port_is_loaded() -> None:
    stage = Stage(running(1001, 0), None)
    assert (stage.relay_port(), stage.target(running(2001, 0))) == (1001, ["--address", "127.0.0.1:2001"])
