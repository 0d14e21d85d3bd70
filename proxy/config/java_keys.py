"""The keys that only the Java proxy has, each with its default.

Rule: a file written for the Java proxy must load here, and no setting may be lost silently. A key with its default is
ignored, a changed key causes a warning, and a key that would open the cluster if ignored is refused. This module reads
no file.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class JavaKey:
    """A key that only the Java proxy has: its default, why it is missing here, and whether a change is refused.

    `like_default`: other values that ask for nothing else than what is done here. `warned`: values of a refused key
    that are only warned about.
    """

    default: str | None
    why: str
    refused: bool = False
    like_default: Collection[str] = ()
    warned: Collection[str] = ()


def _keys(
    why: str,
    defaults: Mapping[str, str | None],
    *,
    refused: bool = False,
    like_default: Collection[str] = (),
    warned: Collection[str] = (),
) -> dict[str, JavaKey]:
    return {name: JavaKey(default, why, refused, like_default, warned) for name, default in defaults.items()}


# The names of OpenSSL in the Java proxy. The other ones choose an engine, and none of them demands approved
# cryptography, as the name of any other provider may.
_OPENSSL: Final = ("OPENSSL", "OPENSSL_REFCNT")
_ENGINES: Final = ("JDK", "SunJSSE", "Conscrypt")


# A default of None: the Java proxy's default depends on the machine, so any value counts as a change. A refused key
# would, if it were ignored, let in or reach more than the operator asked for.
JAVA_ONLY: Final[dict[str, JavaKey]] = {
    **_keys(
        "Java code cannot be loaded; run the service of a servlet or an extension beside the proxy",
        {
            "additionalServletDirectory": "./proxyAdditionalServlet",
            "additionalServlets": "",
            "proxyAdditionalServletDirectory": "./proxyAdditionalServlet",
            "proxyAdditionalServlets": "",
            "proxyExtensions": "",
            "proxyExtensionsDirectory": "./proxyextensions",
            "useSeparateThreadPoolForProxyExtensions": "true",
            "narExtractionDirectory": None,
        },
    ),
    **_keys(
        "only superUserRoles decides which roles may see /proxy-stats and /config; brokers authorize everything else",
        {
            "authorizationProvider": "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider",
        },
    ),
    **_keys(
        "SASL (Kerberos) is not supported; use token, tls, basic or openid",
        {
            "kinitCommand": "/usr/bin/kinit",
            "saslJaasClientAllowedIds": ".*pulsar.*",
            "saslJaasServerRoleTokenSignerSecretPath": "",
            "saslJaasServerSectionName": "PulsarProxy",
        },
    ),
    **_keys(
        "a custom factory may check certificates in its own way and cannot be loaded; set the PEM files",
        refused=True,
        defaults={
            "sslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
            "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
        },
    ),
    **_keys(
        "a custom factory may check certificates in its own way and cannot be loaded; set the PEM files",
        refused=True,
        like_default=("default",),
        defaults={
            "tlsFactoryClassName": "",
            "brokerClientTlsFactoryClassName": "",
        },
    ),
    **_keys(
        "the factory of these parameters cannot be loaded",
        {
            "sslFactoryPluginParams": "",
            "brokerClientSslFactoryPluginParams": "",
            "tlsFactoryConfig": "",
            "brokerClientTlsFactoryConfig": "",
        },
    ),
    **_keys(
        "rustls is the only provider",
        refused=True,
        like_default=_OPENSSL,
        warned=_ENGINES,
        defaults={
            "tlsProvider": "",
            "brokerClientSslProvider": "",
            "brokerClientTlsProvider": "",
        },
    ),
    **_keys(
        "rustls is the only provider",
        refused=True,
        # The default of 4.x, and that of 5.0.
        like_default=(*_OPENSSL, "Conscrypt"),
        warned=("JDK", "SunJSSE"),
        defaults={
            "webServiceTlsProvider": "",
        },
    ),
    **_keys(
        "rustls does the cryptography of TLS, and no other provider can be chosen",
        refused=True,
        defaults={
            "jcaProvider": "",
            "jsseProvider": "",
            "brokerClientJcaProvider": "",
            "brokerClientJsseProvider": "",
        },
    ),
    **_keys(
        "no release of the Java proxy since 4.0 looks at it: servicePortTls and webServicePortTls open the TLS ports",
        {
            "tlsEnabledInProxy": "false",
        },
    ),
    **_keys(
        "metadata stores are not supported: list the brokers, or a name with all their addresses, in brokerServiceURL"
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
            "zooKeeperAllowReadOnlyOperations": "false",
            "zooKeeperCacheExpirySeconds": "-1",
            "zookeeperSessionTimeoutMs": "-1",
        },
    ),
    **_keys(
        "the proxy has an event loop instead of threads and a queue before them",
        {
            "httpNumThreads": None,
            "httpServerAcceptQueueSize": "8192",
            "httpServerThreadPoolQueueSize": "8192",
            "numAcceptorThreads": "1",
        },
    ),
    **_keys(
        "connections of web ports that rest are closed after 75 s, requests that are passed on after httpProxyTimeout",
        {
            "httpProxyIdleTimeout": "30000",
            "httpServerIdleTimeout": "30000",
        },
    ),
    **_keys(
        "the proxy relays bytes without copying them, but through user space",
        {
            "proxyZeroCopyModeEnabled": "true",
        },
    ),
    **_keys(
        "the proxy has no WebSocket service; it forwards /ws to the service of the brokers",
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
        "clients get advertisedAddress unchanged",
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

# The Java proxy finds brokers by these keys if it has no broker URLs.
METADATA_STORES = (
    "metadataStoreUrl",
    "configurationMetadataStoreUrl",
    "zookeeperServers",
    "configurationStoreServers",
    "globalZookeeperServers",
)

JAVA_ONLY_KEYS: Final[dict[str, str | None]] = {name: key.default for name, key in JAVA_ONLY.items()}

# Prefixes of families of keys of the Java proxy.
JAVA_ONLY_PREFIXES: Final = {
    "brokerClient_": "settings of the Java client have no counterpart here",
    "bookkeeper_": "the proxy does not connect to bookies",
}


def why_not(name: str) -> str:
    """Return why a key of the Java proxy is missing here, and what to set instead."""
    if name in JAVA_ONLY:
        return JAVA_ONLY[name].why
    return next(why for prefix, why in JAVA_ONLY_PREFIXES.items() if name.startswith(prefix))


def is_java_only(name: str) -> bool:
    """Return whether a key exists only in the Java proxy."""
    return name in JAVA_ONLY_KEYS or name.startswith(tuple(JAVA_ONLY_PREFIXES))


def is_java_default(name: str, value: str) -> bool:
    """Return whether a value is the Java proxy's default, or like it, so that ignoring the key loses nothing."""
    key = JAVA_ONLY.get(name)
    if key is None or not value.strip():
        return not value.strip()
    return _is_one_of(value, (*key.like_default, *([] if key.default is None else [key.default])))


def is_unsafe_to_ignore(name: str, value: str) -> bool:
    """Return whether a value other than the default must be refused."""
    key = JAVA_ONLY.get(name)
    return key is not None and key.refused and not _is_one_of(value, key.warned)


def _is_one_of(value: str, values: Collection[str]) -> bool:
    return value.strip().lower() in {each.lower() for each in values}
