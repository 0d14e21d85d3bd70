"""What pages say of the charts: every value that docs/helm.md names is one, every command of helm renders a proxy."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from proxy.config.config import Config
from scripts.generated import ROOT
from scripts.helm.render import GATEWAY, LIBRARY, read_values
from tests.helm.charts import BROKERS, chart, config_of, proxy_container
from tests.support.programs import promtool
from tests.support.walkthrough import not_run

GUIDE = (ROOT / "docs/helm.md").read_text()
DEFAULTS = [read_values(chart / "values.yaml") for chart in (GATEWAY, LIBRARY)]
# Values of Pulsar's chart.
OF_PULSAR = {
    "affinity.anti_affinity", "auth.authentication.jwt", "auth.authentication.openid", "auth.authorization.enabled",
    "auth.superUsers.proxy", "podMonitor.dropUnderscoreCreatedMetrics.excludePatterns", "tls.proxy.enabled",
    "tls.proxy.cacerts",
}  # fmt: skip
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def paths(values: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield f"{above}{name}"
        if isinstance(value, dict):
            yield from paths(value, f"{above}{name}.")


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(GUIDE) if found == language]


def test_every_value_that_the_guide_names_is_one() -> None:
    known = {path for values in DEFAULTS for path in paths(values)}
    first = {path.partition(".")[0] for path in known}
    spoken = set(re.findall(r"`([a-z]\w*(?:\.\w+)+)(?::[^`]*)?`", GUIDE)) | set(re.findall(r"--set ([\w.]+)=", GUIDE))
    keys = {f"configData.{key.name}" for key in Config.keys()}  # noqa: SIM118
    wrong = {path for path in spoken if path.partition(".")[0] in first} - known - keys - OF_PULSAR
    assert wrong - {"resources.requests.memory", "tls.crt", "tls.key"} == set()
    assert len(spoken & known) > 10, "the pattern finds what is there"


def test_the_adapter_s_rule_gives_the_fuller_of_the_two_memories(tmp_path: Path) -> None:
    (text,) = (text for text in blocks("yaml") if text.startswith("rules:"))
    (rule,) = yaml.safe_load(text)["rules"]["custom"]
    query = rule["metricsQuery"].replace("<<.GroupBy>>", "pod").replace("<<.LabelMatchers>>", 'pod=~"a|b"')
    used = {"heap": (10, 90), "direct": (90, 10)}
    series = [
        {"series": f'pulsar_proxy_topic_list_{memory}_memory_{name}_bytes{{pod="{pod}"}}', "values": value}
        for memory, amounts in used.items()
        for pod, amount in zip("ab", amounts, strict=True)
        for name, value in (("used", str(amount)), ("limit", "100"))
    ]
    expected = [{"labels": f'{{pod="{pod}"}}', "value": 0.9} for pod in "ab"]
    test = {"interval": "30s", "input_series": series,
            "promql_expr_test": [{"expr": query, "eval_time": "0s", "exp_samples": expected}]}  # fmt: skip
    promtool("test", {"rule_files": [], "tests": [test]}, tmp_path)


def test_the_values_that_the_guide_shows_render_a_proxy() -> None:
    first, tls = (yaml.safe_load(text) for text in blocks("yaml") if text.startswith(("image:", "tls:")))
    assert proxy_container(chart(GATEWAY).render({**first, **tls}))


# The commands of docs/helm.md take the values that the page itself shows.
PAGES = ("docs/operations.md", "helm/pulsar-proxy-gateway/README.md")
OPTIONS_WITH_A_VALUE = {"--namespace", "-n", "--version"}


class HelmCommand(NamedTuple):
    """`helm install RELEASE CHART` or `helm upgrade`, with what it sets."""

    release: str
    chart: str
    values: dict[str, Any]
    keeps: bool


def helm_commands() -> list[str]:
    found = [line for page in PAGES for line in not_run((ROOT / page).read_text())]
    return sorted({line for line in found if re.match(r"helm (install|upgrade|template) ", line)})


def helm_command(line: str) -> HelmCommand:
    words, placed, values, keeps = shlex.split(line, comments=True)[2:], list[str](), dict[str, Any](), False
    while words:
        word = words.pop(0)
        if word in {"--values", "-f"}:
            values |= read_values(ROOT / words.pop(0))
        elif word == "--set":
            path, _, value = words.pop(0).partition("=")
            put(values, path.split("."), value)
        elif word in OPTIONS_WITH_A_VALUE:
            words.pop(0)
        elif word == "--create-namespace":
            pass
        elif word == "--reset-then-reuse-values":
            keeps = True
        else:
            assert not word.startswith("-"), f"an option that this test does not know: {word}"
            placed.append(word)
    release, path = placed
    return HelmCommand(release, path, values, keeps)


def put(values: dict[str, Any], path: list[str], value: str) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


@pytest.mark.parametrize("line", helm_commands())
def test_each_command_renders_a_proxy(line: str) -> None:
    command = helm_command(line)
    if command.keeps:
        command.values["configData"] = {**BROKERS, **command.values.get("configData", {})}
    render = chart(ROOT / command.chart).render(command.values, release=command.release)
    assert config_of(render).broker_service_url == BROKERS["brokerServiceURL"]
    tag = command.values.get("image", {}).get("tag")
    assert tag is None or proxy_container(render)["image"].endswith(f":{tag}")
