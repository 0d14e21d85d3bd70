"""Keys of TLS for clients and for brokers."""

from proxy.config.keys.key import Key, boolean, text, whole, words
from proxy.config.keys.units import DAY_SECONDS, SECONDS

NO_JKS = "JKS, which is refused with the `keytool` command that converts such a store"
NO_KEYS = "a store with a private key in it, which is refused: the authority of that key would be trusted, too"


class TlsKeys:
    """Keys of TLS for clients and for brokers."""

    section = "TLS"

    tls_certificate_file_path = Key(
        "tlsCertificateFilePath", "", text(), since="pulsar",
        doc="PEM file with this proxy's certificate and its chain, for servicePortTls and webServicePortTls.",
    )  # fmt: skip
    tls_key_file_path = Key(
        "tlsKeyFilePath", "", text(), since="pulsar", doc="PEM file with the key of that certificate.",
        less="keys other than RSA of 2,048 bits or more, P-256, P-384, P-521 and Ed25519, which are refused",
    )  # fmt: skip
    tls_trust_certs_file_path = Key(
        "tlsTrustCertsFilePath", "", text(), since="pulsar",
        doc="PEM file with the authorities that may issue certificates of clients; a client's whole chain may have "
        "some 15 KiB. Empty: clients are not asked for certificates.",
    )  # fmt: skip
    tls_enabled_with_key_store = Key(
        "tlsEnabledWithKeyStore", False, boolean(), since="pulsar",
        doc="Use the two stores below instead of the PEM files of servicePortTls and webServicePortTls.",
    )  # fmt: skip
    tls_key_store_type = Key(
        "tlsKeyStoreType", "JKS", text(), since="pulsar",
        doc="Type of the store with the key: PKCS12.",
        less=NO_JKS,
    )  # fmt: skip
    tls_key_store = Key(
        "tlsKeyStore", "", text(), since="pulsar",
        doc="Store with this proxy's key, its certificate and its chain. Of several keys the first "
        "counts.",
    )  # fmt: skip
    tls_key_store_password = Key(
        "tlsKeyStorePassword", "", text(), since="pulsar", secret=True,
        doc="Password of the store with the key.",
    )  # fmt: skip
    tls_trust_store_type = Key(
        "tlsTrustStoreType", "JKS", text(), since="pulsar",
        doc="Type of the store with the authorities: PKCS12.",
        less=NO_JKS,
    )  # fmt: skip
    tls_trust_store = Key(
        "tlsTrustStore", "", text(), since="pulsar",
        doc="Store with the authorities that may issue certificates of clients. Empty: clients are not asked for any.",
        less=NO_KEYS,
    )  # fmt: skip
    tls_trust_store_password = Key(
        "tlsTrustStorePassword", "", text(), since="pulsar", secret=True,
        doc="Password of the store with the authorities.",
    )  # fmt: skip
    tls_certificate_revocation_list_file_path = Key(
        "tlsCertificateRevocationListFilePath", "", text(),
        doc="PEM file with certificate revocation lists: clients whose certificate is in a list are refused. Each "
        "authority of a chain needs a list. Changed files are loaded like certificates. Empty: no check.",
    )  # fmt: skip
    tls_require_trusted_client_cert_on_connect = Key(
        "tlsRequireTrustedClientCertOnConnect", False, boolean(), since="pulsar",
        doc="Refuse clients without a certificate issued by an authority in tlsTrustCertsFilePath.",
        less="together with tlsAllowInsecureConnection, which is refused: an unchecked certificate proves nothing",
    )  # fmt: skip
    tls_protocols = Key(
        "tlsProtocols", (), words(), since="pulsar",
        doc="TLS versions on client ports. Empty: TLSv1.3 and TLSv1.2.",
    )  # fmt: skip
    tls_ciphers = Key(
        "tlsCiphers", (), words(), since="pulsar",
        doc="Cipher suites on client ports, by standard or OpenSSL names: ECDHE with AES-GCM or ChaCha20. Empty: all.",
        less="suites with CBC, CCM, DHE or RSA key exchange, which are refused",
    )  # fmt: skip
    web_service_tls_protocols = Key(
        "webServiceTlsProtocols", (), words(), since="pulsar",
        doc="TLS versions of webServicePortTls. Empty: those of tlsProtocols.",
        better="empty, the versions of tlsProtocols hold here, too; the Java proxy then has the defaults of Java",
    )  # fmt: skip
    web_service_tls_ciphers = Key(
        "webServiceTlsCiphers", (), words(), since="pulsar",
        doc="Cipher suites of webServicePortTls. Empty: those of tlsCiphers.",
        better="empty, the suites of tlsCiphers hold here, too; the Java proxy then has the defaults of Java",
    )  # fmt: skip
    tls_cert_refresh_check_duration_sec = Key(
        "tlsCertRefreshCheckDurationSec", 300, whole(0, DAY_SECONDS), since="pulsar", unit=SECONDS,
        doc="Time between checks for changed files of certificates and keys. 0: only at SIGHUP.",
        better="a metric shows when certificates expire; after a broken new file the old certificate stays in use",
    )  # fmt: skip
    max_concurrent_tls_handshakes = Key(
        "maxConcurrentTlsHandshakes", 256, whole(1, 65_536), unit="handshakes",
        doc="TLS handshakes of clients that may be half done at the same time, on each port; a handshake begins with a "
        "whole ClientHello. Further clients wait, in turns by address. A handshake that stands still for 0.4 to 1 s is "
        "then closed.",
    )  # fmt: skip
    tls_enabled_with_broker = Key(
        "tlsEnabledWithBroker", False, boolean(), since="pulsar",
        doc="Use TLS for brokers: for brokerServiceURLTLS, brokerWebServiceURLTLS and the targets of clients.",
    )  # fmt: skip
    tls_hostname_verification_enabled = Key(
        "tlsHostnameVerificationEnabled", True, boolean(), since="pulsar",
        doc="Require that a broker's certificate names the host that the proxy connected to.",
    )  # fmt: skip
    tls_allow_insecure_connection = Key(
        "tlsAllowInsecureConnection", False, boolean(), since="pulsar",
        doc="Accept certificates of brokers from any authority and for any host, and ask clients for none. Set this "
        "only for tests.",
        less="unchecked certificates of clients: clients are not asked for any, so provider tls refuses them",
    )  # fmt: skip
    broker_client_trust_certs_file_path = Key(
        "brokerClientTrustCertsFilePath", "", text(), since="pulsar",
        doc="PEM file with the authorities that may issue certificates of brokers. Empty: the system's authorities.",
    )  # fmt: skip
    broker_client_certificate_revocation_list_file_path = Key(
        "brokerClientCertificateRevocationListFilePath", "", text(),
        doc="PEM file with certificate revocation lists: brokers whose certificate is in a list are refused, as for "
        "tlsCertificateRevocationListFilePath.",
    )  # fmt: skip
    broker_client_certificate_file_path = Key(
        "brokerClientCertificateFilePath", "", text(), since="pulsar",
        doc="PEM file with the certificate that this proxy presents to brokers. Empty: no certificate.",
    )  # fmt: skip
    broker_client_key_file_path = Key(
        "brokerClientKeyFilePath", "", text(), since="pulsar",
        doc="PEM file with the key of that certificate.",
    )  # fmt: skip
    broker_client_tls_enabled_with_key_store = Key(
        "brokerClientTlsEnabledWithKeyStore", False, boolean(), since="pulsar",
        doc="Use the two stores below instead of the PEM files towards brokers.",
    )  # fmt: skip
    broker_client_tls_key_store_type = Key(
        "brokerClientTlsKeyStoreType", "JKS", text(), since="pulsar",
        doc="Type of the store with the key: PKCS12.",
        less=NO_JKS,
    )  # fmt: skip
    broker_client_tls_key_store = Key(
        "brokerClientTlsKeyStore", "", text(), since="pulsar",
        doc="Store with the key and the certificate that this proxy presents to brokers. Of several keys the first "
        "counts. Empty: no certificate.",
    )  # fmt: skip
    broker_client_tls_key_store_password = Key(
        "brokerClientTlsKeyStorePassword", "", text(), since="pulsar", secret=True,
        doc="Password of the store with the key.",
    )  # fmt: skip
    broker_client_tls_trust_store_type = Key(
        "brokerClientTlsTrustStoreType", "JKS", text(), since="pulsar",
        doc="Type of the store with the authorities: PKCS12.",
        less=NO_JKS,
    )  # fmt: skip
    broker_client_tls_trust_store = Key(
        "brokerClientTlsTrustStore", "", text(), since="pulsar",
        doc="Store with the authorities that may issue certificates of brokers. Empty: the system's authorities.",
        less=NO_KEYS,
    )  # fmt: skip
    broker_client_tls_trust_store_password = Key(
        "brokerClientTlsTrustStorePassword", "", text(), since="pulsar", secret=True,
        doc="Password of the store with the authorities.",
    )  # fmt: skip
    broker_client_tls_protocols = Key(
        "brokerClientTlsProtocols", (), words(), since="pulsar",
        doc="TLS versions for brokers. Empty: TLSv1.3 and TLSv1.2.",
    )  # fmt: skip
    broker_client_tls_ciphers = Key(
        "brokerClientTlsCiphers", (), words(), since="pulsar",
        doc="Cipher suites for brokers, as in tlsCiphers. Empty: all.",
        less="suites with CBC, CCM, DHE or RSA key exchange, which are refused",
    )  # fmt: skip
