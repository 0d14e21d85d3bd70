"""Own an event log of its own on the test's loop, before a real broker, and a look at what is in its topic."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pulsar

from proxy.auth.own.plugins import own_credentials
from proxy.config.config import Config
from proxy.core.counters import Counters
from proxy.core.loop_budget import LoopBudget
from proxy.net.tls.files import TlsFiles
from proxy.telemetry.events.log import EventLog, SinkNumbers
from tests.support.clients.async_client import eventually
from tests.support.cores import core_of
from tests.support.log_lines import LogLines
from tests.support.patience import patient, patient_millis
from tests.support.proxies.counted import counted_by

# A topic may move, a broker may come back: only a broken sink needs as long.
PATIENCE_SECONDS = 90.0
RECEIVE_MILLIS = patient_millis(60_000)


@dataclass
class RunningLog:
    """An event log, its numbers and its lines."""

    log: EventLog
    counters: Counters
    told: LogLines
    put: int = 0

    def give(self, count: int) -> None:
        assert self.log.sink is not None
        for _ in range(count):
            self.put += 1
            self.log.sink({"kind": "get_topics", "tenant": "public", "ts_us": self.put})

    @property
    def numbers(self) -> SinkNumbers:
        return self.log.sinks()["topic"]

    def lines(self, event: str) -> list[dict[str, Any]]:
        return self.told.of(event)

    async def written(self, count: int) -> None:
        await eventually(lambda: self.numbers.written >= count, f"{count} events written", PATIENCE_SECONDS)

    async def said(self, event: str) -> dict[str, Any]:
        await eventually(lambda: self.lines(event), f"a line {event!r}", PATIENCE_SECONDS)
        return self.lines(event)[0]


@asynccontextmanager
async def running_log(**keys: str) -> AsyncIterator[RunningLog]:
    """Run an event log until the block ends; then all its events are written or counted."""
    loop, counters, told = asyncio.get_running_loop(), Counters(), LogLines()
    config = Config.load(None, {}, {"eventLogProxyId": "proxy", **keys})
    own = own_credentials(
        config.broker_client_authentication_plugin,
        config.broker_client_authentication_parameters,
        lambda error: None,
        LoopBudget(loop, loop.time),
    )
    tls = TlsFiles(config, counters, told.log)

    def broker_tls() -> ssl.SSLContext:
        return tls.broker_client()

    core = core_of(config=config, counters=counters, log=told.log)
    log = EventLog(core, own, broker_tls, flush_seconds=0.02)
    running = RunningLog(log, counters, told)
    log.start()
    try:
        yield running
    finally:
        await log.close(patient(60))
        await own.close()
    assert counted_by(counters, "internal_errors") == {}
    assert running.numbers.written + running.numbers.dropped == running.put


def events_in(client: pulsar.Client, topic: str, least: int) -> list[dict[str, Any]]:
    """Read a topic from its beginning: `least` events that differ; each of them once, in the order of `seq`."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found: dict[int, dict[str, Any]] = {}
    try:
        while len(found) < least or reader.has_message_available():
            message = reader.read_next(RECEIVE_MILLIS)
            event = json.loads(message.data())
            assert message.properties() == {"schema_version": str(event["schema_version"])}
            found[event["seq"]] = event
    finally:
        reader.close()
    return [found[seq] for seq in sorted(found)]
