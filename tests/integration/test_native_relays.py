"""The native engine in a whole proxy: which relays it takes, what happens without room, what a dead thread means."""

import asyncio
import errno
import fcntl
import itertools
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.serve import THREAD_DIED
from proxy.core.loop_budget import ITERATION_SECONDS
from proxy.core.native import ENGINE_ABI
from proxy.relay.engine import Relay
from proxy.relay.native_engine import NativeEngine
from proxy.web.admin.connections import connection_row
from tests.integration.test_direct_mode import greet, joined
from tests.integration.test_leaving import embedded
from tests.support.brokers.raw_broker import raw_broker
from tests.support.clients.async_client import LOOPBACK, connect_frame, eventually
from tests.support.patience import PATIENCE_SECONDS, patient
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.proxies.running_proxy import child_proxy
from tests.support.sockets.frames import send
from tests.support.sockets.producer_frames import producer_frame
from tests.support.tools import native_extension

KIB = 1024
# What a process loads instead of the extension: an engine whose only thread stands still, and dies at the first pair.
DYING = f"""
import os
__version__, ENGINE_ABI, RECORD = "9", {ENGINE_ABI}, "<Q"

class SlotBooks:
    def set_max_pause_millis(self, millis):
        pass

class RelayEngine:
    def __init__(self, threads, buffer_bytes, *_):
        self.event_fd, self.waiting = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK), []

    def join(self, *_):
        self.waiting = [(7, 0, 0, 0, 0, 0, 0)]
        os.eventfd_write(self.event_fd, 1)
        raise RuntimeError("no thread")

    def events(self, most):
        waiting, self.waiting = self.waiting, []
        if waiting:
            os.eventfd_read(self.event_fd)
        return waiting

    def beats(self):
        return [60_000]

    def socket_memory(self):
        return 0, 0

    def stop(self):
        pass
"""


@asynccontextmanager
async def native(**keys: Any) -> AsyncIterator[tuple[Stage, NativeEngine]]:
    """Run a proxy whose relays are native, or skip the test."""
    native_extension()
    async with staged(**keys) as stage:
        engine = stage.proxy.relay_engines.native
        assert engine is not None
        yield stage, engine


def refusals(stage: Stage) -> int:
    return counted(stage.proxy.counters, "relay_native_refusals")


# --- no room --------------------------------------------------------------------------------------


@pytest.mark.threat("no-descriptor-hand-over")
@pytest.mark.parametrize("left", [0, 1])
async def test_a_pair_without_descriptors_for_the_hand_over_ends_and_is_counted(
    left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with native() as (stage, engine):
        duplicates, usual = iter(range(left)), fcntl.fcntl

        def full(fd: int, *asked: int) -> int:
            if next(duplicates, None) is None:
                raise OSError(errno.EMFILE, "too many open files")
            return usual(fd, *asked)

        monkeypatch.setattr(fcntl, "fcntl", full)
        before = stage.books()
        client = await stage.client()
        await client.send(connect_frame(f"{LOOPBACK}:{stage.broker.port}"))
        assert await client.rest() == b""
        assert (refusals(stage), len(engine)) == (1, 0)
        monkeypatch.undo()
        await stage.until(lambda: stage.books() == before, "nothing left of it")
        await (await stage.relayed()).ping()
        assert (refusals(stage), len(engine)) == (1, 1)


async def test_a_row_says_how_long_a_relay_is_idle_and_what_the_kernel_passed_on() -> None:
    async with native() as (stage, _), raw_broker(greet) as broker:
        pair = await joined(stage, broker)
        payload = send(bytes(4 * KIB * KIB))
        async with asyncio.TaskGroup() as group:
            group.create_task(pair.broker.send(payload))
            assert await pair.client.receive(len(payload)) == payload
        sessions = stage.proxy.sessions
        (number,) = sessions.registry.ids(0, 2)
        entry = sessions.registry.find(number)
        assert entry is not None

        def row() -> Mapping[str, Any]:
            return connection_row(entry, sessions, stage.proxy.loop.time(), str)

        # A thread counts what the kernel has passed on after the client may have read it.
        await stage.until(lambda: row()["to_client_bytes"] == len(payload), "all bytes counted")
        assert 0 < row()["spliced_bytes"] <= len(payload)
        await stage.until(lambda: row()["idle_seconds"] > 0, "a moment without a byte")


# --- questions of the threads ---------------------------------------------------------------------


def producers_seen(relays: list[Relay], count: int) -> None:
    """Wait without a turn of the loop until the thread has seen a PRODUCER of so many."""
    until = time.monotonic() + patient(PATIENCE_SECONDS)
    while sum(relay.produces for relay in relays) < count:
        assert time.monotonic() < until, "no PRODUCER seen"
        time.sleep(0.0005)


@pytest.mark.threat("producer-open-storm")
async def test_a_neighbours_producer_gets_its_slot_before_most_of_a_storm() -> None:
    async with native(numIOThreads=1) as (stage, engine), raw_broker(greet) as broker:
        slots = stage.proxy.relay_engines.slots
        assert slots is not None
        slots.enabled = True
        half = [LOOPBACK] * 20
        clients = [await stage.client(source=source) for source in (*half, "127.0.0.2", *half)]
        for client in clients:
            await client.connect(target=f"{LOOPBACK}:{broker.port}")
        await stage.until(lambda: len(engine) == len(clients), "all pairs in the engine")
        relays = list(stage.proxy.sessions.all_relays())
        # Each look takes a part of the iteration's time, on a quick machine, too.
        looks = itertools.count()
        stage.proxy.core.loop_budget.now = lambda: next(looks) * ITERATION_SECONDS / 2
        # Without a turn of the loop: the thread has asked about all of them before the first answer.
        for number, client in enumerate(clients):
            client.send_now(producer_frame(b"%d" % number, 1))
            producers_seen(relays, number + 1)
        await stage.until(lambda: len(slots) == len(clients), "a slot for each")
        topics = [sample.topic for sample in slots.walk() if sample.topic]
        assert topics.index(str(len(half))) < len(half) // 2, topics


# --- the end of a thread --------------------------------------------------------------------------


@pytest.mark.threat("relay-thread-ends")
async def test_a_thread_that_dies_ends_the_process_in_order_and_one_that_stands_is_unhealthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pulsar_proxy_native.py").write_text(DYING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    keys = {
        "brokerProxyAllowedTargetPorts": "*",
        "shutdownDrainMillis": 500,
        "relayMemoryPoolMB": -1,
    }
    async with embedded() as broker, child_proxy(tmp_path, broker, **keys) as proxy:
        await eventually(lambda: proxy.said("a relay thread stands still"), "a look at the threads")
        answer = await proxy.get("/healthz")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert answer.rstrip().endswith(b"relay thread 0 stands still for 60 s")
        client = await proxy.client()
        await client.send(connect_frame(f"{LOOPBACK}:{broker.port}"))
        assert await proxy.exit_code() == THREAD_DIED
        (line,) = proxy.lines("a relay thread has died: the proxy ends, because it cannot relay reliably")
        assert (line["level"], line["thread"]) == ("error", 0)
        assert proxy.said("stopped")
