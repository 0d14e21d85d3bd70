"""The rules and dashboards of this repository, as the gateway chart gives them to a cluster."""

from pathlib import Path
from typing import Any

import pytest

from scripts.alert_table import ALERTS, RECORDS
from scripts.helm.render import Document, Render
from tests.helm.charts import gateway
from tests.support.programs import promtool


def monitored(**rules: Any) -> Render:
    return gateway({"prometheusRule": {"enabled": True, **rules}, "dashboards": {"enabled": True}})


def alerts(render: Render) -> list[Document]:
    groups = render.one("PrometheusRule")["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


@pytest.mark.parametrize("rules", [
    {},
    {"extraLabels": {"team": "messaging"}, "disabled": ["PulsarProxyDown"], "runbookBaseUrl": "https://git.example/x"},
], ids=["as they stand", "with every option"])  # fmt: skip
def test_promtool_takes_the_rules_that_are_rendered(rules: dict[str, Any], tmp_path: Path) -> None:
    said = promtool("check", monitored(**rules).one("PrometheusRule")["spec"], tmp_path)
    disabled = sum(alert.name in rules.get("disabled", ()) for alert in ALERTS)
    assert f"SUCCESS: {len(ALERTS) + len(RECORDS) - disabled} rules found" in said


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_both_monitors_drop_times_of_creation_unless_told_otherwise(kind: str) -> None:
    values = kind[0].lower() + kind[1:]
    for kept in (False, True):
        dropped = {} if not kept else {"dropUnderscoreCreatedMetrics": {"enabled": False}}
        spec = gateway({values: {"enabled": True, **dropped}}).one(kind)["spec"]
        [endpoint] = spec.get("podMetricsEndpoints") or spec["endpoints"]
        regexes = [rule["regex"] for rule in endpoint.get("metricRelabelings", ())]
        assert regexes == ([] if kept else [".*_created"])


@pytest.mark.parametrize("base", ["https://git.example/proxy/blob/v1", "https://git.example/proxy/blob/v1/"])
def test_a_base_goes_before_every_runbook(base: str) -> None:
    plain, based = alerts(monitored()), alerts(monitored(runbookBaseUrl=base))
    assert len(based) == len(ALERTS)
    for alert, same in zip(based, plain, strict=True):
        path = same["annotations"]["runbook_url"]
        assert alert["annotations"]["runbook_url"] == f"https://git.example/proxy/blob/v1/{path}"
        assert {**alert, "annotations": {**alert["annotations"], "runbook_url": path}} == same, "nothing else changes"


def test_a_runbook_elsewhere_stays_where_it_is() -> None:
    own = {"alert": "Own", "expr": "up == 0", "annotations": {"runbook_url": "https://wiki.example/own"}}
    render = monitored(runbookBaseUrl="https://git.example", groups=[{"name": "own", "rules": [own]}])
    assert own in alerts(render)


def annotations(**values: Any) -> dict[str, str]:
    found: dict[str, str] = gateway(values).one("Deployment")["spec"]["template"]["metadata"]["annotations"]
    return found


def test_pods_are_marked_for_a_prometheus_without_the_operator() -> None:
    usual = annotations(configData={"webServicePort": 18080})
    assert (usual["prometheus.io/scrape"], usual["prometheus.io/port"]) == ("true", "18080")


@pytest.mark.parametrize("kind", ["podMonitor", "serviceMonitor"])
def test_with_a_monitor_they_are_not_or_samples_would_come_twice(kind: str) -> None:
    assert not [name for name in annotations(**{kind: {"enabled": True}}) if name.startswith("prometheus.io/")]
