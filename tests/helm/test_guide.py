"""docs/helm.md: every value that it names is one, every file is there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proxy.config import Config
from scripts.helm.render import GATEWAY, LIBRARY, ROOT, read_values

GUIDE = (ROOT / "docs/helm.md").read_text()
DEFAULTS = [read_values(chart / "values.yaml") for chart in (GATEWAY, LIBRARY)]
# Values of Pulsar's chart.
OF_PULSAR = {"affinity.anti_affinity", "components.proxy"}


def paths(values: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield f"{above}{name}"
        if isinstance(value, dict):
            yield from paths(value, f"{above}{name}.")


def test_every_value_that_the_guide_names_is_one() -> None:
    known = {path for values in DEFAULTS for path in paths(values)}
    first = {path.partition(".")[0] for path in known}
    named = set(re.findall(r"`([a-z]\w*(?:\.\w+)+)(?::[^`]*)?`", GUIDE)) | set(re.findall(r"--set ([\w.]+)=", GUIDE))
    keys = {f"configData.{key.name}" for key in Config.keys()}  # noqa: SIM118
    wrong = {path for path in named if path.partition(".")[0] in first} - known - keys - OF_PULSAR
    assert wrong - {"resources.requests.memory"} == set()
    assert len(named & known) > 10, "the pattern finds what is there"


def test_every_file_that_the_guide_links_to_is_there() -> None:
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", GUIDE)]
    assert [link for link in links if link and not Path(ROOT, "docs", link).exists()] == []
    assert links


def test_every_value_of_pulsar_s_chart_that_the_guide_calls_the_same_is_there() -> None:
    (row,) = (line for line in GUIDE.splitlines() if line.startswith("| values |"))
    assert set(re.findall(r"`(\w+)`", row)) <= DEFAULTS[0].keys()
