"""Run the scene under a real Prometheus, and ask it what the dashboard would ask.

Rule: Prometheus listens on 127.0.0.1, keeps its data in a directory that goes with it, and is ended by its process id,
whatever happens. Grafana's variables get the values that it would give them.
"""

import asyncio
import json
import math
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

import trustme
import uvloop
from aiohttp import web

from benchmarks.dashboard.scene import CERTIFICATE_DAYS, KEYS, TENANTS, Scene, TenantTopics
from proxy.cli.demo.broker import LOOPBACK, EmbeddedBroker, raise_file_limit
from scripts.dashboard_table import ROWS, Panel
from scripts.generate_alerts import RULES
from tests.support.auth.tls import PemFiles
from tests.support.promql import substituted
from tests.support.proxies.running_proxy import child_proxy
from tests.support.web.fake_web_broker import fake_web_broker

SCRAPE_SECONDS: Final = 1
STEP_SECONDS: Final = 1
# The web service of the brokers: statistics of this size; of every tenth topic there are none.
STATISTICS_BYTES: Final = 20_000
RATE_SECONDS: Final = 6
READY_SECONDS: Final = 30.0

Json = dict[str, Any]


class NoPrometheus(Exception):
    """There is no Prometheus here, or it did not start."""


@contextmanager
def prometheus(directory: Path, target: str) -> Iterator[str]:
    """Run a Prometheus that scrapes `target` and has our rules; gives its URL."""
    program = shutil.which("prometheus")
    if program is None:
        raise NoPrometheus("no prometheus here: apt-get install -y --no-install-recommends prometheus")
    with socket.create_server((LOOPBACK, 0)) as free:
        address = f"{LOOPBACK}:{free.getsockname()[1]}"
    settings = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": "5s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "proxy", "static_configs": [{"targets": [target]}]}],
    }
    config = directory / "prometheus.yml"
    config.write_text(json.dumps(settings))
    given = [f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address={address}"]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([program, *given], stdout=log, stderr=log)
    try:
        _wait_until_ready(f"http://{address}", process, directory / "prometheus.log")
        yield f"http://{address}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(f"{url}/-/ready", timeout=2):
                return
        except OSError:
            time.sleep(0.1)
    raise NoPrometheus(f"prometheus did not start\n{log.read_text(errors='replace')[-1000:]}")


def record() -> Json:
    """Run the scene and return all panels with their lines; raises NoPrometheus."""
    raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_recorded())


async def _recorded() -> Json:
    store = TenantTopics(TENANTS)
    with tempfile.TemporaryDirectory(prefix="pulsar-proxy-picture-") as name:
        directory = Path(name)
        soon = datetime.now(UTC) + timedelta(days=CERTIFICATE_DAYS)
        keys = PemFiles.write(directory / "tls", trustme.CA().issue_cert(LOOPBACK, not_after=soon)).server_keys
        async with EmbeddedBroker(store) as broker, fake_web_broker() as web_service:
            web_service.answer = _statistics
            keys |= {"brokerWebServiceURL": web_service.url}
            async with child_proxy(directory, broker, **KEYS, **keys) as proxy:
                tls_port = (await proxy.child.said("tls_port"))["tls_port"]
                with prometheus(directory, f"{LOOPBACK}:{proxy.web_port}") as url:
                    begin = time.time()
                    await Scene(store, proxy.port, tls_port, proxy.web_port, broker.port).play()
                    return await asyncio.to_thread(asked, url, begin + RATE_SECONDS, time.time())


async def _statistics(request: web.BaseRequest) -> web.StreamResponse:
    if request.path.endswith("t-9/stats"):
        return web.json_response({"reason": "Topic not found"}, status=404)
    return web.json_response({"publishers": ["x" * STATISTICS_BYTES]})


def asked(url: str, begin: float, end: float) -> Json:
    """Ask Prometheus for every panel, from `begin` to `end` (Unix seconds)."""
    rows = [
        {"question": row.question, "panels": [_panel(url, panel, begin, end) for panel in row.panels]} for row in ROWS
    ]
    firing = _range(url, 'ALERTS{alertname=~"PulsarProxy.*"}', begin, end)
    return {"begin": begin, "end": end, "rows": rows, "alerts": [found["metric"] for found in firing]}


def _panel(url: str, panel: Panel, begin: float, end: float) -> Json:
    lines = []
    for query in panel.queries:
        expression = substituted(query.expression.replace("$__rate_interval", f"{RATE_SECONDS}s"))
        for found in _range(url, expression, begin, end):
            lines.append({"name": _legend(query.legend, found["metric"]), "points": _points(found["values"], begin)})
    return {
        "title": panel.title, "unit": panel.unit, "kind": panel.kind, "width": panel.width, "stacked": panel.stacked,
        "most": panel.most, "lines": lines,
    }  # fmt: skip


def _points(values: list[tuple[float, str]], begin: float) -> list[tuple[float, float]]:
    """Return seconds since the beginning, and numbers; NaN is no sample."""
    numbers = ((moment - begin, float(text)) for moment, text in values)
    return [(seconds, number) for seconds, number in numbers if math.isfinite(number)]


def _legend(template: str, labels: Mapping[str, str]) -> str:
    for name, value in labels.items():
        template = template.replace(f"{{{{{name}}}}}", value)
    return template


def _range(url: str, query: str, begin: float, end: float) -> list[Json]:
    asked_for = urlencode({"query": query, "start": begin, "end": end, "step": STEP_SECONDS})
    with urlopen(f"{url}/api/v1/query_range?{asked_for}", timeout=30) as answer:
        result: list[Json] = json.load(answer)["data"]["result"]
    return result
