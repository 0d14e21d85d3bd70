"""Every `helm` command of the docs, rendered: its chart, and its values, are what this repository has."""

import re
import shlex
from typing import Any, NamedTuple

import pytest

from scripts.generated import ROOT
from scripts.helm.render import read_values
from tests.helm.charts import BROKERS, chart, config_of, proxy_container
from tests.support.walkthrough import not_run

# docs/helm.md has a test of its own, since its commands take the values file that the page itself shows.
PAGES = ("docs/operations.md", "helm/pulsar-proxy-gateway/README.md")
OPTIONS_WITH_A_VALUE = {"--namespace", "-n", "--version"}


class HelmCommand(NamedTuple):
    """`helm install RELEASE CHART` or `helm upgrade`, with what it sets."""

    release: str
    chart: str
    values: dict[str, Any]
    keeps: bool


def commands() -> list[str]:
    found = [line for page in PAGES for line in not_run((ROOT / page).read_text())]
    return sorted({line for line in found if re.match(r"helm (install|upgrade|template) ", line)})


def parsed(line: str) -> HelmCommand:
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


@pytest.mark.parametrize("line", commands())
def test_each_command_renders_a_proxy(line: str) -> None:
    command = parsed(line)
    if command.keeps:
        command.values["configData"] = {**BROKERS, **command.values.get("configData", {})}
    render = chart(ROOT / command.chart).render(command.values, release=command.release)
    assert config_of(render).broker_service_url == BROKERS["brokerServiceURL"]
    tag = command.values.get("image", {}).get("tag")
    assert tag is None or proxy_container(render)["image"].endswith(f":{tag}")
