"""TLS towards clients and towards brokers."""

from proxy.config.keys.key import Key, boolean, text, whole, words
from proxy.config.keys.units import DAY_SECONDS, SECONDS

TLS = "TLS"


class TlsKeys:
    """TLS towards clients and towards brokers."""

    tls_certificate_file_path = Key(
        "tlsCertificateFilePath", "", text(), since="pulsar", section=TLS,
        doc="PEM file with this proxy's certificate and those above it, for servicePortTls and webServicePortTls.",
    )  # fmt: skip
    tls_key_file_path = Key(
        "tlsKeyFilePath", "", text(), since="pulsar", section=TLS, doc="PEM file with the key of that certificate.",
    )  # fmt: skip
    tls_trust_certs_file_path = Key(
        "tlsTrustCertsFilePath", "", text(), since="pulsar", section=TLS,
        doc="PEM file with the authorities that certificates of clients must come from. Empty: clients show none.",
    )  # fmt: skip
    tls_require_trusted_client_cert_on_connect = Key(
        "tlsRequireTrustedClientCertOnConnect", False, boolean(), since="pulsar", section=TLS,
        doc="Refuse clients without a certificate from tlsTrustCertsFilePath.",
        less="together with tlsAllowInsecureConnection, which is refused: what nobody checks proves nothing",
    )  # fmt: skip
    tls_protocols = Key(
        "tlsProtocols", (), words(), since="pulsar", section=TLS,
        doc="TLS versions on client ports. Empty: TLSv1.3 and TLSv1.2.",
    )  # fmt: skip
    tls_ciphers = Key(
        "tlsCiphers", (), words(), since="pulsar", section=TLS,
        doc="Cipher suites on client ports, by their standard names or OpenSSL's. Empty: OpenSSL's choice.",
    )  # fmt: skip
    web_service_tls_protocols = Key(
        "webServiceTlsProtocols", (), words(), since="pulsar", section=TLS,
        doc="TLS versions of webServicePortTls. Empty: those of tlsProtocols.",
    )  # fmt: skip
    web_service_tls_ciphers = Key(
        "webServiceTlsCiphers", (), words(), since="pulsar", section=TLS,
        doc="Cipher suites of webServicePortTls. Empty: those of tlsCiphers.",
    )  # fmt: skip
    tls_cert_refresh_check_duration_sec = Key(
        "tlsCertRefreshCheckDurationSec", 300, whole(0, DAY_SECONDS), since="pulsar", section=TLS, unit=SECONDS,
        doc="Time between looks for changed files of certificates and keys. 0: only at SIGHUP.",
        better="the metric says when certificates expire; a broken new file keeps the old one in force",
    )  # fmt: skip
    max_concurrent_tls_handshakes = Key(
        "maxConcurrentTlsHandshakes", 256, whole(1, 65_536), section=TLS, unit="handshakes",
        doc="TLS handshakes of clients at once; others wait, unread, within handshakeTimeoutMillis.",
    )  # fmt: skip
    tls_enabled_with_broker = Key(
        "tlsEnabledWithBroker", False, boolean(), since="pulsar", section=TLS,
        doc="Speak TLS to brokers: brokerServiceURLTLS, brokerWebServiceURLTLS and the targets of clients.",
    )  # fmt: skip
    tls_hostname_verification_enabled = Key(
        "tlsHostnameVerificationEnabled", True, boolean(), since="pulsar", section=TLS,
        doc="Demand that a broker's certificate names the host that was connected to.",
        better="on by default; the Java proxy's default is off",
    )  # fmt: skip
    tls_allow_insecure_connection = Key(
        "tlsAllowInsecureConnection", False, boolean(), since="pulsar", section=TLS,
        doc="Take certificates of brokers from any authority and for any host, ask clients for none. For tests only.",
        less="certificates of clients that nobody has checked: they are not asked for, so provider tls refuses them",
    )  # fmt: skip
    broker_client_trust_certs_file_path = Key(
        "brokerClientTrustCertsFilePath", "", text(), since="pulsar", section=TLS,
        doc="PEM file with the authorities that certificates of brokers must come from. Empty: the system's.",
    )  # fmt: skip
    broker_client_certificate_file_path = Key(
        "brokerClientCertificateFilePath", "", text(), since="pulsar", section=TLS,
        doc="PEM file with the certificate that this proxy shows brokers. Empty: none.",
    )  # fmt: skip
    broker_client_key_file_path = Key(
        "brokerClientKeyFilePath", "", text(), since="pulsar", section=TLS,
        doc="PEM file with the key of that certificate.",
    )  # fmt: skip
    broker_client_tls_protocols = Key(
        "brokerClientTlsProtocols", (), words(), since="pulsar", section=TLS,
        doc="TLS versions towards brokers. Empty: TLSv1.3 and TLSv1.2.",
    )  # fmt: skip
    broker_client_tls_ciphers = Key(
        "brokerClientTlsCiphers", (), words(), since="pulsar", section=TLS,
        doc="Cipher suites towards brokers. Empty: OpenSSL's choice.",
    )  # fmt: skip
