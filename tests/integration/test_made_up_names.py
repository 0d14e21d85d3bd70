"""Host names that clients make up hold up no broker that is named by DNS, and no client of another address."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers import resolver
from proxy.brokers.dialer import Dialer
from proxy.core.task_turns import TASKS_PER_TURN
from tests.integration.test_floods import Iterations, noted
from tests.support.brokers.judging_broker import TalkingBroker
from tests.support.brokers.raw_broker import raw_broker
from tests.support.clients.async_client import AsyncClient, connect_frame
from tests.support.patience import patient
from tests.support.proxies.proxy_under_test import TOPIC, Stage, staged
from tests.support.sockets.names import SystemNames

MADE_UP = 8
OTHER_ADDRESS = "127.0.0.2"


@dataclass
class Street:
    """A proxy, its broker, and the name server."""

    stage: Stage
    port: int
    names: SystemNames

    async def make_up(self, kind: str, number: int) -> list[AsyncClient]:
        """Have clients name hosts of their own, each its own name."""
        clients = [await self.stage.client() for _ in range(number)]
        for each, client in enumerate(clients):
            await client.send(connect_frame(f"{kind}-{each}.test:{self.port}"))
        return clients

    @asynccontextmanager
    async def hanging(self) -> AsyncIterator[list[asyncio.Task[pb.BaseCommand]]]:
        """Have clients name hosts that hang, more than run at once; give their answers, which come late."""
        clients = await self.make_up("hanging", MADE_UP)
        await self.stage.until(lambda: len(self.names.asked) >= 3, "names that hang")
        async with asyncio.TaskGroup() as group:
            answers = [group.create_task(client.command()) for client in clients]
            yield answers
            for answer in answers:
                answer.cancel()


@asynccontextmanager
async def street(monkeypatch: pytest.MonkeyPatch, **keys: Any) -> AsyncIterator[Street]:
    """Run a proxy without credentials in front of a broker that lookups call broker-0.test."""
    names = SystemNames(monkeypatch, "127.0.0.1")
    own = TalkingBroker()
    async with raw_broker(own.serve) as broker:
        own.url = f"pulsar://broker-0.test:{broker.port}"
        async with staged(broker_port=broker.port, **keys) as stage:
            assert (await (await stage.connected()).lookup(TOPIC)).brokerServiceUrl == own.url
            yield Street(stage, broker.port, names)
            names.released.set()


@pytest.mark.threat("made-up-names")
async def test_made_up_names_that_hang_keep_nobody_from_a_broker_that_a_lookup_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with street(monkeypatch) as town, town.hanging() as waiting:
        await (await town.stage.client()).connect(target=f"broker-0.test:{town.port}")
        assert not any(answer.done() for answer in waiting)


@pytest.mark.threat("made-up-names")
async def test_made_up_names_that_resolve_drive_out_no_answer_for_a_broker_that_a_lookup_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resolver, "MOST_ANSWERS", 4)
    async with street(monkeypatch) as town:
        for _ in range(2):
            await (await town.stage.client()).connect(target=f"Broker-0.test:{town.port}")
            for client in await town.make_up("wildcard", MADE_UP):
                await client.command()
        assert town.names.asked.count("broker-0.test") == 1


@pytest.mark.threat("names-delay-other-clients")
async def test_names_that_hang_for_one_address_hold_up_no_client_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async with street(monkeypatch) as town, town.hanging() as waiting:
        other = await town.stage.client(source=OTHER_ADDRESS)
        await other.connect(target=f"stranger.test:{town.port}")
        assert not any(answer.done() for answer in waiting)


@pytest.mark.threat("hanging-name-threads")
async def test_names_that_hang_leave_their_threads_to_others_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    # Names that resolve have this long, too, to be given a thread and to come back from it.
    monkeypatch.setattr(resolver, "RESOLVE_SECONDS", patient(0.2))
    async with street(monkeypatch) as town:
        # More of one address than run at once: those behind them have a thread once these are given up.
        crowd = await town.make_up("hanging", MADE_UP)
        for client in crowd:
            assert (await client.command()).type == pb.BaseCommand.ERROR
        await (await town.stage.client()).connect(target=f"stranger.test:{town.port}")
        # One name again and again, and then many.
        for _ in range(4):
            await (await town.make_up("hanging-once", 1))[0].command()
        assert town.names.asked.count("hanging-once-0.test") == 2
        for number in range(5):
            for client in await town.make_up(f"hanging-{number}", MADE_UP):
                await client.command()
        assert len([name for name in town.names.asked if name.startswith("hanging")]) <= 16


@pytest.mark.threat("waiters-in-one-step")
async def test_clients_of_a_name_that_resolves_late_go_on_a_few_in_an_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resolver, "RESOLVE_SECONDS", 600.0)
    async with street(monkeypatch, handshakeTimeoutMillis=600_000) as town:
        clients = [await town.stage.client() for _ in range(100)]
        asked = Iterations()
        noted(monkeypatch, resolver.TargetNames, "resolve", asked)
        for client in clients:
            await client.send(connect_frame(f"hanging.test:{town.port}"))
        await town.stage.until(lambda: asked.counts.total() == len(clients), "all questions for the name")
        asked.close()
        dialed = Iterations()
        noted(monkeypatch, Dialer, "connect", dialed)
        town.names.released.set()
        for client in clients:
            assert (await client.command()).type == pb.BaseCommand.CONNECTED
        dialed.close()
        assert town.names.asked.count("hanging.test") == 1
        assert dialed.counts.total() == len(clients)
        # The look at the number of the iteration may come before or behind the turn.
        assert max(dialed.counts.values()) <= 2 * TASKS_PER_TURN
