"""The recipes of CONTRIBUTING.md, performed on a copy of the code with the files that they name and no others."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
COPIED = ("proxy", "limiter", "protocol", "eventlog", "pipeline", "scripts", "helm", "docs")
# What begins an item of a recipe: a link to a file that is there, or the name of a new one.
TOUCHED = re.compile(r"^- (?:\[[^]]*\]\(([^)]+)\)|`([^`]+)`)", re.MULTILINE)
PROOF_SECONDS = 120


@dataclass(frozen=True)
class Recipe:
    """Edits by file: texts to insert, each before a text that stands once in the file; `None` stands for its end."""

    edits: Mapping[str, Mapping[str | None, str]]
    proof: str
    generators: Mapping[str, str] = field(default_factory=dict)


KEY = """
    greeting = Key("greeting", "hello", text(), section=OPERATION, dynamic={dynamic}, doc="What is said first.")
"""
RECIPES = {
    "A key of proxy.conf": Recipe(
        {"proxy/config/keys/operation.py": {None: KEY.format(dynamic=False)}},
        """
from proxy.config.config import Config
assert Config.load(None, {"brokerServiceURL": "pulsar://b:6650", "greeting": "good day"}).greeting == "good day"
""",
        {"config": "docs/reference/configuration.md"},
    ),
    "A live key": Recipe(
        {
            "proxy/config/keys/operation.py": {None: KEY.format(dynamic=True)},
            "proxy/app/reload_steps.py": {
                None: "\n\ndef apply_greeting(parts, config):\n    parts.said = config.greeting\n"
            },
            "proxy/app/reload.py": {
                "APPLIED_BY: Final": "from proxy.app.reload_steps import apply_greeting\n\n",
                "    Config.log_level: (": "    Config.greeting: (apply_greeting,),\n",
            },
        },
        """
from types import SimpleNamespace
from proxy.app.reload import APPLIED_BY
from proxy.config.config import Config
assert {key for key in Config.keys() if key.dynamic} == APPLIED_BY.keys()
parts = SimpleNamespace()
for step in APPLIED_BY[Config.greeting]:
    step(parts, SimpleNamespace(greeting="good day"))
assert parts.said == "good day"
""",
        {"config": "proxy.conf"},
    ),
    "A metric": Recipe(
        {
            "proxy/requests/counters.py": {
                '        "lists_joined",\n': '        "greetings",\n',
                "        self.lists_joined = 0\n": "        self.greetings = 0\n",
            },
            "proxy/app/metrics/traffic_rows.py": {
                '    labelled("lists_answers"': '    counted("greetings", "Hi.", lambda c: c.requests.greetings),\n'
            },
        },
        """
from types import SimpleNamespace
from proxy.app.metrics.counters import Counters
from proxy.app.metrics.table import INSTRUMENTS
counters = Counters()
counters.requests.greetings += 2
[metric] = [one for one in INSTRUMENTS if one.name == "pulsar_proxy_greetings"]
assert metric.read(SimpleNamespace(counters=counters)) == {(): 2}
""",
        {"metrics_doc": "docs/reference/metrics.md"},
    ),
    "An authentication provider": Recipe(
        {
            "proxy/auth/providers/greeting.py": {
                None: """
from proxy.auth.identity import Authenticated


class GreetingProvider:
    name = "GreetingProvider"
    methods = ("greeting",)
    files = ()

    def user_to_check(self, data):
        return None

    async def authenticate(self, data, certificate, network):
        return Authenticated(data.decode())

    async def close(self):
        pass
"""
            },
            "proxy/auth/providers/registry.py": {
                '    f"{_UPSTREAM}AuthenticationProviderToken"': '    "example.GreetingProvider": "greeting",\n',
                '    if name == "token":\n': """    if name == "greeting":
        from proxy.auth.providers.greeting import GreetingProvider

        return GreetingProvider()
""",
            },
        },
        """
import asyncio, time
from unittest.mock import MagicMock
from proxy.auth.providers import registry
from proxy.auth.settings import AuthenticationSettings

async def main():
    settings = AuthenticationSettings(providers=("example.GreetingProvider",))
    authenticator = registry.build_authenticator(settings, MagicMock(now=time.time))
    assert (await authenticator.authenticate("greeting", b"alice", None, "192.0.2.1")).role == "alice"

asyncio.run(main())
""",
    ),
    "A command": Recipe(
        {
            "proxy/cli/greeting.py": {None: "def run(options):\n    print(f'hello {options.name}')\n    return 0\n"},
            "proxy/cli/main.py": {
                '    "demo": ("run': """    "greet": ("say hello", _add_greet),
""",
                "def _add_demo(": """def _add_greet(parser):
    parser.add_argument("name")
    parser.set_defaults(run=_greet)


def _greet(options):
    from proxy.cli.greeting import run

    return run(options)


""",
            },
        },
        """
import contextlib, io
from proxy.cli.main import main
said = io.StringIO()
with contextlib.redirect_stdout(said):
    assert main(["greet", "Pulsar"]) == 0
assert said.getvalue() == "hello Pulsar\\n"
""",
    ),
    "A web page": Recipe(
        {
            "proxy/web/pages.py": {
                "    async def health(_: PageRequest)": """    async def greeting(_: PageRequest) -> PageAnswer:
        return PageAnswer.line("hello")

""",
                '    table.add(Page("GET", "/healthz"': (
                    '    table.add(Page("GET", "/greeting", greeting, Access.ANYBODY, "Says hello."))\n'
                ),
            }
        },
        """
import asyncio
from proxy.web.pages import own_pages
from proxy.web.readiness import Readiness
page, _ = own_pages("", list, Readiness()).at(["greeting"])["GET"]
assert asyncio.run(page.serve(None)).body == b"hello\\n"
""",
    ),
    "A field of an event": Recipe(
        {
            "eventlog/schema.py": {
                "\n\nFieldType = Literal": " + 1",
                ")  # fmt: skip\n\nFIELD_NAMES": (
                    '    Field("greeting", "string", "", "What was said first.", True, since=SCHEMA_VERSION),\n'
                ),
            },
            "proxy/telemetry/events/recorder.py": {
                '        event["heap_queue_len"] = heap_waiting\n': '        event["greeting"] = "hello"\n'
            },
        },
        """
from types import SimpleNamespace
from unittest.mock import MagicMock
from eventlog.schema import FIELDS, SCHEMA_VERSION
from pipeline.core.tables import TABLES
from proxy.telemetry.events.recorder import Recorder
assert max(field.since for field in FIELDS) == SCHEMA_VERSION
assert "greeting" in [column.name for column in TABLES["events"].columns]
recorder = SimpleNamespace(now=lambda: 0, _wall=lambda: 0, identities=MagicMock())
event = Recorder.begun(recorder, (0, 0, 0, 0, 0, {}), "get_topics", MagicMock(), "demo/ns")
assert event["greeting"] == "hello"
""",
        {"events": "docs/reference/events.md"},
    ),
    "A cause of disconnects": Recipe(
        {
            "proxy/core/errors.py": {'    INTERNAL_ERROR = "internal_error"\n': '    GREETING = "greeting"\n'},
            "docs/troubleshooting.md": {
                "- **Faults**: `write_failed`": "- **Manners**: `greeting` (nothing was said first).\n"
            },
        },
        """
from types import SimpleNamespace
from proxy.app.metrics.counters import Counters
from proxy.app.metrics.table import INSTRUMENTS
from pathlib import Path
from proxy.core.errors import DisconnectCause
assert all(f"`{cause}`" in Path("docs/troubleshooting.md").read_text() for cause in DisconnectCause)
counters = Counters(DisconnectCause)
[metric] = [one for one in INSTRUMENTS if one.name == "pulsar_proxy_disconnects"]
sources = SimpleNamespace(counters=counters)
assert metric.read(sources)[("greeting",)] == 0
counters.shared.disconnected(DisconnectCause.GREETING)
assert metric.read(sources)[("greeting",)] == 1
""",
    ),
    "A value of a chart": Recipe(
        {
            "helm/pulsar-proxy-gateway/values.yaml": {
                "# -- Old versions of the Deployment that are kept\n": '# -- What is said first\ngreeting: "hello"\n'
            },
            "helm/pulsar-proxy-gateway/templates/deployment.yaml": {
                "  {{- with .Values.appAnnotations }}\n": "    greeting: {{ .Values.greeting | quote }}\n"
            },
        },
        """
from scripts.helm.render import GATEWAY, LoadedChart
values = {"greeting": "good", "configData": {"brokerServiceURL": "pulsar://b:6650"}}
[deployment] = LoadedChart(GATEWAY).render(values).of_kind("Deployment")
assert deployment["metadata"]["labels"]["greeting"] == "good"
""",
        {"helm": "helm/pulsar-proxy-gateway/README.md"},
    ),
    "A table of the pipeline": Recipe(
        {
            "pipeline/core/tables/usage.py": {
                None: """
GREETINGS = Table("greetings", "What was said.", ("name",), (Column("name", "string", "", "Who said greeting."),))
"""
            }
        },
        """
from pipeline.core.tables import TABLES
assert TABLES["greetings"].key == ("name",)
""",
        {"pipeline_tables": "docs/reference/pipeline-tables.md"},
    ),
    "An alert": Recipe(
        {
            "scripts/alert_table.py": {
                '    Alert(\n        "PulsarProxyHeapMemoryHigh"': """    Alert(
        "PulsarProxyGreeting", "pip-442", "warning", "up == 0", "1m", "nobody says greeting", "Say greeting.",
    ),
"""
            },
            "docs/runbooks/PulsarProxyGreeting.md": {
                None: """# PulsarProxyGreeting

<!-- alerts: written by scripts/generate_alerts.py from scripts/alert_table.py, do not edit -->
<!-- alerts: end -->
"""
            },
            "tests/unit/monitoring/alert_cases.py": {
                '    Case(\n        "PulsarProxyHeapMemoryHigh", "warning"': """    Case(
        "PulsarProxyGreeting", "warning", {"up{S}": "0x60"}, "nobody says greeting", ({"up{S}": "1x60"},),
        begins_seconds=60,
    ),
"""
            },
        },
        """
import runpy
from scripts.alert_table import names
assert "PulsarProxyGreeting" in names()
cases = runpy.run_path("tests/unit/monitoring/alert_cases.py")["CASES"]
assert "PulsarProxyGreeting" in {case.alert for case in cases}
""",
        {"alerts": "docs/monitoring.md"},
    ),
}


def recipes() -> dict[str, set[str]]:
    """Return the files that each recipe of the page names, by its heading."""
    _, _, text = PAGE.partition("\n## To add")
    parts = re.split(r"(?m)^### ", text.partition("\n## ")[0])[1:]
    return {part.partition("\n")[0]: {link or name for link, name in TOUCHED.findall(part)} for part in parts}


def edited(text: str, edits: Mapping[str | None, str]) -> str:
    """Return the text with each insertion; fails unless the place of each stands exactly once."""
    for before, insertion in edits.items():
        if before is None:
            text += insertion
            continue
        assert text.count(before) == 1, f"expected once: {before!r}"
        text = text.replace(before, insertion + before)
    return text


def run(directory: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=directory, capture_output=True, text=True, timeout=PROOF_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy what the recipes change and run."""
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    cases = "tests/unit/monitoring/alert_cases.py"
    (tmp_path / cases).parent.mkdir(parents=True)
    shutil.copy(ROOT / cases, tmp_path / cases)
    # The charts link to the licence.
    for name in ("proxy.conf", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def test_the_page_has_these_recipes_and_no_others() -> None:
    assert recipes().keys() == RECIPES.keys()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_names_the_files_that_it_takes(name: str) -> None:
    assert recipes()[name] == set(RECIPES[name].edits)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_works_with_the_files_that_it_names(name: str, checkout: Path) -> None:
    recipe = RECIPES[name]
    for file, edits in recipe.edits.items():
        path = checkout / file
        path.write_text(edited(path.read_text("utf-8") if path.exists() else "", edits), "utf-8")
    for generator, page in recipe.generators.items():
        assert "greeting" not in (checkout / page).read_text("utf-8").lower()
        run(checkout, "-m", "scripts.generate", "--only", generator)
        assert "greeting" in (checkout / page).read_text("utf-8").lower()
    run(checkout, "-c", recipe.proof)
