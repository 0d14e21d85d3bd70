"""The `proxy` section of apache/pulsar-helm-chart, moved to the top of a values file: what it has is taken or told."""

from typing import Any

import pytest
from helm_python import HelmError

from scripts.helm.render import GATEWAY
from tests.helm.charts import chart, config_of, gateway

# Of its version 4.7.0: what means the same here, with the values that it has there; null where the chart has no value.
SAME: dict[str, Any] = {
    "replicaCount": 3,
    "autoscaling": {"enabled": False, "minReplicas": 1, "maxReplicas": 3, "metrics": None, "behavior": None},
    "updateStrategy": {"type": "RollingUpdate"},
    "initContainers": [],
    "podMonitor": {
        "enabled": True, "interval": "60s", "scrapeTimeout": "60s", "metricRelabelings": None,
        "dropUnderscoreCreatedMetrics": {"enabled": True},
    },
    "restartPodsOnConfigMapChange": False,
    "probe": {
        "liveness": {"enabled": True, "failureThreshold": 10, "initialDelaySeconds": 30, "periodSeconds": 10,
                     "timeoutSeconds": 5},
        "readiness": {"enabled": True, "failureThreshold": 10, "initialDelaySeconds": 30, "periodSeconds": 10,
                      "timeoutSeconds": 5},
        "startup": {"enabled": False, "failureThreshold": 30, "initialDelaySeconds": 60, "periodSeconds": 10,
                    "timeoutSeconds": 5},
    },
    "topologySpreadConstraints": [],
    "appAnnotations": {},
    "annotations": {},
    "tolerations": [],
    "nodeSelector": {"pool": "high"},
    "priorityClassName": "high",
    "extraVolumes": [],
    "extraVolumeMounts": [],
    "extraEnvs": [],
    "configData": {
        "PULSAR_MEM": "-Xms64m -Xmx128m -XX:MaxDirectMemorySize=128m\n",
        "PULSAR_GC": "-XX:+UseZGC -XX:+ZGenerational\n",
        "httpNumThreads": "8",
    },
    "ports": {"http": 80, "https": 443, "pulsar": 6650, "pulsarssl": 6651,
              "containerPorts": {"http": 8080, "https": 8443}},
    "service": {"type": "ClusterIP", "annotations": {}, "loadBalancerIP": "",
                "nodePorts": {"http": "", "https": "", "pulsar": "", "pulsarssl": ""}},
    "pdb": {"usePolicy": True, "maxUnavailable": 1},
}  # fmt: skip
# What this chart does not have: refused, so that nobody believes that it does something.
REFUSED: dict[str, Any] = {
    "component": "proxy",
    "gracePeriod": 30,
    "affinity": {"anti_affinity": True},
    "waitZookeeperTimeout": 600,
    "waitOxiaTimeout": 600,
    "waitBrokerTimeout": 120,
    "service_account": {"annotations": {}},
    "additionalCommand": "update-ca-certificates",
    "ingress": {"enabled": False},
    "resources": {"requests": {"memory": "128Mi", "cpu": 0.2}},
}


def test_all_that_means_the_same_is_taken_as_it_stands() -> None:
    render = chart(GATEWAY).render({**SAME, "pulsar": {"release": "pulsar"}})
    assert config_of(render).broker_service_url == "pulsar://pulsar-broker:6650"
    assert "null" not in render.all_text()


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_there_is_refused_by_name(name: str) -> None:
    with pytest.raises(HelmError) as refused:
        gateway({name: REFUSED[name]})
    assert name in str(refused.value)


def test_a_port_that_is_off_opens_no_other_in_the_network_policy() -> None:
    render = gateway({"networkPolicy": {"enabled": True}, "configData": {"servicePort": ""}})
    for rule in render.one("NetworkPolicy")["spec"]["ingress"]:
        assert rule["ports"], "without a list, a rule is for every port"
