"""The rules of Prometheus in deploy/pipeline: of metrics that the pipeline has, and firing when they should."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from pipeline.core.held import Held
from pipeline.ingest.health import StreamHealth
from pipeline.store.drift import PREFIX, drift_metrics
from tests.support.programs import promtool

RULES: dict[str, Any] = yaml.safe_load((Path(__file__).parents[3] / "deploy/pipeline/alerts.yaml").read_text())
ROWS = f"{PREFIX}ingest_rows_total"


def test_alerts_ask_for_metrics_that_are_there() -> None:
    calibration = {"error": 0.0, "imputed_share": 0.0, "late_p99_us": 0.0}
    drift = drift_metrics(calibration, None, None, Held(1, 1, 0, 0.0, True), "")
    written = (generate_latest(drift) + generate_latest(StreamHealth().registry)).decode()
    asked = {name for rule in RULES["groups"][0]["rules"] for name in re.findall(rf"{PREFIX}\w+", rule["expr"])}
    assert asked
    assert asked <= set(re.findall(rf"^({PREFIX}\w+)", written, re.MULTILINE))


@pytest.mark.parametrize(
    ("alert", "series", "fires"),
    [
        ("Behind", {f"{PREFIX}ingest_lag_seconds": "901x120"}, True),
        ("Behind", {f"{PREFIX}ingest_lag_seconds": "901x20 0x120"}, False),
        ("Quarantines", {f'{ROWS}{{result="kept"}}': "0+98x120", f'{ROWS}{{result="quarantined"}}': "0+2x120"}, True),
        ("Quarantines", {f'{ROWS}{{result="kept"}}': "0+99x120", f'{ROWS}{{result="quarantined"}}': "0x120"}, False),
        ("Stale", {f"{PREFIX}ingest_lag_seconds": "0x120"}, False),
        ("Stale", {f"{PREFIX}last_run_timestamp_seconds": "-172000x120"}, True),
        ("Stale", {f"{PREFIX}last_run_timestamp_seconds": "0x120"}, False),
    ],
)
def test_alert_fires_when_it_should(alert: str, series: dict[str, str], fires: bool, tmp_path: Path) -> None:
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(RULES))
    name = f"PulsarProxyPipeline{alert}"
    (rule,) = (each for each in RULES["groups"][0]["rules"] if each["alert"] == name)
    expected = [{"exp_labels": rule["labels"], "exp_annotations": rule["annotations"]}]
    promtool(
        "test",
        {
            "rule_files": ["alerts.yaml"],
            "evaluation_interval": "1m",
            "tests": [
                {
                    "interval": "1m",
                    "input_series": [{"series": key, "values": values} for key, values in series.items()],
                    "alert_rule_test": [
                        {"eval_time": "100m", "alertname": name, "exp_alerts": expected if fires else []}
                    ],
                }
            ],
        },
        tmp_path,
    )
