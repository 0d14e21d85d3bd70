"""The prose of docs/ and the README against the tables it speaks of: a renamed metric or key must not live on there."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pipeline.ingest.health import StreamHealth
from proxy.app.metrics.table import INSTRUMENTS
from proxy.config.config import Config
from proxy.config.java_keys import JAVA_ONLY_KEYS
from proxy.config.retired import RETIRED
from proxy.core.errors import DisconnectCause
from tests.support.each import each

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
# Keys of brokers and of Kubernetes, words of certificates, fields of /proxy-stats and of HTTP lookups.
ELSEWHERE = {
    *("proxyRoles", "authenticateOriginalAuthData"),
    *("readOnlyRootFilesystem", "restartPolicy", "terminationGracePeriodSeconds"),
    *("brokerUrl", "nativeUrl"),
    *("backlogSize", "sendTimeout"),
    *("requestRate", "byteRate", "clientAddress", "brokerAddress"),
    *("notAfter", "subjectAltName"),
    *("msgRateIn", "msgByteIn", "msgRateOut", "msgByteOut"),
}
CHARTS = sorted((ROOT / "helm").glob("*/values.yaml"))
# Of docs/helm.md: values of Pulsar's chart, of an application and of Prometheus' adapter.
OF_HELM = {
    *("gracePeriod", "additionalCommand", "excludePatterns", "imagePullSecrets"),
    *("waitZookeeperTimeout", "waitOxiaTimeout", "waitBrokerTimeout", "usingSecretKey", "superUsers"),
    *("seriesQuery", "metricsQuery", "pulsarProxy"),
}
# What Prometheus' adapter makes of two metrics, for an autoscaler.
OF_ADAPTER = {"pulsar_proxy_topic_list_use_ratio"}
SAMPLE_SUFFIXES = ("_total", "_created", "_count", "_sum")

every_page = each("page", PAGES, ids=lambda page: page.relative_to(ROOT))

DIAGRAM = re.compile(r"```mermaid.*?```", re.DOTALL)
FENCED = re.compile(r"```.*?```", re.DOTALL)
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
# `pulsar_proxy_watch_*` and `pulsar_proxy_topic_list_{heap,direct}_...` are beginnings.
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
METRIC = re.compile(r"\bpulsar_proxy_\w*")
# Words such as brokerServiceURL, with what stands for the rest of a name: `...PermitsAcquireQueueSize`, `brokerProxy*`.
CAMEL = re.compile(r"(?<![\w/.-])(\.{3})?([A-Za-z][a-z]+(?:[A-Z]+[a-z]*)+)(\.{3}|\*)?(?![\w(])")


def code(page: Path) -> Iterator[str]:
    text = DIAGRAM.sub("", page.read_text(encoding="utf-8"))
    return (found.group() for found in CODE.finditer(text))


def metric_names() -> set[str]:
    named = {instrument.name.removesuffix("_total") for instrument in INSTRUMENTS} | OF_ADAPTER
    named |= {metric.name for metric in StreamHealth().registry.collect()}
    return named | {name + suffix for name in named for suffix in SAMPLE_SUFFIXES}


def key_names() -> set[str]:
    families = {"httpReverseProxy"}
    keys = {key.name for key in Config.keys()}  # noqa: SIM118
    return keys | set(RETIRED) | set(JAVA_ONLY_KEYS) | families | ELSEWHERE | OF_HELM | chart_values()


@cache
def chart_values() -> frozenset[str]:
    """Give the name of each value of the charts."""
    names = re.compile(r"^ *([A-Za-z]\w*):", re.MULTILINE)
    return frozenset(name for chart in CHARTS for name in names.findall(chart.read_text(encoding="utf-8")))


def unknown_metrics(text: str) -> set[str]:
    known = metric_names()
    found = set(METRIC.findall(text))
    return {name for name in found if not (_begins(known, name) if name.endswith("_") else name in known)}


def unknown_keys(text: str) -> set[str]:
    known, unknown = key_names(), set()
    for before, word, behind in CAMEL.findall(text):
        if before:
            is_known = any(key.endswith(word) for key in known)
        elif behind:
            is_known = _begins(known, word)
        else:
            is_known = word in known or not word[0].islower()
        if not is_known:
            unknown.add(before + word + behind)
    return unknown


def _begins(names: set[str], beginning: str) -> bool:
    return any(name.startswith(beginning) for name in names)


@every_page
def test_each_metric_that_is_spoken_of_exists(page: Path) -> None:
    assert {name for text in code(page) for name in unknown_metrics(text)} == set()


@every_page
def test_each_key_that_is_spoken_of_exists(page: Path) -> None:
    assert {word for text in code(page) for word in unknown_keys(text)} == set()


def anchors(page: Path) -> set[str]:
    """Give what may stand behind `#`: headings as GitHub writes them in addresses."""
    headings = re.findall(r"(?m)^#+ (.*)$", FENCED.sub("", page.read_text(encoding="utf-8")))
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def dead_links(page: Path) -> set[str]:
    dead = set()
    for file, anchor in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            dead.add(f"{file}#{anchor}")
    return dead


@every_page
def test_each_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    assert dead_links(page) == set()


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b`, c\n[here](#a-b-c) [there](other.md) [nowhere](#b) [page](page.md#d)\n")
    assert dead_links(page) == {"other.md#", "#b", "page.md#d"}


def test_each_cause_of_a_disconnect_is_explained() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    _, _, section = page.partition("\n## Causes of disconnects\n")
    named = set(re.findall(r"`([a-z_]+)`", section.partition("\n## ")[0]))
    assert {str(cause) for cause in DisconnectCause} <= named
