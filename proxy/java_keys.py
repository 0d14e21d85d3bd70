"""The keys that the Java proxy knows and this one does not (yet), each with its default.

Rule: a file written for the Java proxy must load here, and nothing in it may be lost in silence: a key at its
default is passed over, a changed one is warned about, and one that would open the cluster if ignored is
refused. It reads nothing itself.
"""

# A default of None: the Java proxy has one, but it depends on the machine, so any value counts as a change.
JAVA_ONLY_KEYS: dict[str, str | None] = {
    "additionalServletDirectory": "./proxyAdditionalServlet",
    "additionalServlets": "",
    "advertisedAddressAutoResolvedHostNameAsAbsoluteDnsName": "false",
    "authorizationProvider": "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider",
    "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
    "brokerClientSslFactoryPluginParams": "",
    "brokerClientSslProvider": "",
    "brokerClientTlsEnabledWithKeyStore": "false",
    "brokerClientTlsFactoryClassName": "",
    "brokerClientTlsFactoryConfig": "",
    "brokerClientTlsKeyStore": "",
    "brokerClientTlsKeyStorePassword": "",
    "brokerClientTlsKeyStoreType": "JKS",
    "brokerClientTlsTrustStore": "",
    "brokerClientTlsTrustStorePassword": "",
    "brokerClientTlsTrustStoreType": "JKS",
    "configurationMetadataStoreUrl": "",
    "configurationStoreServers": "",
    "globalZookeeperServers": "",
    "httpNumThreads": None,
    "httpReverseProxyConfigs": "",
    "httpServerAcceptQueueSize": "8192",
    "httpServerThreadPoolQueueSize": "8192",
    "kinitCommand": "/usr/bin/kinit",
    "metadataStoreAllowReadOnlyOperations": "false",
    "metadataStoreCacheExpirySeconds": "300",
    "metadataStoreSessionTimeoutMillis": "30000",
    "metadataStoreUrl": "",
    "narExtractionDirectory": None,
    "numAcceptorThreads": "1",
    "numIOThreads": None,
    "proxyExtensions": "",
    "proxyExtensionsDirectory": "./proxyextensions",
    "proxyZeroCopyModeEnabled": "true",
    "saslJaasClientAllowedIds": ".*pulsar.*",
    "saslJaasServerRoleTokenSignerSecretPath": "",
    "saslJaasServerSectionName": "PulsarProxy",
    "sslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
    "sslFactoryPluginParams": "",
    "tlsEnabledInProxy": "false",
    "tlsEnabledWithKeyStore": "false",
    "tlsFactoryClassName": "",
    "tlsFactoryConfig": "",
    "tlsKeyStore": "",
    "tlsKeyStorePassword": "",
    "tlsKeyStoreType": "JKS",
    "tlsProvider": "",
    "tlsTrustStore": "",
    "tlsTrustStorePassword": "",
    "tlsTrustStoreType": "JKS",
    "useSeparateThreadPoolForProxyExtensions": "true",
    "webServiceLogDetailedAddresses": "",
    "webServiceTlsProvider": "Conscrypt",
    "webSocketPingDurationSeconds": "-1",
    "webSocketServiceEnabled": "false",
    "zooKeeperCacheExpirySeconds": "300",
    "zookeeperServers": "",
    "zookeeperSessionTimeoutMs": "30000",
}

# Where the Java proxy finds brokers if it is given no URL of them.
METADATA_STORES = (
    "metadataStoreUrl",
    "configurationMetadataStoreUrl",
    "zookeeperServers",
    "configurationStoreServers",
    "globalZookeeperServers",
)

# Families of keys that the Java proxy takes with any ending.
JAVA_ONLY_PREFIXES = ("brokerClient_", "bookkeeper_")

# A proxy that passed these over would let in, or reach, more than its operator asked for.
UNSAFE_TO_IGNORE: dict[str, str] = {
    "tlsEnabledInProxy": "set servicePortTls, and webServicePortTls",
}


def is_java_only(name: str) -> bool:
    """Tell whether the Java proxy knows a key that this proxy does not."""
    return name in JAVA_ONLY_KEYS or name.startswith(JAVA_ONLY_PREFIXES)


def is_java_default(name: str, value: str) -> bool:
    """Tell whether such a key stands at the Java proxy's default, so that ignoring it loses nothing."""
    default = JAVA_ONLY_KEYS.get(name)
    return not value.strip() or (default is not None and value.strip().lower() == default.lower())
