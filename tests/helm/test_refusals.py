"""Values that make no sense end the render, with words that say what to change."""

from typing import Any

import pytest
from helm_python import HelmError

from scripts.helm.render import GATEWAY
from tests.helm.charts import BROKERS, chart, example, gateway

TLS = {"enabled": True, "secretName": "certificate"}

SECRET = {"brokerClientAuthenticationPlugin": "token", "brokerClientAuthenticationParameters": "file:///token"}

CLIENTS = {"authenticationEnabled": True, "authenticationProviders": "tls,token", "tokenSecretKey": "file:///key"}

# No numbers, but the memory that is computed depends on them.
COUNTED = (
    "proxyLogLevel", "PULSAR_PREFIX_topicListFairness", "eventLogTopic", "eventLogDirectory", "topicListSpillDirectory",
    "tlsEnabledWithBroker", "proxyRole", "authenticationEnabled", "authenticationProviders",
    "forwardAuthorizationCredentials", "brokerWebServiceURL",
    "brokerWebServiceURLTLS", "functionWorkerWebServiceURL", "functionWorkerWebServiceURLTLS",
    "httpReverseProxy.docs.proxyTo",
)  # fmt: skip

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("a key that nobody knows", {"configData": {"maxTopicListInFlightHeapMemSizeMb": 1}},
     "additional properties 'maxTopicListInFlightHeapMemSizeMb' not allowed"),
    ("a text for a number", {"configData": {"relayBufferBytes": "64Ki"}},
     "/configData/relayBufferBytes': '64Ki' does not match"),
    ("a boolean for a number", {"configData": {"relayBufferBytes": True}}, "got boolean, want integer or string"),
    ("a number beyond its range", {"configData": {"servicePort": 70000}}, "maximum: got 70,000, want 65,535"),
    ("a number as text beyond its range", {"configData": {"relayBufferBytes": "17"}},
     "configData.relayBufferBytes: got \"17\", expected a whole number from 65536 to 16777216"),
    ("a word that is none of a few", {"configData": {"topicListFairness": "broker"}},
     "value must be one of 'fifo', 'connection'"),
    ("a text of two lines", {"configData": {"clusterName": "a\nb"}},
     "/configData/clusterName': 'a\\nb' does not match"),
    ("a key of the Java proxy that must not be passed over", {"configData": {"tlsProvider": "BCJSSE"}},
     "/configData/tlsProvider': value must be one of"),
    ("no brokers", {"configData": {"brokerServiceURL": ""}},
     "configData.brokerServiceURL: got nothing, expected the brokers"),
    ("no brokers for TLS", {"tls": {"broker": {"enabled": True}}}, "configData.brokerServiceURLTLS: got nothing"),
    ("a negative number", {"replicaCount": -1}, "at '/replicaCount': minimum: got -1, want 0"),
    ("a negative number as text", {"configData": {"shutdownDrainMillis": "-5"}},
     'configData.shutdownDrainMillis: got "-5", expected a whole'),
    ("a negative time", {"podMonitor": {"interval": "-30s"}}, "at '/podMonitor/interval': '-30s' does not match"),
    ("a misspelt value", {"replicas": 3}, "additional properties 'replicas' not allowed"),
    ("a text for a boolean", {"podMonitor": {"enabled": "yes"}}, "/podMonitor/enabled': got string, want boolean"),
    ("memory among the resources", {"resources": {"limits": {"memory": "2Gi"}}},
     "resources.limits.memory: got 2Gi, expected it in memory.limit"),
    ("less memory than the limits add up to", {"memory": {"limit": "512Mi"}},
     "memory.limit: got 512Mi, expected at least 972Mi"),
    ("no limit of connections", {"configData": {"maxConcurrentInboundConnections": 0}},
     "configData.maxConcurrentInboundConnections: got 0 (no limit), expected a limit, or memory.limit"),
    ("a limit in the environment", {"extraEnvs": [{"name": "PULSAR_PREFIX_relayBufferBytes", "value": "1048576"}]},
     "extraEnvs: got PULSAR_PREFIX_relayBufferBytes, expected it in configData"),
    *((f"{key} in the environment", {"extraEnvs": [{"name": key, "value": "x"}]},
       f"extraEnvs: got {key}, expected it in configData") for key in COUNTED),
    ("a sidecar as a gateway", {"configData": {"proxyRole": "sidecar"}},
     "configData.proxyRole: got sidecar, expected gateway"),
    ("TLS without a certificate", {"tls": {"enabled": True}},
     "tls.secretName: got nothing, expected the name of a secret"),
    ("a certificate that nobody uses", {"certificate": {"enabled": True, "issuerRef": {"name": "ca"}}},
     "certificate.enabled: got true without tls.enabled"),
    ("a certificate of nobody", {"tls": TLS, "certificate": {"enabled": True}},
     "certificate.issuerRef.name: got nothing"),
    ("tokens without one of the proxy", {"auth": {"token": {"enabled": True}}, "replicaCount": 1},
     "auth.token.proxySecretName: got nothing"),
    ("a scrape of a port that is not shown", {"tls": TLS, "serviceMonitor": {"enabled": True}},
     "serviceMonitor.enabled: got true with tls.enabled, expected podMonitor.enabled"),
    ("more pods at least than at most", {"autoscaling": {"enabled": True, "minReplicas": 9}},
     "autoscaling.minReplicas: got 9, expected at most autoscaling.maxReplicas (6)"),
    ("event files without end in an emptyDir",
     {"configData": {"eventLogDirectory": "/pulsar/events", "eventLogFilesMaxTotalMB": 0}},
     "configData.eventLogFilesMaxTotalMB: got 0 (nobody deletes files)"),
    ("two directories for lists",
     {"spill": {"enabled": True}, "configData": {"topicListSpillDirectory": "/lists"}},
     "configData.topicListSpillDirectory: got a value with spill.enabled, expected one of them"),
    ("a disk in memory", {"spill": {"enabled": True, "volume": {"emptyDir": {"medium": "Memory"}}}},
     "spill.volume.emptyDir.medium: got Memory, expected a disk"),
    ("a disk that lists may fill",
     {"spill": {"enabled": True, "sizeLimit": "512Mi"}, "configData": {"topicListSpillMaxMB": 512}},
     "spill.sizeLimit: got 512Mi, expected more than topicListSpillMaxMB (512 MiB)"),
    ("pods that may be away and pods that must stay", {"pdb": {"minAvailable": 2}},
     'pdb: got both of maxUnavailable and minAvailable, expected one: set the other to ""'),
    ("several pods that know only what each looked up", {"configData": SECRET},
     "replicaCount: got 3 with secret credentials for brokers, expected 1, or a way for each pod to know the brokers"),
    ("the same over TLS, with the list of the other port",
     {"configData": {**SECRET, "tlsEnabledWithBroker": True, "brokerServiceURLTLS": "pulsar+ssl://b:6651",
                     "brokerWebServiceURL": "http://b:8080"}}, "set configData.brokerWebServiceURLTLS"),
    ("the same with lists that have all hosts",
     {"configData": {**SECRET, "brokerProxyAllowedHostNames": "broker-*,*",
                     "brokerProxyAllowedIPAddresses": "0.0.0.0/0"}}, "replicaCount: got 3 with secret credentials"),
    *(("the same with all addresses in parts",
       {"configData": {**SECRET, "brokerProxyAllowedIPAddresses": f"10.0.0.0/8, {every}"}},
       "replicaCount: got 3 with secret credentials")
      for every in ("*.*.*.*", "0-ffff:*")),
    ("the same with the plugin in the environment",
     {"extraEnvs": [{"name": "brokerClientAuthenticationPlugin", "value": "token"}]}, "replicaCount: got 3 with"),
    ("the same with the plugin in a variable of another name",
     {"configData": {"brokerClientAuthenticationPlugin": "${PLUGIN}"},
      "extraEnvs": [{"name": "PLUGIN", "value": "token"}]}, "replicaCount: got 3 with"),
    ("the same with the prefixed variable over the bare one, whichever comes first",
     {"extraEnvs": [{"name": "PULSAR_PREFIX_brokerClientAuthenticationPlugin", "value": "token"},
                    {"name": "brokerClientAuthenticationPlugin", "value": ""}]}, "replicaCount: got 3 with"),
    ("the same with hosts that a variable widens",
     {"configData": {**SECRET, "brokerProxyAllowedHostNames": "*.broker"},
      "extraEnvs": [{"name": "brokerProxyAllowedHostNames", "value": "*"}]}, "replicaCount: got 3 with"),
    ("the same with a list that brokers show to no proxy of authenticated clients",
     {"configData": {**SECRET, "authenticationEnabled": True, "authenticationProviders": "token",
                     "tokenSecretKey": "file:///key", "brokerWebServiceURL": "http://b:8080"}},
     "(with authenticationEnabled configData.brokerWebServiceURL does not count"),
    ("the same with secrets of clients alone", {"configData": CLIENTS}, "replicaCount: got 3 with"),
    ("the same with the release of Pulsar's chart and brokers of one's own",
     {"pulsar": {"release": "pulsar"}, "auth": {"token": {"enabled": True}},
      "configData": {"brokerServiceURL": "pulsar://balancer:6650"}}, "replicaCount: got 3 with"),
    ("a pipeline of no topic", {"pipeline": {"enabled": True}}, "pipeline.source: got nothing"),
    ("a pipeline that would ask the proxy's brokers about a topic of another cluster",
     {"pipeline": {"enabled": True}, "configData": {
         "eventLogTopic": "persistent://t/n/events", "eventLogTopicServiceURL": "pulsar://other:6650",
         "brokerWebServiceURL": "http://b:8080"}}, "pipeline.adminUrl: got nothing, expected http://host:port of the"),
]  # fmt: skip


@pytest.mark.parametrize("values", [
    {"replicaCount": 1},
    {"configData": {"brokerWebServiceURL": "http://b:8080"}},
    {"configData": {"brokerProxyAllowedHostNames": "*.broker.pulsar"}},
    {"configData": {"brokerProxyAllowedIPAddresses": "10.0.*.*,2001:db8:*"}},
    {"configData": {"checkActiveBrokers": True}},
    {"configData": {"brokerProxyCredentialsToAnyTarget": True}},
    {"configData": {"brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationTls"}},
    {"extraEnvs": [{"name": "PULSAR_PREFIX_brokerClientAuthenticationPlugin", "value": "tls"}]},
    {"configData": {"brokerClientAuthenticationPlugin": "${PLUGIN}"},
     "extraEnvs": [{"name": "PLUGIN", "value": "none"}]},
    {"extraEnvs": [{"name": "PULSAR_PREFIX_brokerProxyAllowedHostNames", "value": "*.broker.pulsar"}]},
])  # fmt: skip
def test_pods_that_know_the_brokers_of_others_may_be_many(values: dict[str, Any]) -> None:
    given = {"configData": {**BROKERS, **SECRET, **values.get("configData", {})}}
    assert gateway({**values, **given}).of_kind("Deployment")


@pytest.mark.parametrize("values", [
    {"configData": {**CLIENTS, "authenticationProviders": "tls, org.apache.pulsar.AuthenticationProviderBasic"}},
    {"configData": {**CLIENTS, "forwardAuthorizationCredentials": False}},
    {"configData": CLIENTS, "auth": {"forwardCredentials": False}},
])  # fmt: skip
def test_pods_that_brokers_get_no_secrets_from_may_be_many(values: dict[str, Any]) -> None:
    assert gateway(values).of_kind("Deployment")


def test_pods_beside_pulsar_s_own_chart_know_all_brokers_by_its_headless_service() -> None:
    values = {"pulsar": {"release": "pulsar"}, "auth": {"token": {"enabled": True}}}
    assert chart(GATEWAY).render(values).of_kind("Deployment")


@pytest.mark.parametrize(("values", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_makes_no_sense_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HelmError) as refused:
        gateway(values)
    assert message in str(refused.value)


@pytest.mark.parametrize(("values", "message"), [
    ({"kubeVersion": "1.27.16"}, "mode: got native with Kubernetes 1.27.16, expected plain"),
    ({"configData": {"bindAddress": "0.0.0.0"}}, "configData.bindAddress: got a value, expected `exposed`"),
    ({"configData": {"PULSAR_PREFIX_proxyRole": "gateway"}}, "configData.proxyRole: got a value, expected none"),
    (
        {"configData": {"metricsPort": ""}},
        "configData.metricsPort: got an empty value, expected `metricsPort` beside configData",
    ),
    ({"mode": "sidecar"}, "/mode': value must be one of 'native', 'plain'"),
    ({"mode": "plain", "configData": {"shutdownDrainMillis": 19_999}},
     "configData.shutdownDrainMillis: got 19999, expected at least 20000: a plain sidecar is told to stop with"),
    ({"memory": {"limit": "64Mi"}}, "memory.limit: got 64Mi, expected at least 309Mi"),
])  # fmt: skip
def test_a_sidecar_that_makes_no_sense_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HelmError) as refused:
        example(values)
    assert message in str(refused.value)


def test_less_memory_than_the_sum_is_taken_from_who_insists() -> None:
    render = gateway({"memory": {"limit": "512Mi", "allowLess": True}, "configData": BROKERS})
    (deployment,) = render.of_kind("Deployment")
    resources = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"] == "512Mi"


def test_what_the_chart_cannot_see_is_named_in_its_notes() -> None:
    notes = gateway({"extraEnvFrom": [{"secretRef": {"name": "settings"}}]}).notes
    assert "The chart cannot see the variables of extraEnvFrom" in notes
    assert "extraEnvFrom" not in gateway({}).notes
