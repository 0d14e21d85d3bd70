"""A running proxy: ObserveOnly, files of the kernel that vanish, and whose memory counts as whose."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from proxy.app.metrics.prometheus import ProxyMetrics
from proxy.relay.engine import PauseReason
from tests.integration.test_counted_relays import SMALL, TOPIC
from tests.integration.test_direct_mode import Pair, greet
from tests.integration.test_overload_joined import (
    ADAPTIVE,
    LIMIT,
    LONG,
    THRESHOLD,
    Sender,
    held,
    natural_rates,
    pressed,
    producing,
    relays,
    released,
)
from tests.support.brokers.raw_broker import raw_broker
from tests.support.patience import patient
from tests.support.proxies.proxy_under_test import Stage, kept_log, staged
from tests.support.proxies.relays import TO_BROKER
from tests.support.web.fake_web_broker import Answer, fake_web_broker

# What the kernel takes for a receiver that reads nothing; an idle socket has some KiB.
MUCH = 100_000
ACTIVE = "pulsar_proxy_adaptive_throttle_active_topic_count"


def number_of(stage: Stage, name: str) -> float:
    """Return a metric as the page shows it."""
    text = ProxyMetrics("c", stage.proxy.counters).render().decode()
    (found,) = [line.split()[-1] for line in text.splitlines() if line.startswith(name + "{")]
    return float(found)


async def test_a7_observe_only_is_a_circuit_breaker_of_a_running_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = kept_log(monkeypatch)
    async with pressed(tmp_path, monkeypatch, ADAPTIVE) as (stage, broker, pressure):
        control, counters = stage.proxy.overload.control, stage.proxy.overload.counters
        assert control is not None

        def stopped() -> bool:
            return any(relay.snapshot().paused[TO_BROKER] & PauseReason.RATE for relay in relays(stage))

        sender = Sender(await producing(stage, broker), (1,))
        async with asyncio.TaskGroup() as group:
            group.create_task(sender.send())
            group.create_task(sender.receive())
            await stage.until(lambda: natural_rates(control).get(TOPIC, 0) > 150_000, "a natural rate")
            stage.change(adaptivePublisherThrottlingObserveOnly="true")
            pressure.set(0.9)
            # Operators look for this line before they have it act (docs/overload.md).
            await stage.until(
                lambda: any(line["event"].startswith("would-activate: ") for line in log.said), "what would be"
            )
            assert not stopped()
            stage.change(adaptivePublisherThrottlingObserveOnly="false")
            await stage.until(stopped, "a client without tokens")
            assert number_of(stage, ACTIVE) == 1

            # The breaker: pressure is as it was.
            stage.change(adaptivePublisherThrottlingObserveOnly="true")
            await stage.until(lambda: not stopped(), "a client that is read")
            done = counters.adaptive.evaluations
            await stage.until(lambda: counters.adaptive.evaluations > done + 3, "more evaluations")
            assert not stopped()
            assert (number_of(stage, ACTIVE), counters.activations, counters.adaptive.failures) == (0, 1, 0)
            assert control.memory_pressure == 1.0
            sender.stopped = True
        assert sender.received == sender.sent


async def test_producers_are_released_when_the_files_of_the_cgroup_vanish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pressed(tmp_path, monkeypatch, THRESHOLD | LONG) as (stage, broker, pressure):
        pair = await producing(stage, broker)
        pressure.set(0.9)
        await held(stage)
        await pair.client.send(SMALL)
        failures = stage.proxy.overload.counters.signal_failures
        assert failures["proxy"] == 0
        for name in ("cgroup", "memory.max", "memory.stat"):
            (tmp_path / name).unlink()
        assert await pair.broker.receive(len(SMALL)) == SMALL
        await released(stage)
        assert failures["proxy"] > 5
        (tmp_path / "cgroup").write_text("0::/\n")
        (tmp_path / "memory.max").write_text(f"{LIMIT}\n")
        pressure.set(0.9)
        await held(stage)


async def garbage(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="garbage")


async def silent(_: web.BaseRequest) -> web.StreamResponse:
    await asyncio.sleep(patient(60))
    return web.Response()


async def full(_: web.BaseRequest) -> web.StreamResponse:
    return web.json_response([{"metrics": {"jvm_heap_used": 95, "jvm_max_memory": 100}}])


@pytest.mark.threat("garbage-load-statistics")
@pytest.mark.parametrize("bad", [garbage, silent])
async def test_producers_are_released_while_brokers_tell_nothing_that_can_be_used(
    bad: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.overload.signal_watch.BROKER_SECONDS", 0.02)
    monkeypatch.setattr("proxy.brokers.admin_port.ANSWER_SECONDS", patient(0.2))
    async with fake_web_broker(full) as brokers, raw_broker(greet) as broker:
        keys: dict[str, Any] = THRESHOLD | LONG | {"overloadSignals": "brokers", "brokerWebServiceURL": brokers.url}
        async with staged(**keys) as stage:
            pair = await producing(stage, broker)
            await held(stage)
            await pair.client.send(SMALL)
            brokers.answer = bad
            assert await pair.broker.receive(len(SMALL)) == SMALL
            await released(stage)
            # And held again for what is known.
            brokers.answer = full
            await held(stage)
            pair.client.reset()
            pair.broker.reset()
            await stage.until(lambda: not len(stage.proxy.sessions), "no session")


def owners_of(stage: Stage) -> Mapping[str, int]:
    control = stage.proxy.overload.control
    assert control is not None
    return control.signals.owners


async def grown(stage: Stage, owner: str, pour: Callable[[], object]) -> Mapping[str, int]:
    """Pour bytes until an owner has many; return the bytes of all owners."""

    def enough() -> bool:
        pour()
        return owners_of(stage).get(owner, 0) > MUCH

    await stage.until(enough, f"many bytes that counts as {owner}")
    return owners_of(stage)


async def test_what_a_paused_producer_has_sent_is_unread_and_nobody_elses() -> None:
    keys: dict[str, Any] = {**THRESHOLD, "relayMemoryPoolMB": -1}
    async with staged(**keys) as stage, raw_broker(greet) as broker:
        pair = await producing(stage, broker)
        (relay,) = relays(stage)
        relay.pause(TO_BROKER, PauseReason.POOL)
        owners = await grown(stage, "unread", lambda: pair.client.send_now(bytes(65_536)))
        assert owners["towards_clients"] < MUCH / 4
        assert owners["towards_brokers"] < MUCH / 4
        await left(stage, pair)


async def test_what_brokers_have_sent_counts_towards_clients_wherever_it_waits() -> None:
    keys: dict[str, Any] = {**THRESHOLD}
    async with staged(**keys) as stage, raw_broker(greet) as broker:
        pair = await producing(stage, broker)

        def pour() -> int:
            return pair.broker.send_now(bytes(65_536))

        engines = stage.proxy.relay_engines
        await stage.until(lambda: pour() < 0 or engines.weighed.towards_brokers > MUCH, "a receive queue")
        # The looks at sockets and at relays are a second apart at most.
        await grown(stage, "towards_clients", pour)
        await stage.until(lambda: owners_of(stage)["towards_brokers"] < MUCH / 4, "a look at receive queues")
        owners = owners_of(stage)
        assert owners["towards_clients"] > MUCH
        assert owners["unread"] < MUCH / 4
        await left(stage, pair)


async def left(stage: Stage, pair: Pair) -> None:
    pair.client.reset()
    pair.broker.reset()
    await stage.until(lambda: not len(stage.proxy.sessions), "no session")
