"""docs/compatibility.md against what the Java proxy has, written down here once more, by hand: nothing may be missing.

The lists are those of the Java proxy 4.x and of what 5.0 adds; the page is generated from this proxy's own tables.
"""

import re
from pathlib import Path

import pytest

from proxy.app.metrics.table import INSTRUMENTS
from proxy.config.config import Config, ConfigError
from proxy.config.java_keys import JAVA_ONLY, JAVA_ONLY_PREFIXES, METADATA_STORES, JavaKey
from proxy.config.java_surface import JAVA_DEFAULTS
from tests.support.each import each

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (.+?) \|(?: .+? \|)? (same|better|not supported)(.*) \|$", re.MULTILINE)
BROKER = {"brokerServiceURL": "pulsar://b"}

KEYS = re.findall(
    r"\w+",
    """
metadataStoreUrl configurationMetadataStoreUrl metadataStoreSessionTimeoutMillis metadataStoreCacheExpirySeconds
metadataStoreAllowReadOnlyOperations brokerServiceURL brokerServiceURLTLS brokerWebServiceURL brokerWebServiceURLTLS
functionWorkerWebServiceURL functionWorkerWebServiceURLTLS zookeeperServers configurationStoreServers
globalZookeeperServers zookeeperSessionTimeoutMs zooKeeperCacheExpirySeconds checkActiveBrokers
brokerProxyConnectTimeoutMs brokerProxyReadTimeoutMs brokerProxyAllowedHostNames brokerProxyAllowedIPAddresses
brokerProxyAllowedTargetPorts bindAddress advertisedAddress advertisedAddressAutoResolvedHostNameAsAbsoluteDnsName
servicePort servicePortTls webServicePort webServicePortTls keepAliveIntervalSeconds maxMessageSize statusFilePath
haProxyProtocolEnabled webServiceHaProxyProtocolEnabled webServiceTrustXForwardedFor webServiceLogDetailedAddresses
proxyZeroCopyModeEnabled proxyLogLevel numIOThreads numAcceptorThreads narExtractionDirectory authenticationEnabled
authenticationProviders authenticationRefreshCheckSeconds anonymousUserRole authenticationRoleLoggingAnonymizer
authorizationEnabled authorizationProvider superUserRoles forwardAuthorizationCredentials tokenSecretKey
tokenPublicKey tokenAuthClaim tokenAudienceClaim tokenAudience basicAuthConf saslJaasClientAllowedIds
saslJaasServerSectionName saslJaasServerRoleTokenSignerSecretPath kinitCommand brokerClientAuthenticationPlugin
brokerClientAuthenticationParameters tlsEnabledWithBroker brokerClientTrustCertsFilePath
brokerClientCertificateFilePath brokerClientKeyFilePath brokerClientTlsEnabledWithKeyStore brokerClientTlsKeyStoreType
brokerClientTlsKeyStore brokerClientTlsKeyStorePassword brokerClientTlsTrustStoreType brokerClientTlsTrustStore
brokerClientTlsTrustStorePassword brokerClientTlsCiphers brokerClientTlsProtocols brokerClientSslProvider
tlsCertificateFilePath tlsKeyFilePath tlsTrustCertsFilePath tlsProtocols tlsCiphers tlsProvider
tlsAllowInsecureConnection tlsHostnameVerificationEnabled tlsRequireTrustedClientCertOnConnect
tlsCertRefreshCheckDurationSec tlsEnabledWithKeyStore tlsKeyStoreType tlsKeyStore tlsKeyStorePassword
tlsTrustStoreType tlsTrustStore tlsTrustStorePassword tlsEnabledInProxy webServiceTlsProvider webServiceTlsProtocols
webServiceTlsCiphers sslFactoryPlugin sslFactoryPluginParams brokerClientSslFactoryPlugin
brokerClientSslFactoryPluginParams tlsFactoryClassName tlsFactoryConfig brokerClientTlsFactoryClassName
brokerClientTlsFactoryConfig maxConcurrentInboundConnections maxConcurrentInboundConnectionsPerIp
maxConcurrentLookupRequests maxTopicListInFlightHeapMemSizeMB maxTopicListInFlightDirectMemSizeMB
maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis
maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize
maxTopicListInFlightDirectMemSizePermitsAcquireQueueSize enableProxyStatsEndpoints authenticateMetricsEndpoint
metricsServletTimeoutMs httpOutputBufferSize httpMaxRequestHeaderSize httpInputMaxReplayBufferSize httpProxyTimeout
httpNumThreads maxConcurrentHttpRequests httpServerThreadPoolQueueSize httpServerAcceptQueueSize
maxHttpServerConnections httpRequestsLimitEnabled httpRequestsMaxPerSecond httpReverseProxyConfigs
proxyHttpResponseHeadersJson additionalServlets additionalServletDirectory proxyExtensions proxyExtensionsDirectory
useSeparateThreadPoolForProxyExtensions webSocketServiceEnabled webSocketPingDurationSeconds clusterName
proxyAdditionalServlets proxyAdditionalServletDirectory zooKeeperAllowReadOnlyOperations httpMaxResponseHeaderSize
httpProxyIdleTimeout httpServerIdleTimeout jcaProvider jsseProvider brokerClientJcaProvider brokerClientJsseProvider
brokerClientTlsProvider
""",
)
FAMILIES = ["httpReverseProxy.<name>.path", "httpReverseProxy.<name>.proxyTo", "brokerClient_..."]

CLASSIC = re.findall(
    r"\w+",
    """
new_connections rejected_connections binary_ops binary_bytes lookup_requests partitions_metadata_requests
get_topics_of_namespace_requests get_schema_requests rejected_lookup_requests rejected_partitions_metadata_requests
rejected_get_topics_of_namespace_requests
""",
)
LIMITERS = re.findall(
    r"\w+",
    """
memory_used_bytes memory_limit_bytes queue_size queue_max_size wait_time_ms timeout_total
""",
)
METRICS = [
    "pulsar_proxy_active_connections",
    *(f"pulsar_proxy_{name}_total" for name in CLASSIC),
    *(f"pulsar_proxy_topic_list_{limiter}_{name}" for limiter in ("heap", "direct") for name in LIMITERS),
    *("jvm_*", "process_*", "jvm_memory_direct_bytes_used", "jvm_memory_direct_bytes_max", "jetty_*"),
    *(
        "pulsar_authentication_success_total",
        "pulsar_authentication_failures_total",
        "caffeine_cache_*",
        "OpenTelemetry topic.list.*",
        "OpenTelemetry pulsar.tls.reload",
    ),
]

ENDPOINTS = [
    "GET /status.html",
    "GET /metrics",
    "GET /proxy-stats/connections",
    "GET /proxy-stats/topics",
    "GET /proxy-stats/logging",
    "POST /proxy-stats/logging/{level}",
    "/admin/*",
    "/lookup/*",
    "/admin/v*/functions, sources, sinks, worker",
    "httpReverseProxy.*",
    "additional servlets",
    "/ws",
    "filters: concurrency (503) and rate (429)",
    "filter: authentication",
    "filter: extra headers",
]


def rows() -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for names, verdict, how in ROW.findall(PAGE):
        for name in names.split(", ") if "`" in names else [names]:
            bare = name.strip("`")
            assert bare not in found, f"{bare} twice"
            found[bare] = verdict, how.removeprefix(": ").removeprefix(", ")
    return found


FOUND = rows()


@each("name", [*KEYS, *FAMILIES, *METRICS, *ENDPOINTS])
def test_it_is_on_the_page_with_a_verdict(name: str) -> None:
    verdict, how = FOUND[name]
    assert bool(how) or verdict == "same", f"{name}: {verdict}, and no word how or why"


def test_metrics_of_the_java_proxy_have_their_names_here() -> None:
    assert {name for name in METRICS if name.startswith("pulsar_")} <= {each.exposed_name for each in INSTRUMENTS}


def test_what_is_left_alone_in_the_stock_file_is_not_warned_about() -> None:
    # The defaults of the Java proxy 4.0.8, which its older names are left at in many a file.
    stock = {
        "zookeeperSessionTimeoutMs": "-1",
        "zooKeeperCacheExpirySeconds": "-1",
        "zooKeeperAllowReadOnlyOperations": "false",
        "proxyAdditionalServletDirectory": "./proxyAdditionalServlet",
        "webServiceTlsProvider": "Conscrypt",
        # And those that 5.0 adds.
        "httpMaxResponseHeaderSize": "8192",
        "tlsFactoryClassName": "default",
    }
    assert Config.load(None, {f"PULSAR_PREFIX_{name}": value for name, value in stock.items()}, BROKER).warnings == ()


@pytest.mark.threat("ignored-java-key")
@each(("name", "key"), JAVA_ONLY.items())
def test_the_start_says_of_a_key_that_is_not_supported_why(name: str, key: JavaKey) -> None:
    environ = {f"PULSAR_PREFIX_{name}": "changed"}
    if name in METADATA_STORES:
        with pytest.raises(ConfigError, match=f"{name}: got .*brokerServiceURL"):
            Config.load(None, environ)
        (unused,) = Config.load(None, environ, BROKER).warnings
        assert unused.key == name
        return
    if key.refused:
        with pytest.raises(ConfigError) as caught:
            Config.load(None, environ, BROKER)
        said = [str(problem) for problem in caught.value.problems if problem.key == name]
    else:
        said = [str(warning) for warning in Config.load(None, environ, BROKER).warnings if warning.key == name]
    assert len(said) == 1
    assert said[0].endswith(key.why)


PROVIDERS = ("tlsProvider", "brokerClientSslProvider", "brokerClientTlsProvider", "webServiceTlsProvider")
PINS = ("jcaProvider", "jsseProvider", "brokerClientJcaProvider", "brokerClientJsseProvider")


@pytest.mark.threat("demanded-crypto-provider")
@each(
    ("name", "value", "said"),
    [
        *((name, value, "nothing") for name in PROVIDERS for value in ("", "OPENSSL", "openssl_refcnt")),
        *((name, "JDK", "a warning") for name in PROVIDERS),
        *((name, "Conscrypt", "a warning") for name in PROVIDERS[:3]),
        *((name, "", "nothing") for name in PINS),
        # Whoever pins certified cryptography must not get any other.
        *((name, value, "a fault") for name in (*PROVIDERS, *PINS) for value in ("BCFIPS", "BCJSSE", "SunPKCS11-NSS")),
    ],
)
def test_a_provider_of_cryptography_that_is_pinned_is_never_passed_over(name: str, value: str, said: str) -> None:
    if said == "a fault":
        with pytest.raises(ConfigError, match=f"{name}: got '{value}', expected ''"):
            Config.load(None, {name: value}, BROKER)
    else:
        warned = Config.load(None, {name: value}, BROKER).warnings
        assert [warning.key for warning in warned] == ([name] if said == "a warning" else [])


@each("name", JAVA_DEFAULTS)
def test_the_defaults_of_both_versions_of_the_java_proxy_are_passed_over(name: str) -> None:
    for default in JAVA_DEFAULTS[name]:
        if default is not None and name in JAVA_ONLY:
            assert Config.load(None, {name: default}, BROKER).warnings == ()


@each(("prefix", "why"), JAVA_ONLY_PREFIXES.items())
def test_so_it_does_of_families(prefix: str, why: str) -> None:
    (warning,) = Config.load(None, {f"PULSAR_PREFIX_{prefix}x": "1"}, BROKER).warnings
    assert warning.text.endswith(why)
