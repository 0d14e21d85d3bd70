"""The prose of docs/ and the README against the tables it speaks of: a renamed metric or key must not live on there."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from proxy.app.metrics.table import INSTRUMENTS
from proxy.brokers import discovery, target
from proxy.cli import inherited
from proxy.config.config import Config
from proxy.config.java_keys import JAVA_ONLY_KEYS
from proxy.core.errors import DisconnectCause
from proxy.net import ended_sockets, send_buffers, transport
from proxy.net.spill import read_back
from proxy.web.forward import broker_client
from proxy.web.http import gate

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
NOT_OURS = {".venv", ".cache", "node_modules", "build", "dist"}
# With the pages that stand beside what they describe.
ALL_PAGES = sorted(page for page in ROOT.rglob("*.md") if not NOT_OURS & set(page.relative_to(ROOT).parts))
COLUMNS = 120
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
# A generated page says so in its first line; a generated part stands between two marks.
GENERATED_PAGE = re.compile(r"<!-- .*do not edit.* -->\n")
GENERATED_PART = re.compile(r"<!-- (\w+): .*do not edit.* -->\n.*?<!-- \1: end -->", re.DOTALL)
# Files of code that a page names; `*` stands for any letters.
MODULE = re.compile(r"`([\w./-]+/[\w*-]+\.(?:py|rs|tpl))`")
SAMPLE_SUFFIXES = ("_total", "_created", "_count", "_sum")

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
    return named | {name + suffix for name in named for suffix in SAMPLE_SUFFIXES}


def key_names() -> set[str]:
    families = {"httpReverseProxy"}
    keys = {key.name for key in Config.keys()}  # noqa: SIM118
    return keys | set(JAVA_ONLY_KEYS) | families | ELSEWHERE | OF_HELM | chart_values()


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_metric_that_is_spoken_of_exists(page: Path) -> None:
    assert {name for text in code(page) for name in unknown_metrics(text)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    assert dead_links(page) == set()


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b`, c\n[here](#a-b-c) [there](other.md) [nowhere](#b) [page](page.md#d)\n")
    assert dead_links(page) == {"other.md#", "#b", "page.md#d"}


@pytest.mark.parametrize(
    "name", ["pulsar_proxy_lists_asked_total", "pulsar_proxy_watched_*", "pulsar_proxy_top_{heap}"]
)
def test_a_metric_that_does_not_exist_is_found(name: str) -> None:
    assert unknown_metrics(f"`rate({name}[1m])`")


@pytest.mark.parametrize("name", ["maxTopicLists", "...PermitsQueueSize", "topicLists*", "clientSendBufferBytes=0"])
def test_a_key_that_does_not_exist_is_found(name: str) -> None:
    assert unknown_keys(f"`{name}`")


def wide_lines(text: str) -> list[str]:
    """Return the lines above 120 columns, but rows of generated tables and single words, which cannot be broken."""
    if GENERATED_PAGE.match(text):
        text = without_tables(text)
    text = GENERATED_PART.sub(lambda part: without_tables(part.group()), text)
    return [line for line in text.splitlines() if len(line) > COLUMNS and " " in line.strip()]


def without_tables(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("|"))


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_is_wider_than_120_columns(page: Path) -> None:
    assert wide_lines(page.read_text(encoding="utf-8")) == []


def test_a_wide_line_is_found_and_a_generated_row_is_not() -> None:
    wide, row = "a " * COLUMNS, "| a |" * COLUMNS
    part = f"<!-- part: made by a script, do not edit -->\n{row}\n{wide}\n<!-- part: end -->\n"
    assert wide_lines(f"{row}\n{part}") == [row, wide]
    assert wide_lines(f"<!-- Written by a script; do not edit here. -->\n{row}\n{wide}\n") == [wide]
    assert wide_lines("a" * (COLUMNS + 1)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_module_that_is_spoken_of_exists(page: Path) -> None:
    named = MODULE.findall(page.read_text(encoding="utf-8"))
    # A recipe of CONTRIBUTING names files that are still to be written.
    wanted = [file for file in named if "greeting" not in file]
    assert [file for file in wanted if not is_there(file)] == []


def is_there(file: str) -> bool:
    """Return whether there is such a file, in the checkout, in `proxy`, in the crate or in a chart."""
    folders = (ROOT, ROOT / "proxy", ROOT / "native", *(chart.parent for chart in CHARTS))
    return any(True for folder in folders for _ in folder.glob(file))


def test_a_module_that_does_not_exist_is_found() -> None:
    said = "`clients/listener.py`, `pipeline/replay/kernel*.py`, `native/src/relay/pair.rs`, `clients/listen*er.rs`"
    assert [file for file in MODULE.findall(said) if not is_there(file)] == ["clients/listen*er.rs"]


def changes() -> list[str]:
    """Return the items of docs/architecture.md that say which files a change begins with, and which follow."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("\n## What you want to change\n")[2].partition("\n## ")[0]
    return [" ".join(item.split()) for item in re.split(r"(?m)^- (?=\*\*)", section)[1:]]


def test_each_change_leads_to_a_file_or_to_a_recipe() -> None:
    assert len(changes()) > 60
    assert [item for item in changes() if not MODULE.search(item) and "CONTRIBUTING.md#" not in item] == []


def parts_of_rooms() -> dict[Path, str]:
    """Give what docs/architecture.md says of each room of `proxy`, and of `pipeline`, by the folder of the room."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = {ROOT / "proxy" / room: text for room, text in re.findall(r"(?m)^\| `(\w+)/` \| (.*)$", page)}
    _, _, section = page.partition("\n## The rooms of `pipeline`\n")
    names = re.findall(r"(?m)^- \*\*(.*?)\*\*:", section.partition("\n## ")[0])
    return rows | {ROOT / "pipeline": " ".join(names)}


def missing_parts(folder: Path, text: str) -> list[str]:
    """Return the files and folders that `text` names and that neither `folder` nor the folder around it has."""
    named = re.findall(r"`([\w/]+(?:\.py|/))`", text)
    return [name for name in named if not (folder / name).exists() and not (folder.parent / name).exists()]


def test_the_parts_of_rooms_that_the_architecture_names_exist() -> None:
    rooms = parts_of_rooms()
    assert rooms.keys() > {ROOT / "proxy" / "app", ROOT / "pipeline"}
    assert {folder: missing_parts(folder, text) for folder, text in rooms.items()} == {folder: [] for folder in rooms}


def test_the_architecture_names_every_file_of_the_pipeline() -> None:
    parts = {path.name for path in (ROOT / "pipeline").glob("*.py")} - {"__init__.py", "__main__.py"}
    folders = {f"{path.parent.name}/" for path in (ROOT / "pipeline").glob("*/__init__.py")}
    assert (parts | folders) - set(re.findall(r"`([\w]+(?:\.py|/))`", parts_of_rooms()[ROOT / "pipeline"])) == set()


def test_the_relay_engine_of_the_extension_names_all_its_modules() -> None:
    text = (ROOT / "native" / "src" / "relay" / "mod.rs").read_text(encoding="utf-8")
    modules = set(re.findall(r"(?m)^(?:pub )?mod (\w+);", text)) - {"tests"}
    said = "\n".join(line for line in text.splitlines() if line.startswith("//!"))
    assert modules - set(re.findall(r"`(\w+)`", said)) == set()


def test_a_part_of_a_room_that_does_not_exist_is_found() -> None:
    said = "`memory/budget.py`, `budget.py`, `app/proxy.py`, `net/`, `sums/`"
    assert missing_parts(ROOT / "proxy" / "app", said) == ["budget.py", "sums/"]


# Times that docs/architecture.md says of a wait, by the beginning of its item; other waits have keys.
TIMES = {
    "closing with unsent bytes": (transport.LINGER_SECONDS,),
    "a relay on which no byte moves": (ended_sockets.LONGEST_SECONDS,),
    "bytes in the kernel of a connection": (ended_sockets.STALL_SECONDS, ended_sockets.LONGEST_SECONDS),
    "a place for a request over HTTP": (gate.GATE_SECONDS, broker_client.WAIT_SECONDS),
    "a broker, when none is up": (discovery.WAIT_SECONDS,),
    "a name's addresses": (target.RESOLVE_SECONDS,),
    "a list on disk": (read_back.READ_SECONDS,),
    "an answer that finds no memory": (send_buffers.STILL_SECONDS, send_buffers.LONGEST_WAIT_SECONDS),
    "a process that takes over": (inherited.HAND_OVER_SECONDS,),
}


def waits() -> dict[str, str]:
    """Return what docs/architecture.md says of each wait, by the wait."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("\n## Ways a wait ends\n")[2].partition("\n## ")[0]
    return {
        wait: " ".join(text.split()) for wait, text in re.findall(r"(?ms)^- \*\*(.*?)\*\*: (.*?)(?=^- |\Z)", section)
    }


def as_said(seconds: float) -> str:
    """Return a time as the page says it."""
    return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"


@pytest.mark.parametrize("begin", TIMES)
def test_a_wait_is_as_long_as_the_code_says(begin: str) -> None:
    [text] = [text for wait, text in waits().items() if wait.startswith(begin)]
    assert set(re.findall(r"\b[0-9.]+ m?s\b", text)) == {as_said(seconds) for seconds in TIMES[begin]}


def test_the_upgrade_calls_an_unknown_key_what_the_proxy_calls_it(tmp_path: Path) -> None:
    conf = tmp_path / "proxy.conf"
    conf.write_text("brokerServiceURL=pulsar://b\nqwertz=1\n")
    (warning,) = Config.load(str(conf), {}).warnings
    upgrade = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").partition("\n## Upgrade\n")[2]
    prose = " ".join(upgrade.partition("```")[0].split())
    assert f"`warning:` line (`{warning.text}`)" in prose


def test_each_cause_of_a_disconnect_is_explained() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    _, _, section = page.partition("\n## Causes of disconnects\n")
    named = set(re.findall(r"`([a-z_]+)`", section.partition("\n## ")[0]))
    assert {str(cause) for cause in DisconnectCause} <= named
