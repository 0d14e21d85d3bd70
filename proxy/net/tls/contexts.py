"""Make the TLS contexts of a configuration: for the client port, for the web port, and towards brokers.

Rule: every fault names its configuration key and is found before the proxy listens. An expired certificate is a
warning: the peers decide whether to accept it. Contexts are never changed; `proxy.net.tls.files` makes new ones for new
files.
"""

import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from proxy.config.config import Config
from proxy.config.credential_parameters import PARAMETERS, shown_certificate
from proxy.core.files import read_regular
from proxy.net.tls.expiry import expiry
from proxy.net.tls.revocation import load_revocation_lists
from proxy.net.tls.suites import BadTlsSetting, restrict
from proxy.net.tls.unresumed import UnresumedContext

Name = Literal["server", "web", "broker_client"]
# A session ticket lets a client resume once without a signature of the proxy; each costs 256 bytes on the wire. Where
# clients are asked for certificates there is none.
TICKETS: Final = 1


@dataclass(frozen=True, slots=True)
class PemFile:
    """A PEM file, and the configuration key that names it."""

    key: str
    path: str

    def read(self) -> bytes:
        """Return the contents; raises BadTlsSetting."""
        if not self.path:
            raise BadTlsSetting(self.key, "nothing", "a PEM file")
        try:
            return read_regular(self.path)
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
            raise BadTlsSetting(self.key, repr(self.path), f"a PEM file that can be read: {problem}") from error


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """The settings of one context. `verify`: a certificate from `trust` is required, optional or not asked for."""

    name: Name
    certificate: PemFile
    private_key: PemFile
    trust: PemFile
    protocols: tuple[str, ...]
    protocols_key: str
    ciphers: tuple[str, ...]
    ciphers_key: str
    verify: ssl.VerifyMode
    revoked: PemFile
    check_hostname: bool = False

    @property
    def shows_certificate(self) -> bool:
        """Whether the context has a certificate of its own."""
        return self.server_side or bool(self.certificate.path or self.private_key.path)

    @property
    def server_side(self) -> bool:
        """Return whether the context is for accepted connections."""
        return self.name != "broker_client"

    @property
    def files(self) -> tuple[PemFile, ...]:
        """Return the files that the configuration names."""
        return tuple(file for file in (self.certificate, self.private_key, self.trust, self.revoked) if file.path)


@dataclass(frozen=True, slots=True)
class LoadedContext:
    """A context, and the Unix times at which its certificate and its revocation lists expire; None without them.

    `without_certificate` is the same towards brokers for what is not the proxy's own business.
    """

    context: ssl.SSLContext
    expires_at: float | None
    lists_expire_at: float | None
    without_certificate: ssl.SSLContext


def context_settings(config: Config) -> tuple[ContextSettings, ...]:
    """Return the settings of each context that the configuration needs; raises BadTlsSetting."""
    found = []
    if config.service_port_tls is not None:
        found.append(_server(config, "server", config.tls_protocols, config.tls_ciphers))
    if config.web_service_port_tls is not None:
        protocols = config.web_service_tls_protocols or config.tls_protocols
        found.append(_server(config, "web", protocols, config.web_service_tls_ciphers or config.tls_ciphers))
    if config.tls_enabled_with_broker:
        found.append(_broker_client(config))
    return tuple(found)


def _server(config: Config, name: Name, protocols: Sequence[str], ciphers: Sequence[str]) -> ContextSettings:
    trusted, required = config.tls_trust_certs_file_path, config.tls_require_trusted_client_cert_on_connect
    if required and config.tls_allow_insecure_connection:
        expected = "false, or tlsAllowInsecureConnection=false: certificates that nobody checks cannot be demanded"
        raise BadTlsSetting("tlsRequireTrustedClientCertOnConnect", "true", expected)
    if required and not trusted:
        expected = "a PEM file, which tlsRequireTrustedClientCertOnConnect needs"
        raise BadTlsSetting("tlsTrustCertsFilePath", "nothing", expected)
    asked = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    revoked = PemFile("tlsCertificateRevocationListFilePath", config.tls_certificate_revocation_list_file_path)
    if revoked.path and not trusted:
        raise BadTlsSetting("tlsTrustCertsFilePath", "nothing", f"a PEM file, which {revoked.key} needs")
    web = name == "web"
    return ContextSettings(
        name=name,
        certificate=PemFile("tlsCertificateFilePath", config.tls_certificate_file_path),
        private_key=PemFile("tlsKeyFilePath", config.tls_key_file_path),
        trust=PemFile("tlsTrustCertsFilePath", trusted),
        protocols=tuple(protocols),
        protocols_key="webServiceTlsProtocols" if web and config.web_service_tls_protocols else "tlsProtocols",
        ciphers=tuple(ciphers),
        ciphers_key="webServiceTlsCiphers" if web and config.web_service_tls_ciphers else "tlsCiphers",
        # OpenSSL verifies a certificate or does not ask for it; the Java proxy can accept one without verifying it.
        verify=asked if trusted and not config.tls_allow_insecure_connection else ssl.CERT_NONE,
        revoked=revoked,
    )


def _own_files(config: Config) -> tuple[PemFile, PemFile]:
    """Return the files of the proxy's own certificate; as in the Java client the authentication plugin's come first."""
    shown = shown_certificate(
        config.broker_client_authentication_plugin, config.broker_client_authentication_parameters
    )
    if shown is not None:
        return PemFile(PARAMETERS, shown.certificate), PemFile(PARAMETERS, shown.private_key)
    return (
        PemFile("brokerClientCertificateFilePath", config.broker_client_certificate_file_path),
        PemFile("brokerClientKeyFilePath", config.broker_client_key_file_path),
    )


def _broker_client(config: Config) -> ContextSettings:
    insecure = config.tls_allow_insecure_connection
    certificate, private_key = _own_files(config)
    return ContextSettings(
        name="broker_client",
        certificate=certificate,
        private_key=private_key,
        trust=PemFile("brokerClientTrustCertsFilePath", config.broker_client_trust_certs_file_path),
        protocols=tuple(config.broker_client_tls_protocols),
        protocols_key="brokerClientTlsProtocols",
        ciphers=tuple(config.broker_client_tls_ciphers),
        ciphers_key="brokerClientTlsCiphers",
        verify=ssl.CERT_NONE if insecure else ssl.CERT_REQUIRED,
        revoked=PemFile(
            "brokerClientCertificateRevocationListFilePath", config.broker_client_certificate_revocation_list_file_path
        ),
        check_hostname=config.tls_hostname_verification_enabled and not insecure,
    )


def load(settings: ContextSettings, now: float) -> LoadedContext:
    """Make the context at the Unix time `now`; raises BadTlsSetting."""
    context, lists_expire_at = _without_certificate(settings, now)
    if not settings.shows_certificate:
        return LoadedContext(context, None, lists_expire_at, context)
    bare = context if settings.server_side else _without_certificate(settings, now)[0]
    certificate = settings.certificate
    pem = certificate.read()
    settings.private_key.read()
    _load_certificate(context, settings)
    return LoadedContext(context, _expiry(pem, certificate), lists_expire_at, bare)


def _without_certificate(settings: ContextSettings, now: float) -> tuple[ssl.SSLContext, float | None]:
    """Return the context without a certificate of its own, and when its revocation lists expire."""
    context = _blank(settings)
    context.check_hostname = settings.check_hostname
    context.verify_mode = settings.verify
    # As in Java, any certificate of the trust file is a trust anchor, not only a self-signed certificate.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    restrict(context, settings.protocols, settings.protocols_key, settings.ciphers, settings.ciphers_key)
    lists_expire_at = None
    if settings.verify is not ssl.CERT_NONE:
        _load_trust(context, settings)
        if settings.revoked.path:
            pem = settings.revoked.read()
            lists_expire_at = load_revocation_lists(context, settings.revoked.key, settings.revoked.path, pem, now)
    return context, lists_expire_at


def _blank(settings: ContextSettings) -> ssl.SSLContext:
    if not settings.server_side:
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.verify is ssl.CERT_NONE:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = TICKETS
        return context
    # A resumed session would outlive the certificate of its client.
    context = UnresumedContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    return context


def unreadable(settings: ContextSettings) -> Iterator[BadTlsSetting]:
    """Yield a fault for each file of a context that cannot be read: `load` stops at the first."""
    files = [settings.certificate, settings.private_key] if settings.shows_certificate else []
    if settings.verify is not ssl.CERT_NONE:
        files += [file for file in (settings.trust, settings.revoked) if file.path]
    for file in files:
        try:
            file.read()
        except BadTlsSetting as bad:
            yield bad


def _load_trust(context: ssl.SSLContext, settings: ContextSettings) -> None:
    trust = settings.trust
    if not trust.path:
        # Only towards brokers: a server without a trust file asks for no certificates.
        context.set_default_verify_paths()
        return
    trust.read()
    try:
        context.load_verify_locations(trust.path)
    except (ssl.SSLError, OSError) as error:
        raise BadTlsSetting(trust.key, repr(trust.path), "a PEM file with certificates") from error


def _load_certificate(context: ssl.SSLContext, settings: ContextSettings) -> None:
    certificate, private_key = settings.certificate, settings.private_key
    try:
        context.load_cert_chain(certificate.path, private_key.path, _no_password)
    except _Encrypted as error:
        raise BadTlsSetting(private_key.key, repr(private_key.path), "a key that is not encrypted") from error
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            expected = f"the key of the certificate in {certificate.path!r} ({certificate.key})"
            raise BadTlsSetting(private_key.key, repr(private_key.path), expected) from error
        expected = f"a PEM file with a certificate, and its key in {private_key.path!r} ({private_key.key})"
        raise BadTlsSetting(certificate.key, repr(certificate.path), expected) from error
    except OSError as error:
        raise BadTlsSetting(certificate.key, repr(certificate.path), "a PEM file that can be read") from error


class _Encrypted(Exception):
    """A private key needs a password, which OpenSSL would ask for on the terminal."""


def _no_password() -> str:
    raise _Encrypted


def _expiry(pem: bytes, certificate: PemFile) -> float:
    try:
        return expiry(pem)
    except ValueError as error:
        raise BadTlsSetting(certificate.key, repr(certificate.path), "a PEM file with a certificate") from error
