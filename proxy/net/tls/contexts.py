"""Make the TLS settings of a configuration: for the client port, for the web port, and towards brokers.

Rule: every fault names its configuration key and is found before the proxy listens. An expired certificate is a
warning: the peers decide whether to accept it. Contexts are never changed; `proxy.net.tls.files` makes new ones for new
files.
"""

import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from proxy.config.config import Config
from proxy.config.credential_parameters import PARAMETERS, shown_certificate
from proxy.config.keys.key import Key
from proxy.net.tls.chains import in_order
from proxy.net.tls.expiry import has_expired, has_known_key, rsa_bits, validity
from proxy.net.tls.pem import PemFile, TlsFile, block, key_block, memory_file
from proxy.net.tls.revocation import load_lists, revocation_lists
from proxy.net.tls.session import new_config
from proxy.net.tls.suites import BadTlsSetting, fits, restrict, versions_and_suites

if TYPE_CHECKING:
    from proxy.core.native import TlsConfig
    from proxy.net.tls.stores import StoreFile

Source: TypeAlias = "PemFile | StoreFile"
Name = Literal["server", "web", "broker_client"]
Verify = Literal["nothing", "optional", "required"]
# What rustls takes.
LEAST_RSA_BITS: Final = 2048
MOST_RSA_BITS: Final = 8192
_VERIFY: Final[tuple[Verify, ...]] = ("nothing", "optional", "required")


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """The settings of one context. `verify`: a certificate from `trust` is required, optional or not asked for."""

    name: Name
    certificate: Source
    private_key: Source
    trust: Source
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
    def files(self) -> tuple[TlsFile, ...]:
        """Return the files that the configuration names."""
        return tuple(file for file in (self.certificate, self.private_key, self.trust, self.revoked) if file.path)


@dataclass(frozen=True, slots=True)
class LoadedContext:
    """Settings of sessions, and the Unix times at which their certificate and revocation lists expire; None without.

    `doubts` are warnings. `https` is the same towards web services of brokers, `https_bare` without the
    certificate, for what is not the proxy's own business; None for ports.
    """

    config: "TlsConfig"
    expires_at: float | None
    lists_expire_at: float | None
    doubts: tuple[str, ...]
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
    certificate: Source = PemFile("tlsCertificateFilePath", config.tls_certificate_file_path)
    private_key: Source = PemFile("tlsKeyFilePath", config.tls_key_file_path)
    trust: Source = PemFile("tlsTrustCertsFilePath", config.tls_trust_certs_file_path)
    if config.tls_enabled_with_key_store:
        certificate = private_key = _store(config, Config.tls_key_store)
        trust = _store(config, Config.tls_trust_store)
    required = config.tls_require_trusted_client_cert_on_connect
    if required and config.tls_allow_insecure_connection:
        expected = "false, or tlsAllowInsecureConnection=false: certificates that nobody checks cannot be demanded"
        raise BadTlsSetting("tlsRequireTrustedClientCertOnConnect", "true", expected)
    if required and not trust.path:
        expected = f"{trust.expected}, which tlsRequireTrustedClientCertOnConnect needs"
        raise BadTlsSetting(trust.key, "nothing", expected)
    asked: Verify = "required" if required else "optional"
    revoked = PemFile("tlsCertificateRevocationListFilePath", config.tls_certificate_revocation_list_file_path)
    if revoked.path and not trust.path:
        raise BadTlsSetting(trust.key, "nothing", f"{trust.expected}, which {revoked.key} needs")
    web = name == "web"
    return ContextSettings(
        name=name,
        certificate=certificate,
        private_key=private_key,
        trust=trust,
        protocols=tuple(protocols),
        protocols_key="webServiceTlsProtocols" if web and config.web_service_tls_protocols else "tlsProtocols",
        ciphers=tuple(ciphers),
        ciphers_key="webServiceTlsCiphers" if web and config.web_service_tls_ciphers else "tlsCiphers",
        # A certificate is verified or not asked for; the Java proxy can accept one without verifying it.
        verify=asked if trust.path and not config.tls_allow_insecure_connection else "nothing",
        revoked=revoked,
    )


def _store(config: Config, key: Key[str]) -> "StoreFile":
    from proxy.net.tls.stores import StoreFile

    kind, password = (getattr(config, f"{key.attribute}_{part}") for part in ("type", "password"))
    return StoreFile(key.name, config.value(key), kind, password)


def _own_files(config: Config) -> tuple[Source, Source]:
    """Return the files of the proxy's own certificate; as in the Java client the authentication plugin's come first."""
    shown = shown_certificate(
        config.broker_client_authentication_plugin, config.broker_client_authentication_parameters
    )
    if shown is not None:
        return PemFile(PARAMETERS, shown.certificate), PemFile(PARAMETERS, shown.private_key)
    if config.broker_client_tls_enabled_with_key_store:
        store = _store(config, Config.broker_client_tls_key_store)
        return store, store
    return (
        PemFile("brokerClientCertificateFilePath", config.broker_client_certificate_file_path),
        PemFile("brokerClientKeyFilePath", config.broker_client_key_file_path),
    )


def _broker_client(config: Config) -> ContextSettings:
    insecure = config.tls_allow_insecure_connection
    certificate, private_key = _own_files(config)
    trust: Source = PemFile("brokerClientTrustCertsFilePath", config.broker_client_trust_certs_file_path)
    if config.broker_client_tls_enabled_with_key_store:
        trust = _store(config, Config.broker_client_tls_trust_store)
    return ContextSettings(
        name="broker_client",
        certificate=certificate,
        private_key=private_key,
        trust=trust,
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
    chain, key, expires_at, doubts = _own(settings, now)
    if chain and settings.server_side:
        _check_suites(settings, chain[0], versions, suites)
    doubts += _doubtful(settings.trust, roots, now)
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
        return LoadedContext(config, expires_at, lists_expire_at, doubts)
    own = key_block(key) + b"".join(block(b"CERTIFICATE", each) for each in chain) if chain else b""
    both = (_https(settings, roots, lists, versions, suites, shown) for shown in (own, b""))
    return LoadedContext(config, expires_at, lists_expire_at, doubts, *both)


def _refused(settings: ContextSettings, setting: str, text: str) -> BadTlsSetting:
    """Return the fault of what the session refuses, by the key of the file."""
    certificate, private_key = settings.certificate, settings.private_key
    if "KeyMismatch" in text:
        return private_key.fault(f"the key of the certificate in {certificate.path!r} ({certificate.key})")
    if "UnsupportedCertVersion" in text:
        return certificate.fault("a certificate of version 3 with a subjectAltName (`openssl x509 -req -extfile`)")
    if "peer certificate" in text:
        return certificate.fault(f"a certificate that tls can show: {text}")
    if setting in ("key", "certificate"):
        return private_key.fault(
            "an RSA key of 2,048 bits or more, or one of P-256, P-384, P-521 or Ed25519, and its certificate"
        )
    file = settings.revoked if setting == "lists" else settings.trust
    return file.fault(f"what a session can use: {text}")


def _check_suites(settings: ContextSettings, own: bytes, versions: Sequence[int], suites: Sequence[int]) -> None:
    """Raise BadTlsSetting if the certificate fits none of the suites: no client could connect."""
    kind = "RSA" if rsa_bits(own) else "ECDSA"
    if suites and not any(fits(suite, kind, versions) for suite in suites):
        file = settings.certificate
        expected = f"a suite of {kind}, as the certificate in {file.path!r} ({file.key})"
        raise BadTlsSetting(settings.ciphers_key, ",".join(settings.ciphers), expected)


def _doubtful(trust: Source, roots: Sequence[bytes], now: float) -> tuple[str, ...]:
    """Return warnings of certificates in the trust file that count for nothing, or may do so."""
    if not trust.path:
        return ()
    told = (
        (
            any(bits and not LEAST_RSA_BITS <= bits <= MOST_RSA_BITS for bits in map(rsa_bits, roots)),
            "an RSA key of less than 2,048 bits or more than 8,192, which proves nothing here",
        ),
        (
            not all(map(has_known_key, roots)),
            "a key other than RSA, P-256, P-384, P-521 and Ed25519, which proves nothing here",
        ),
        (any(has_expired(each, now) for each in roots), "a certificate that has expired"),
    )
    return tuple(f"{trust.key}: {trust.path!r} has {what}" for is_so, what in told if is_so)


def _own(settings: ContextSettings, now: float) -> tuple[list[bytes], bytes, float | None, tuple[str, ...]]:
    """Return the chain and the key of the certificate that is shown, when it expires, and what is odd about them."""
    if not settings.shows_certificate:
        return [], b"", None, ()
    file = settings.private_key
    found, (key, keys) = settings.certificate.certificates(), file.private_key()
    try:
        chain = in_order(found, key)
        begins_at, expires_at = validity(chain[0])
    except ValueError as error:
        raise settings.certificate.fault(f"{settings.certificate.expected} with certificates: {error}") from error
    told = (
        (keys > 1, f"{file.key}: {file.path!r} has {keys} keys, the first counts"),
        (begins_at > now, f"the certificate of {settings.name} is not valid yet"),
    )
    return chain, key, expires_at, tuple(what for is_so, what in told if is_so)


def _trusted(settings: ContextSettings, now: float) -> tuple[list[bytes], list[bytes], float | None]:
    """Return the authorities, the revocation lists, and when the first of these expires."""
    trust, revoked = settings.trust, settings.revoked
    if settings.verify == "nothing":
        return [], [], None
    # Only towards brokers: a server without a trust file asks for no certificates.
    roots = trust.authorities() if trust.path else _of_this_machine()
    if not revoked.path:
        return roots, [], None
    return roots, *revocation_lists(revoked.key, revoked.path, revoked.read(), roots, now)


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
    own: bytes,
) -> ssl.SSLContext:
    """Return the same for web services of brokers, which are shown the certificate of `own`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.check_hostname
    context.verify_mode = ssl.CERT_NONE if settings.verify == "nothing" else ssl.CERT_REQUIRED
    # As in Java, any certificate of the trust file is a trust anchor, not only a self-signed certificate.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    restrict(context, versions, suites)
    file: TlsFile = settings.trust
    try:
        if roots:
            context.load_verify_locations(cadata=b"".join(roots))
        if lists:
            load_lists(context, lists)
        if own:
            file = settings.certificate
            with memory_file(own) as path:
                context.load_cert_chain(path)
    except (ssl.SSLError, OSError) as error:
        raise file.fault(f"what https can use: {error}") from error
    return context


def unreadable(settings: ContextSettings) -> Iterator[BadTlsSetting]:
    """Yield a fault for each file of a context that cannot be read: `load` stops at the first."""
    files: list[TlsFile] = [settings.certificate, settings.private_key] if settings.shows_certificate else []
    if settings.verify != "nothing":
        files += [file for file in (settings.trust, settings.revoked) if file.path]
    for file in files:
        try:
            file.read()
        except BadTlsSetting as bad:
            yield bad
