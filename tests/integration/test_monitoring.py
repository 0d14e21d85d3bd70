"""What alerts, runbooks and the dashboard ask for, held against the metrics page of a proxy that has worked.

Rule: a family must be on the page whatever happened; for its labels the table of instruments answers
(tests/unit/monitoring).
"""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from proxy.cli.installation import versions
from scripts.alert_table import ALERTS, RECORDS
from scripts.crates import locked_crates
from scripts.dashboard_table import ROWS
from tests.integration.test_watch_limits import watch
from tests.support.auth.tls import PemFiles
from tests.support.programs import ran
from tests.support.promql import FOREIGN_METRICS, metrics
from tests.support.proxies.proxy_under_test import TOPIC, namespace, staged
from tests.support.tools import tool
from tests.support.web.web_pages import get

ROOT = Path(__file__).resolve().parents[2]

# PIP-442's own names: Prometheus would have waits in seconds.
AGAINST_THE_CONVENTION = {
    f"pulsar_proxy_topic_list_{memory}_wait_time_ms{suffix}": "metric names should not contain abbreviated units"
    for memory in ("heap", "direct")
    for suffix in ("", "_created")
} | {
    # The name of pulsar-25239.
    "pulsar_proxy_adaptive_throttle_active_topic_count": (
        'non-histogram and non-summary metrics should not have "_count" suffix'
    )
}

# The metrics of these are there while they are enabled.
OPTIONAL: dict[str, Any] = {
    "overloadThrottleEnabled": "true",
    "adaptivePublisherThrottlingEnabled": "true",
    "relayMemoryPoolMB": 64,
}


def asked_for() -> dict[str, str]:
    """Give every query of alerts, dashboard and runbooks with where it stands."""
    queries = {alert.expression: alert.name for alert in ALERTS}
    queries |= {record.expression: record.name for record in RECORDS}
    queries |= {query.expression: panel.title for row in ROWS for panel in row.panels for query in panel.queries}
    for page in (ROOT / "docs/runbooks").glob("*.md"):
        for block in re.findall(r"```promql\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            queries |= dict.fromkeys(block.splitlines(), page.name)
    return queries


async def page_of_work(directory: Path) -> str:
    """Let a proxy do a little of everything, and read its page."""
    keys: dict[str, Any] = {"eventLogDirectory": directory / "events", **PemFiles.write(directory / "tls").server_keys}
    async with staged(**keys, **OPTIONAL) as stage:
        client = await stage.connected()
        await client.topics(namespace(0))
        await client.lookup(TOPIC)
        relayed = await stage.relayed()
        await watch(relayed, 1, namespace(0), ".*")
        return (await get(stage.proxy.web_port, "/metrics")).text


async def test_what_is_asked_for_is_on_the_page_with_the_values_of_labels(tmp_path: Path) -> None:
    names, values = set[str](), defaultdict[tuple[str, str], set[str]](set)
    for family in text_string_to_metric_families(await page_of_work(tmp_path)):
        names.add(f"{family.name}_total" if family.type == "counter" else family.name)
        for sample in family.samples:
            names.add(sample.name)
            for label, value in sample.labels.items():
                values[sample.name, label].add(value)
    for query, where in asked_for().items():
        assert metrics(query) - FOREIGN_METRICS - {record.name for record in RECORDS} <= names, where
        for metric, selector in re.findall(r"(\w+)\{([^}]*)\}", query):
            for label, how, wanted in re.findall(r'(\w+)(=~|!~|!=|=)"([^"$]*)"', selector):
                there = values.get((metric, label), set())
                words = wanted.split("|") if how in ("=~", "!~") else [re.escape(wanted)]
                lost = [word for word in words if there and not any(re.fullmatch(word, value) for value in there)]
                assert not lost, f"{where}: {metric}{{{label}}} has none of {lost}, but {sorted(there)}"


def objections(promtool: str, text: str) -> dict[str, str]:
    """Have a page checked; gives what is said of each metric."""
    run = ran([promtool, "check", "metrics"], input=text)
    found: dict[str, str] = {}
    for line in (run.stdout + run.stderr).splitlines():
        name, _, objection = line.partition(" ")
        found[name] = objection
    return found


async def test_prometheus_own_check_has_no_objection_but_to_names_of_pip_442(tmp_path: Path) -> None:
    promtool = tool("promtool")
    assert objections(promtool, await page_of_work(tmp_path)) == AGAINST_THE_CONVENTION


async def test_the_version_and_the_metric_name_what_tls_is_made_of_as_the_lock_file_does(tmp_path: Path) -> None:
    _, crates = locked_crates()
    locked = {crate.name: crate.version for crate in crates}
    rustls, aws_lc_sys = locked["rustls"], locked["aws-lc-sys"]
    assert f"TLS: rustls {rustls}, aws-lc-sys {aws_lc_sys}" in versions().splitlines()
    (built,) = re.findall(r"^pulsar_proxy_build_info\{(.*)\}", await page_of_work(tmp_path), re.MULTILINE)
    assert {f'rustls="{rustls}"', f'aws_lc_sys="{aws_lc_sys}"'} <= set(built.split(","))
