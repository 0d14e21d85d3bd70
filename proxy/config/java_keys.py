"""The keys that the Java proxy knows and this one does not (yet), each with its default.

Rule: a file written for the Java proxy must load here, and nothing in it may be lost in silence: a key at its
default is passed over, a changed one is warned about, and one that would open the cluster if ignored is
refused. It reads nothing itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class JavaKey:
    """A key that only the Java proxy has: its default there, why it is not here, and whether a change is refused."""

    default: str | None
    why: str
    refused: bool = False


def _keys(why: str, defaults: Mapping[str, str | None], *, refused: bool = False) -> dict[str, JavaKey]:
    return {name: JavaKey(default, why, refused) for name, default in defaults.items()}


# A default of None: the Java proxy has one, but it depends on the machine, so any value counts as a change. What is
# refused would, passed over, let in or reach more than its operator asked for.
JAVA_ONLY: Final[dict[str, JavaKey]] = {
    **_keys(
        "no code of Java can be loaded; what a servlet or an extension served must be served beside the proxy",
        {
            "additionalServletDirectory": "./proxyAdditionalServlet",
            "additionalServlets": "",
            "proxyExtensions": "",
            "proxyExtensionsDirectory": "./proxyextensions",
            "useSeparateThreadPoolForProxyExtensions": "true",
            "narExtractionDirectory": None,
        },
    ),
    **_keys(
        "only superUserRoles decides who may see /proxy-stats and /config; brokers authorize everything else",
        {
            "authorizationProvider": "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider",
        },
    ),
    **_keys(
        "SASL (Kerberos) is not there; use token, tls, basic or openid",
        {
            "kinitCommand": "/usr/bin/kinit",
            "saslJaasClientAllowedIds": ".*pulsar.*",
            "saslJaasServerRoleTokenSignerSecretPath": "",
            "saslJaasServerSectionName": "PulsarProxy",
        },
    ),
    **_keys(
        "key stores are not read: turn them into PEM (docs/migrate.md) and set tlsCertificateFilePath, "
        "tlsKeyFilePath and tlsTrustCertsFilePath",
        refused=True,
        defaults={
            "tlsEnabledWithKeyStore": "false",
        },
    ),
    **_keys(
        "key stores are not read: turn them into PEM (docs/migrate.md) and set "
        "brokerClientTrustCertsFilePath, brokerClientCertificateFilePath and brokerClientKeyFilePath",
        refused=True,
        defaults={
            "brokerClientTlsEnabledWithKeyStore": "false",
        },
    ),
    **_keys(
        "key stores are not read; PEM files are",
        {
            "tlsKeyStore": "",
            "tlsKeyStorePassword": "",
            "tlsKeyStoreType": "JKS",
            "tlsTrustStore": "",
            "tlsTrustStorePassword": "",
            "tlsTrustStoreType": "JKS",
            "brokerClientTlsKeyStore": "",
            "brokerClientTlsKeyStorePassword": "",
            "brokerClientTlsKeyStoreType": "JKS",
            "brokerClientTlsTrustStore": "",
            "brokerClientTlsTrustStorePassword": "",
            "brokerClientTlsTrustStoreType": "JKS",
        },
    ),
    **_keys(
        "a factory of one's own could check certificates in its own way, and cannot be loaded; set the PEM files",
        refused=True,
        defaults={
            "sslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
            "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
            "tlsFactoryClassName": "",
            "brokerClientTlsFactoryClassName": "",
        },
    ),
    **_keys(
        "they are parameters of a factory that cannot be loaded",
        {
            "sslFactoryPluginParams": "",
            "brokerClientSslFactoryPluginParams": "",
            "tlsFactoryConfig": "",
            "brokerClientTlsFactoryConfig": "",
        },
    ),
    **_keys(
        "OpenSSL is the only provider",
        {
            "tlsProvider": "",
            "webServiceTlsProvider": "Conscrypt",
            "brokerClientSslProvider": "",
        },
    ),
    **_keys(
        "set servicePortTls, and webServicePortTls",
        refused=True,
        defaults={
            "tlsEnabledInProxy": "false",
        },
    ),
    **_keys(
        "no metadata store is read: list the brokers, or a name with all their addresses, in brokerServiceURL"
        " or brokerServiceURLTLS",
        {
            "metadataStoreUrl": "",
            "configurationMetadataStoreUrl": "",
            "configurationStoreServers": "",
            "globalZookeeperServers": "",
            "zookeeperServers": "",
            "metadataStoreAllowReadOnlyOperations": "false",
            "metadataStoreCacheExpirySeconds": "300",
            "metadataStoreSessionTimeoutMillis": "30000",
            "zooKeeperCacheExpirySeconds": "-1",
            "zookeeperSessionTimeoutMs": "-1",
        },
    ),
    **_keys(
        "one event loop does the work: there are no threads to number, and no queue before them",
        {
            "httpNumThreads": None,
            "httpServerAcceptQueueSize": "8192",
            "httpServerThreadPoolQueueSize": "8192",
            "numAcceptorThreads": "1",
            "numIOThreads": None,
        },
    ),
    **_keys(
        "bytes are relayed without a copy of the proxy's own, but through user space",
        {
            "proxyZeroCopyModeEnabled": "true",
        },
    ),
    **_keys(
        "there is no WebSocket service in the proxy; /ws is passed on to that of the brokers",
        {
            "webSocketServiceEnabled": "false",
            "webSocketPingDurationSeconds": "-1",
        },
    ),
    **_keys(
        "write httpReverseProxy.<name>.path and .proxyTo",
        {
            "httpReverseProxyConfigs": "",
        },
    ),
    **_keys(
        "clients are told advertisedAddress as it stands",
        {
            "advertisedAddressAutoResolvedHostNameAsAbsoluteDnsName": "false",
        },
    ),
    **_keys(
        "log lines about requests name the client's address",
        {
            "webServiceLogDetailedAddresses": "",
        },
    ),
}

# Where the Java proxy finds brokers if it is given no URL of them.
METADATA_STORES = (
    "metadataStoreUrl",
    "configurationMetadataStoreUrl",
    "zookeeperServers",
    "configurationStoreServers",
    "globalZookeeperServers",
)

JAVA_ONLY_KEYS: Final[dict[str, str | None]] = {name: key.default for name, key in JAVA_ONLY.items()}

UNSAFE_TO_IGNORE: Final[dict[str, str]] = {name: key.why for name, key in JAVA_ONLY.items() if key.refused}

# Families of keys that the Java proxy takes with any ending.
JAVA_ONLY_PREFIXES: Final = {
    "brokerClient_": "settings of the Java client have no counterpart here",
    "bookkeeper_": "the proxy does not speak to bookies",
}


def why_not(name: str) -> str:
    """Say why a key of the Java proxy is not here, and what to set instead."""
    if name in JAVA_ONLY:
        return JAVA_ONLY[name].why
    return next(why for prefix, why in JAVA_ONLY_PREFIXES.items() if name.startswith(prefix))


def is_java_only(name: str) -> bool:
    """Tell whether the Java proxy knows a key that this proxy does not."""
    return name in JAVA_ONLY_KEYS or name.startswith(tuple(JAVA_ONLY_PREFIXES))


def is_java_default(name: str, value: str) -> bool:
    """Tell whether such a key stands at the Java proxy's default, so that ignoring it loses nothing."""
    default = JAVA_ONLY_KEYS.get(name)
    return not value.strip() or (default is not None and value.strip().lower() == default.lower())
