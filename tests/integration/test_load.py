"""The load tests as their user meets them: files, an exit code that judges, and nothing left running.

Locust lives in child processes only. Runs end by the number of requests, not by the time, so a slow machine is only
slower; the bound on PING latency is far away.
"""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from protocol.command_type import CommandType
from protocol.errors import ServerError
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.script import Failure, Script
from tests.support.brokers.embedded.topics import GeneratedTopics

ROOT = Path(__file__).parents[2]
SCENARIOS = ("reconnect_storm", "slow_readers", "mixed_tenants")
BOUNDED = [
    "--seconds=600",
    "--ramp-seconds=1",
    "--most-requests=60",
    "--users=8",
    "--gust-seconds=0.2",
    "--max-ping-p99-ms=60000",
]
GET_TOPICS = CommandType.GET_TOPICS_OF_NAMESPACE


async def started(*options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.load", *options,
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip


async def load(out: Path, *options: str) -> tuple[int, str]:
    process = await started(f"--out={out}", *BOUNDED, *options)
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
    assert process.returncode is not None
    return process.returncode, output.decode()


def verdict(out: Path, scenario: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / f"{scenario}.promises.json").read_text())
    return found


@asynccontextmanager
async def broker(script: Script) -> AsyncIterator[str]:
    """Run a broker that has the orders of `script`, and give its URL."""
    async with EmbeddedBroker(GeneratedTopics(namespaces=1, topics=10, name_bytes=100), script) as serving:
        yield serving.service_url


def at(url: str) -> list[str]:
    return [f"--url={url}", "--scenario=mixed_tenants", "--namespaces=demo/ns-0", "--topics=10"]


async def test_all_scenarios_keep_their_promises_and_leave_files(tmp_path: Path) -> None:
    code, output = await load(tmp_path)
    assert code == 0, output
    for scenario in SCENARIOS:
        seen = verdict(tmp_path, scenario)
        assert (seen["kept"], seen["broken"], seen["lost"], seen["refused"]) == (True, [], 0, 0)
        assert seen["asked"] >= 60
        assert f"{scenario:16}  kept: {seen['asked']} asked" in output
        names = {entry["name"] for entry in json.loads((tmp_path / f"{scenario}.json").read_text())}
        assert {"CONNECT", "PING"} < names
        assert (tmp_path / f"{scenario}_stats.csv").read_text().startswith("Type,Name,Request Count")
        assert "<html" in (tmp_path / f"{scenario}.html").read_text()


async def test_refusals_above_the_promise_give_exit_code_1(tmp_path: Path) -> None:
    script = Script(failures={GET_TOPICS: Failure(ServerError.TooManyRequests, "no memory")})
    async with broker(script) as url:
        code, output = await load(tmp_path, *at(url))
    assert code == 1, output
    seen = verdict(tmp_path, "mixed_tenants")
    assert seen["refused"] > 0
    assert seen["lost"] == 0
    assert "BROKEN  refusals: got" in output
    assert "TooManyRequests('no memory')" in (tmp_path / "mixed_tenants_failures.csv").read_text()


async def test_answers_under_foreign_request_ids_and_lost_requests_give_exit_code_1(tmp_path: Path) -> None:
    async with broker(Script(unknown_request_id={GET_TOPICS})) as url:
        code, output = await load(tmp_path, *at(url), "--answer-seconds=3", "--max-refusals=1000000")
    assert code == 1, output
    seen = verdict(tmp_path, "mixed_tenants")
    assert seen["unasked"] > 0
    assert seen["lost"] > 0
    assert seen["promises"]["max_refusals"] == 1000000


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--url=http://127.0.0.1:1"], 2, "expected pulsar://host:port"),
        (["--url=pulsar://127.0.0.1:1", "--namespaces=nothing"], 2, "expected tenant/namespace"),
        (["--proxy-set=maxMessageSize=none"], 1, "the demo did not start"),
    ],
)
async def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: list[str], code: int, text: str) -> None:
    found, output = await load(tmp_path, "--scenario=mixed_tenants", *options)
    assert (found, text in output) == (code, True), output


async def test_a_load_test_that_is_ended_leaves_nothing(tmp_path: Path) -> None:
    process = await started(f"--out={tmp_path}", "--seconds=300", "--scenario=slow_readers")
    assert process.stdout is not None
    assert (await process.stdout.readline()).startswith(b"load on pulsar://127.0.0.1:")
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    # The demo, its broker and its proxy at least; Locust, too, unless the signal came before it was started.
    assert len(children) >= 3
    assert [child for child in children if child.is_running()] == []
