"""The path of one topic list through the proxy's modules: counted, and shown in docs/architecture.md.

A GET_TOPICS_OF_NAMESPACE passes through a whole proxy without an event log; its client and its broker live on other
threads, so that the calls on the loop's thread are the proxy's. The rule of counting:

- An entry is a call from another module of `proxy`, the start of a task, or a callback of the loop.
- An entry is a *hop* if it leads on: from there a further module of `proxy` is entered. A call that ends where it
  arrives (a counter, a check, a property, an estimate) is a use of that module, no step of the path.
- The same function entered from the same module counts once. Returning is no hop.
- `protocol` and `limiter` are cores, whose calls end in themselves; telemetry measures the path and is no part of it.

The page has the numbers of hops and of their files. The first trace had 33 hops in 15 files, the best one 18. Three
came since: one notes where the socket's bytes count, since clocks are coarse (docs/adr/0044-fixed-price.md); two charge
the bytes of a command and end that charge (docs/adr/0068-turns-for-command-memory.md). Beside the files of hops there
are those of uses: all modules of ours but telemetry that are entered are counted, too, and bounded.
"""

import asyncio
import re
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import pytest

from proxy.app import proxy as app
from proxy.app.proxy import Proxy
from proxy.cli.demo.broker import EmbeddedBroker
from proxy.cli.demo.topics import GeneratedTopics
from proxy.core.log import open_log
from tests.support.clients.async_client import eventually
from tests.support.clients.wire import WireClient
from tests.support.proxies.proxy_under_test import config_for, namespace

ROOT = Path(__file__).resolve().parents[2]
OURS = tuple(f"{ROOT / name}/" for name in ("proxy", "protocol", "limiter"))
CORES = ("protocol/", "limiter/")
TELEMETRY = ("proxy/telemetry/", "proxy/app/metrics/")
# All files that one list enters. A file more is a file more to read; say in the commit why it has to be.
MOST_FILES = 42

# The figures of the page, and its list.
COUNTED = re.compile(r"^.*\b(\d+) hops in (\d+) files\.$", re.MULTILINE)
SHOWN = re.compile(r"^\d+\. \[`([\w.]+)`\]\(\.\./(proxy/[\w/]+\.py)\)", re.MULTILINE)

# A function, as its file and its qualified name.
Step = tuple[str, str]
# Where calls of the event loop come from.
THE_LOOP: Step = ("", "")


def step_of(code: CodeType) -> Step:
    return code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname


def is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(OURS) and "/pb/" not in code.co_filename


@dataclass
class Trace:
    """The calls of one thread among our functions, each pair of caller and called once, in their order."""

    calls: dict[tuple[Step, Step], None] = field(default_factory=dict)

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not is_ours(frame.f_code):
            return
        caller = frame.f_back
        while caller is not None and not is_ours(caller.f_code):
            caller = caller.f_back
        self.calls[THE_LOOP if caller is None else step_of(caller.f_code), step_of(frame.f_code)] = None

    def files(self) -> set[str]:
        return {file for _, (file, _) in self.calls if not measures(file)}

    def hops(self) -> list[Step]:
        calls = [call for call in self.calls if not any(passed_over(step) for step in call)]
        entries = dict.fromkeys((source[0], to) for source, to in calls if source[0] != to[0] and leads_on(to, calls))
        return [to for _, to in entries]


def passed_over(step: Step) -> bool:
    """Return whether a function is a core's, or one that measures."""
    return step[0].startswith(CORES) or measures(step[0])


def measures(file: str) -> bool:
    """Return whether a file is telemetry, or the counters of a room."""
    return file.startswith(TELEMETRY) or file.endswith("/counters.py")


def leads_on(step: Step, calls: list[tuple[Step, Step]], seen: frozenset[Step] = frozenset()) -> bool:
    """Return whether another module is entered from `step`, by itself or by what it calls in its own."""
    reached = [to for source, to in calls if source == step and to not in seen]
    return any(to[0] != step[0] or leads_on(to, calls, seen | {step}) for to in reached)


class BrokerThread:
    """An embedded broker on a loop and a thread of its own."""

    def __enter__(self) -> Self:
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        self._started.wait()
        return self

    async def _run(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        async with EmbeddedBroker(GeneratedTopics(2, 1_000, 50)) as broker:
            self.port = broker.port
            self._started.set()
            await self._stopping.wait()

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()


def lists_ended(proxy: Proxy) -> int:
    """Return how many lists were answered whose requests hold nothing any more."""
    return proxy.counters.requests.list_outcomes["answered"] - proxy.services.requests.lookups.concurrency.held


async def trace_of_one_list() -> Trace:
    trace = Trace()
    with BrokerThread() as broker:
        proxy = Proxy(config_for(f"pulsar://127.0.0.1:{broker.port}"), open_log("error", "json"))
        await proxy.start()
        client = await asyncio.to_thread(WireClient, "127.0.0.1", proxy.port)
        try:
            await asyncio.to_thread(client.connect)
            # The first list opens the connection to the broker.
            await asyncio.to_thread(client.get_topics, namespace(0))
            await eventually(lambda: lists_ended(proxy) == 1, "the end of the first list")
            sys.setprofile(trace.note)
            await asyncio.to_thread(client.get_topics, namespace(0))
            await eventually(lambda: lists_ended(proxy) == 2, "the end of the list")
        finally:
            sys.setprofile(None)
            client.close()
            await proxy.stop()
    return trace


@pytest.fixture
async def trace(monkeypatch: pytest.MonkeyPatch) -> Trace:
    # The work of each second belongs to no list.
    monkeypatch.setattr(app, "TICK_SECONDS", 3600.0)
    return await trace_of_one_list()


def page() -> str:
    return (ROOT / "docs" / "architecture.md").read_text()


async def test_architecture_shows_the_path_of_a_topic_list(trace: Trace) -> None:
    hops = trace.hops()
    assert [(file, name) for name, file in SHOWN.findall(page())] == hops
    assert COUNTED.findall(page()) == [(str(len(hops)), str(len({file for file, _ in hops})))]


async def test_a_topic_list_enters_few_files(trace: Trace) -> None:
    assert len(trace.files()) <= MOST_FILES, "\n".join(sorted(trace.files()))
