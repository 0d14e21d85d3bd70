"""Make the TLS settings of a configuration: for the client port, for the web port, and towards brokers.

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
from proxy.net.tls.pem import CERTIFICATES, KEYS, is_encrypted, of_kind
from proxy.net.tls.revocation import load_lists, revocation_lists
from proxy.net.tls.session import TlsConfig, new_config
from proxy.net.tls.suites import BadTlsSetting, restrict, versions_and_suites

Name = Literal["server", "web", "broker_client"]
Verify = Literal["nothing", "optional", "required"]
_VERIFY: Final[tuple[Verify, ...]] = ("nothing", "optional", "required")


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
    verify: Verify
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
    """Settings of sessions, and the Unix times at which their certificate and revocation lists expire; None without.

    `https` is the same towards web services of brokers, `https_bare` without the certificate, for what is not the
    proxy's own business; None for ports.
    """

    config: TlsConfig
    expires_at: float | None
    lists_expire_at: float | None
    https: ssl.SSLContext | None = None
    https_bare: ssl.SSLContext | None = None


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
    asked: Verify = "required" if required else "optional"
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
        # A certificate is verified or not asked for; the Java proxy can accept one without verifying it.
        verify=asked if trusted and not config.tls_allow_insecure_connection else "nothing",
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
        verify="nothing" if insecure else "required",
        revoked=PemFile(
            "brokerClientCertificateRevocationListFilePath", config.broker_client_certificate_revocation_list_file_path
        ),
        check_hostname=config.tls_hostname_verification_enabled and not insecure,
    )


def load(settings: ContextSettings, now: float) -> LoadedContext:
    """Make the settings of sessions at the Unix time `now`; raises BadTlsSetting."""
    versions, suites = versions_and_suites(
        settings.protocols, settings.protocols_key, settings.ciphers, settings.ciphers_key
    )
    roots, lists, lists_expire_at = _trusted(settings, now)
    chain, key, expires_at = _own(settings)
    try:
        config = new_config(
            server_side=settings.server_side, chain=chain, key=key, roots=roots, lists=lists,
            verify=_VERIFY.index(settings.verify), check_name=settings.check_hostname, versions=versions, suites=suites,
            # A resumed session would outlive the certificate of its client.
            resumes=settings.server_side and settings.verify == "nothing",
        )  # fmt: skip
    except ValueError as error:
        raise _refused(settings, *error.args) from error
    if settings.server_side:
        return LoadedContext(config, expires_at, lists_expire_at)
    both = (_https(settings, roots, lists, versions, suites, shows=shows) for shows in (True, False))
    return LoadedContext(config, expires_at, lists_expire_at, *both)


def _refused(settings: ContextSettings, setting: str, text: str) -> BadTlsSetting:
    """Return the fault of what the session refuses, by the key of the file."""
    certificate, private_key = settings.certificate, settings.private_key
    if "KeyMismatch" in text:
        expected = f"the key of the certificate in {certificate.path!r} ({certificate.key})"
        return BadTlsSetting(private_key.key, repr(private_key.path), expected)
    if setting in ("key", "certificate"):
        expected = "an RSA key of 2,048 bits or more, or one of P-256, P-384, P-521 or Ed25519, and its certificate"
        return BadTlsSetting(private_key.key, repr(private_key.path), expected)
    file = settings.revoked if setting == "lists" else settings.trust
    return BadTlsSetting(file.key, repr(file.path), f"what a session can use: {text}")


def _own(settings: ContextSettings) -> tuple[list[bytes], bytes, float | None]:
    """Return the chain and the key of the certificate that is shown, and when it expires."""
    certificate, private_key = settings.certificate, settings.private_key
    if not settings.shows_certificate:
        return [], b"", None
    pem, secret = certificate.read(), private_key.read()
    if is_encrypted(secret):
        raise BadTlsSetting(private_key.key, repr(private_key.path), "a key that is not encrypted")
    try:
        chain = of_kind(pem, CERTIFICATES)
        expires_at = expiry(pem)
    except ValueError as error:
        raise BadTlsSetting(certificate.key, repr(certificate.path), "a PEM file with a certificate") from error
    try:
        key = next(iter(of_kind(secret, KEYS)))
    except (ValueError, StopIteration) as error:
        expected = f"a PEM file with the key of the certificate in {certificate.path!r} ({certificate.key})"
        raise BadTlsSetting(private_key.key, repr(private_key.path), expected) from error
    return chain, key, expires_at


def _trusted(settings: ContextSettings, now: float) -> tuple[list[bytes], list[bytes], float | None]:
    """Return the authorities, the revocation lists, and when the first of these expires."""
    trust, revoked = settings.trust, settings.revoked
    if settings.verify == "nothing":
        return [], [], None
    try:
        # Only towards brokers: a server without a trust file asks for no certificates.
        roots = of_kind(trust.read(), CERTIFICATES) if trust.path else _of_this_machine()
    except ValueError as error:
        if isinstance(error, BadTlsSetting):
            raise
        raise BadTlsSetting(trust.key, repr(trust.path), "a PEM file with certificates") from error
    if not roots:
        raise BadTlsSetting(trust.key, repr(trust.path), "a PEM file with certificates")
    if not revoked.path:
        return roots, [], None
    return roots, *revocation_lists(revoked.key, revoked.path, revoked.read(), now)


def _of_this_machine() -> list[bytes]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    return context.get_ca_certs(binary_form=True)


def _https(
    settings: ContextSettings,
    roots: Sequence[bytes],
    lists: Sequence[bytes],
    versions: Sequence[int],
    suites: Sequence[int],
    *,
    shows: bool,
) -> ssl.SSLContext:
    """Return the same for web services of brokers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.check_hostname
    context.verify_mode = ssl.CERT_NONE if settings.verify == "nothing" else ssl.CERT_REQUIRED
    # As in Java, any certificate of the trust file is a trust anchor, not only a self-signed certificate.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    restrict(context, versions, suites)
    try:
        if roots:
            context.load_verify_locations(cadata=b"".join(roots))
        if lists:
            load_lists(context, lists)
        if shows and settings.shows_certificate:
            context.load_cert_chain(settings.certificate.path, settings.private_key.path)
    except (ssl.SSLError, OSError) as error:
        raise BadTlsSetting(settings.trust.key, repr(settings.trust.path), f"what https can use: {error}") from error
    return context


def unreadable(settings: ContextSettings) -> Iterator[BadTlsSetting]:
    """Yield a fault for each file of a context that cannot be read: `load` stops at the first."""
    files = [settings.certificate, settings.private_key] if settings.shows_certificate else []
    if settings.verify != "nothing":
        files += [file for file in (settings.trust, settings.revoked) if file.path]
    for file in files:
        try:
            file.read()
        except BadTlsSetting as bad:
            yield bad
