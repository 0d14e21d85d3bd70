"""A storm from one end to the other: clients, the proxy, its files and its topic, every job, and the page.

What the page and the tables say of the storm is what the proxy itself had counted. A job is a process of its own, as a
user starts it.
"""

import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from pipeline.errors import ExitCode
from tests.pulsar import storm
from tests.pulsar.admin import Admin
from tests.pulsar.event_topics import EventTopic
from tests.pulsar.pages import proxy_metrics, wait_until_whole
from tests.pulsar.proxy_process import host_and_port, run_proxy
from tests.pulsar.standalone import Broker
from tests.pulsar.test_topic_ingest import MOST_STARTS, PATIENCE_SECONDS, ROOT, SLOW_MACHINE, SMALL_AND_QUICK
from tests.support.html_pages import Page

pytestmark = [
    pytest.mark.pulsar,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(os.environ.get("TEST_DIRECT") == "1", reason="TEST_DIRECT=1: there is no proxy"),
]

REQUESTS = 300
CONNECTIONS = 150
PARTITIONS = 64
KEYS = {
    # Heap memory for some 70 estimates at a time, and a short line: the others are refused at once.
    "maxTopicListInFlightHeapMemSizeMB": "1",
    "maxTopicListInFlightDirectMemSizeMB": "1",
    "maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize": "20",
    # A slow machine must not be what refuses.
    "topicListRequestTimeoutMillis": "110000",
    "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis": "110000",
    "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis": "110000",
    "eventLogFlushMillis": "50",
    "eventLogProxyId": "the-proxy",
}


@dataclass(frozen=True, slots=True)
class Counted:
    """What the proxy had counted when the storm was over."""

    answered: int
    refused: int


async def recorded(broker: Broker, topic: EventTopic, namespace: str, directory: Path) -> Counted:
    """Storm a proxy that logs to both sinks; it has ended, and all is written, when this returns."""
    keys = KEYS | {"eventLogDirectory": str(directory / "events"), "eventLogTopic": topic.name}
    # No two are equal: each is a question of its own.
    asked = [storm.request(namespace, marker=str(number)) for number in range(REQUESTS)]
    with run_proxy(directory, broker, keys) as proxy:
        await asyncio.to_thread(wait_until_whole, proxy)
        outcome = await storm.storm(host_and_port(proxy.service_url), asked, CONNECTIONS, REQUESTS // CONNECTIONS)
        metrics = await asyncio.to_thread(proxy_metrics, proxy)
    answered = int(metrics("lists_answers_total", outcome="answered"))
    refused = sum(int(metrics("lists_queue_full_total", limiter=limiter)) for limiter in ("heap", "direct"))
    assert (outcome.answered, outcome.errors.total(), outcome.lost) == (answered, refused, 0)
    assert answered + refused == REQUESTS
    return Counted(answered, refused)


def job(name: str, directory: Path, *words: str) -> tuple[int, str]:
    """Run a job to its end; give its exit code and what it printed."""
    command = [sys.executable, "-m", "pipeline.cli", name, "--out", str(directory / "tables"), "--master", "local[2]"]
    command += [*words, *(word for item in SMALL_AND_QUICK.items() for word in ("--conf", "=".join(item)))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(MOST_STARTS):
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
            env=environment, timeout=2 * PATIENCE_SECONDS, check=False,
        )  # fmt: skip
        if SLOW_MACHINE not in done.stdout:
            break
    return done.returncode, done.stdout


def total(directory: Path, table: str, column: str) -> int:
    found = ds.dataset(directory / "tables" / table, partitioning="hive").to_table(columns=[column])
    return int(pc.sum(found[column]).as_py())


async def test_what_the_report_says_of_a_storm_is_what_the_proxy_counted(
    broker: Broker, admin: Admin, namespace: str, tmp_path: Path
) -> None:
    topic = EventTopic(broker.service_url, admin, namespace, 2)
    admin.create_topic(f"persistent://{namespace}/listed", PARTITIONS)
    counted = await recorded(broker, topic, namespace, tmp_path)
    assert counted.answered > 0
    assert counted.refused > 0

    source = f"{broker.service_url}/{topic.name.removeprefix('persistent://')}"
    code, said = job("ingest", tmp_path, "--source", source, "--admin-url", broker.admin_url)
    assert code == ExitCode.OK, said
    assert f"{REQUESTS} read: {REQUESTS} kept, 0 duplicates" in said

    # The files have the same events, which are there already.
    grid = ("--load", "1", "--fleet", "1", "--heap-mb", "2,4", "--direct-mb", "2")
    code, said = job("run", tmp_path, "--source", str(tmp_path / "events"), *grid)
    # Whether there is advice depends on how busy the machine was; nothing else does.
    assert code in (ExitCode.OK, ExitCode.CALIBRATION) or "run: advise failed" in said, said
    assert f"{REQUESTS} read: 0 kept, {REQUESTS} duplicates" in said

    for table in ("usage", "arrivals"):
        assert total(tmp_path, table, "requests") == REQUESTS
        assert total(tmp_path, table, "refused") == counted.refused
    page = Page((tmp_path / "tables" / "report.html").read_text(encoding="utf-8"))
    sheets = {found.caption: found.rows for found in page.tables}
    assert ["requests", str(REQUESTS)] in sheets["What the figures rest on"]
    assert ["events lost before they were written", "0"] in sheets["What the figures rest on"]
    refused = sheets["Requests that were not answered"]
    assert sum(int(row[1]) for row in refused) == counted.refused
    assert {row[0].split(" in ")[0] for row in refused} == {"queue full"}
    waits = next(rows for caption, rows in sheets.items() if caption.startswith("Waits of answered requests"))
    assert waits[0][0] == str(counted.answered)
