"""Both throttles in the running proxy, from a signal that a test injects to the bytes of producers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.commands import PING_FRAME, PONG_FRAME
from proxy.app.overload import OverloadSwitch
from proxy.core.process_memory import MemoryPaths
from proxy.overload import settings
from proxy.overload.control import OverloadControl
from proxy.overload.samples import OwnerBytes, Signals
from proxy.relay.engine import PauseReason, Relay
from tests.integration.test_counted_relays import OPENED, SMALL, TOPIC, passed, slots_of
from tests.integration.test_direct_mode import Pair, greet, joined
from tests.integration.test_relay_contract import told, turns
from tests.support.brokers.raw_broker import RawBroker, raw_broker
from tests.support.clients.async_client import LOOPBACK
from tests.support.patience import patient_millis
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.proxies.relays import TO_BROKER
from tests.support.sockets.producer_frames import bare, close_frame, producer_frame, send_frame, subscribe_frame
from tests.support.web.web_pages import scrape

OTHER = "persistent://public/default/u"
# Far above what the allocator of a test holds free, which is taken off.
LIMIT = 10**13
THRESHOLD = {"overloadThrottleEnabled": "true", "overloadSignals": "proxy"}
# No drip and no end of a pause that a test does not ask for.
LONG = {"overloadMaxPauseMillis": "600000"}
ADAPTIVE = {
    "adaptivePublisherThrottlingEnabled": "true", "adaptivePublisherThrottlingIntervalMs": "200",
    "adaptivePublisherThrottlingPerTopicMetricsEnabled": "true",
    "overloadSignals": "proxy",
}  # fmt: skip


class Pressure:
    """The files of a cgroup, whose memory a test sets; all of it counts."""

    def __init__(self, directory: Path, stage: Stage) -> None:
        self._directory = directory
        (directory / "cgroup").write_text("0::/\n")
        (directory / "memory.max").write_text(f"{LIMIT}\n")
        self.set(0.1)
        stage.proxy.overload.memory_paths = MemoryPaths(directory, directory)

    def set(self, ratio: float) -> None:
        """Use this part of the limit from now on."""
        newer = self._directory / "newer"
        newer.write_text(f"anon {int(ratio * LIMIT)}\nsock 0\n")
        newer.replace(self._directory / "memory.stat")


@asynccontextmanager
async def pressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, str], *, known: bool = False, **more: Any
) -> AsyncIterator[tuple[Stage, RawBroker, Pressure]]:
    """Run a proxy whose memory a test sets; the throttles of `keys` are enabled live.

    Unless its owners are `known`, all memory may be the producers'.
    """
    if not known:
        monkeypatch.setattr(OverloadSwitch, "owners", lambda _: OwnerBytes(towards_brokers=1 << 60))
    monkeypatch.setattr(settings, "SAMPLE_SECONDS", 0.05)
    # No drip but that of a short pause.
    monkeypatch.setattr(settings, "DRIP_SECONDS", 150.0)
    async with staged(**more) as stage, raw_broker(greet) as broker:
        pressure = Pressure(tmp_path, stage)
        # Nor the end of a pause for a rate.
        slots_of(stage).books.set_max_pause_millis(600_000)
        stage.change(**keys)
        yield stage, broker, pressure
        stage.change(overloadThrottleEnabled="false", adaptivePublisherThrottlingEnabled="false")
        for client in stage.clients:
            client.close()
        for peer in broker.peers:
            peer.close()
        await stage.until(lambda: not len(stage.proxy.sessions), "no session")


async def producing(stage: Stage, broker: RawBroker, first: bytes = OPENED) -> Pair:
    """Join a client that sends `first`."""
    pair = await joined(stage, broker)
    await passed(pair, first)
    return pair


def signals(stage: Stage) -> Signals:
    control = stage.proxy.overload.control
    assert control is not None
    return control.signals


def relays(stage: Stage, chosen: Callable[[Relay], bool] = lambda relay: relay.produces) -> list[Relay]:
    return [relay for relay in stage.proxy.sessions.all_relays() if chosen(relay)]


def paused(stage: Stage) -> list[bool]:
    return [bool(relay.snapshot().paused[TO_BROKER] & PauseReason.THRESHOLD) for relay in relays(stage)]


async def held(stage: Stage) -> None:
    await stage.until(lambda: paused(stage) and all(paused(stage)), "all producers paused")
    # Up to a read may pass after a pause.
    await turns()


async def released(stage: Stage) -> None:
    await stage.until(lambda: not any(paused(stage)), "no producer paused")


async def test_q2_producers_are_held_above_the_high_mark_and_all_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pressed(tmp_path, monkeypatch, THRESHOLD | LONG) as (stage, broker, pressure):
        producers = [await producing(stage, broker, OPENED + SMALL) for _ in range(3)]
        consumer = await producing(stage, broker, subscribe_frame(b"t"))
        pressure.set(0.9)
        await held(stage)
        for producer in producers:
            await producer.client.send(SMALL)
            assert not await told(producer.broker, 1)
            await producer.broker.send(b"still here")
            assert await producer.client.receive(10) == b"still here"
        await passed(consumer, b"\x00\x00\x00\x05\x00\x00\x00\x01\x08")
        looking = await stage.client()
        await looking.connect()
        await stage.until(lambda: stage.proxy.overload.counters.paused_by.get("threshold") == 3, "a look at relays")
        assert stage.proxy.overload.counters.delays["longest"] > 0
        pressure.set(0.5)
        for producer in producers:
            assert await producer.broker.receive(len(SMALL)) == SMALL
        await released(stage)
        assert not stage.proxy.overload.counters.pause_overshoots


@pytest.mark.threat("unread-pauses-producers")
async def test_memory_that_no_producer_holds_pauses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with pressed(tmp_path, monkeypatch, THRESHOLD | LONG, known=True) as (stage, broker, pressure):
        producer = await producing(stage, broker)
        pressure.set(0.95)
        await stage.until(lambda: signals(stage).used_bytes > 0.9 * LIMIT, "a sample of the pressure")
        assert signals(stage).proxy_ratio == pytest.approx(0.7)
        await passed(producer, SMALL)
        await turns()
        assert paused(stage) == [False]
        # Now all of it is the producers'.
        monkeypatch.setattr(OverloadSwitch, "owners", lambda _: OwnerBytes(towards_brokers=1 << 60))
        stage.change(overloadThrottleEnabled="false")
        stage.change(overloadThrottleEnabled="true")
        await held(stage)


@pytest.mark.threat("doubled-producer-fields")
async def test_producer_whose_commands_have_their_type_twice_is_held_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pressed(tmp_path, monkeypatch, THRESHOLD | LONG) as (stage, broker, pressure):
        # A broker takes the last type of each; the first is that of a PING.
        opened, sent = (bare(b"\x08\x12" + frame[10:] + frame[8:10]) for frame in (OPENED, send_frame(1, payload=b"")))
        evader, other = [await producing(stage, broker, first) for first in (opened + sent, OPENED + SMALL)]
        only_sends = await producing(stage, broker, sent)
        await stage.until(lambda: len(relays(stage)) == 3, "three producers")
        pressure.set(0.9)
        await held(stage)
        for producer in (evader, other, only_sends):
            await producer.client.send(sent)
            assert not await told(producer.broker, 1)
        pressure.set(0.1)
        for producer in (evader, other, only_sends):
            assert await producer.broker.receive(len(sent)) == sent


async def test_observe_only_releases_everybody_within_a_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with pressed(tmp_path, monkeypatch, THRESHOLD | LONG) as (stage, broker, pressure):
        pair = await producing(stage, broker)
        pressure.set(0.96)
        await held(stage)
        await pair.client.send(SMALL)
        stage.change(overloadThrottleObserveOnly="true")
        assert await pair.broker.receive(len(SMALL)) == SMALL
        view = stage.proxy.overload.counters.view
        assert view is not None
        await stage.until(lambda: view.paused == {"paused": 0, "would_pause": 1}, "what would be")


async def test_no_more_than_a_relay_buffer_passes_after_the_longest_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Between two ends of a pause there must be time to see the first alone.
    millis = str(patient_millis(1000))
    keys = THRESHOLD | {"overloadMaxPauseMillis": millis}
    async with pressed(tmp_path, monkeypatch, keys) as (stage, broker, pressure):
        pair = await producing(stage, broker)
        pressure.set(0.9)
        await held(stage)
        (relay,) = relays(stage)
        opened, counters = relay.snapshot().moved[TO_BROKER], stage.proxy.overload.counters
        most = stage.proxy.config.relay_buffer_bytes
        # The kernel keeps several buffers for the proxy to read.
        data = SMALL * (6 * most // len(SMALL))
        async with asyncio.TaskGroup() as group:
            group.create_task(pair.client.send(data))
            reading = group.create_task(pair.broker.receive(len(data)))
            await stage.until(lambda: counters.pause_overshoots == 1, "the end of the longest pause")
            await stage.until(lambda: relay.snapshot().moved[TO_BROKER] > opened, "a read")
            await turns()
            assert counters.pause_overshoots == 1
            # Frames that dripped through before, too.
            assert len(SMALL) < relay.snapshot().moved[TO_BROKER] - opened <= most + 4 * len(SMALL)
            pressure.set(0.1)
        assert reading.result() == data


async def test_q9_ping_and_close_behind_many_messages_pass_while_memory_stays_high(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = THRESHOLD | {"overloadMaxPauseMillis": "400"}
    async with pressed(tmp_path, monkeypatch, keys) as (stage, broker, pressure):
        pair = await producing(stage, broker)
        pressure.set(0.9)
        await held(stage)
        counters, most = stage.proxy.overload.counters, stage.proxy.config.relay_buffer_bytes
        # More than a relay buffer: frame by frame that would take minutes.
        queued = SMALL * (5 * most // (4 * len(SMALL)))
        last = PING_FRAME + close_frame(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(pair.client.send(queued + last))
            reading = group.create_task(pair.broker.receive(len(queued + last)))
        assert reading.result() == queued + last
        assert all(paused(stage))
        # The answer of the broker comes at once, and the end of the client with the next frame.
        await pair.broker.send(PONG_FRAME)
        assert await pair.client.receive(len(PONG_FRAME)) == PONG_FRAME
        pair.client.fin()
        assert await pair.broker.rest() == b""
        assert counters.pause_overshoots >= 2
        assert list(slots_of(stage).walk())[1].relays == 0


async def test_no_change_of_a_key_holds_producers_up_while_the_proxy_drains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pressed(tmp_path, monkeypatch, THRESHOLD | LONG) as (stage, broker, pressure):
        pair = await producing(stage, broker)
        pressure.set(0.9)
        await held(stage)
        # A drain begins so.
        await stage.proxy.overload.close()
        stage.change(overloadMaxPauseMillis="500000")
        assert stage.proxy.overload.control is None
        assert paused(stage) == [False]
        await passed(pair, SMALL)
        # And is called off so.
        stage.proxy.overload.reopen(stage.proxy.config)
        await held(stage)


async def test_client_that_joined_before_is_never_slowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with pressed(tmp_path, monkeypatch, {}) as (stage, broker, pressure):
        early = await producing(stage, broker)
        pressure.set(0.9)
        stage.change(**THRESHOLD, **LONG)
        late = await producing(stage, broker)
        await held(stage)
        await passed(early, SMALL)
        await late.client.send(SMALL)
        assert not await told(late.broker, 1)
        stage.change(overloadThrottleEnabled="false")
        assert await late.broker.receive(len(SMALL)) == SMALL
        assert not slots_of(stage).enabled


# --- rates ----------------------------------------------------------------------------------------


class Sender:
    """A producer of each of some topics, 40 messages of 10 KB a second; the broker's side reads what comes."""

    def __init__(self, pair: Pair, producers: tuple[int, ...]) -> None:
        self.pair = pair
        self.sent, self.received = bytearray(), bytearray()
        self.stopped = False
        self._producers = producers

    async def send(self) -> None:
        """Send until stopped."""
        number = 0
        while not self.stopped:
            for producer in self._producers:
                number += 1
                frame = send_frame(producer, sequence=number, payload=bytes([number % 256]) * 10_000)
                self.sent += frame
                await self.pair.client.send(frame)
            await asyncio.sleep(0.025)

    async def receive(self) -> None:
        """Read until everything has come that was sent."""
        while not self.stopped or len(self.received) < len(self.sent):
            if len(self.received) < len(self.sent):
                self.received += await self.pair.broker.receive(min(4096, len(self.sent) - len(self.received)))
            else:
                await asyncio.sleep(0.005)


async def test_rates_of_two_topics_of_a_client_fall_and_are_natural_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pressed(tmp_path, monkeypatch, ADAPTIVE) as (stage, broker, pressure):
        control = stage.proxy.overload.control
        assert control is not None
        sender = Sender(await producing(stage, broker, OPENED + producer_frame(OTHER.encode(), 2)), (1, 2))

        def slow() -> int:
            return sum(row.effective_rate < 0.6 * row.natural_rate for row in control.topics())

        async with asyncio.TaskGroup() as group:
            group.create_task(sender.send())
            group.create_task(sender.receive())
            await stage.until(
                lambda: all(natural_rates(control).get(topic, 0) > 150_000 for topic in (TOPIC, OTHER)), "natural rates"
            )
            pressure.set(0.9)
            await stage.until(lambda: slow() == 2, "limits")
            pressure.set(0.1)
            await stage.until(lambda: control.active_topics == 0, "natural rates again")
            sender.stopped = True
        assert sender.received == sender.sent
        assert stage.proxy.overload.counters.adaptive.failures == 0


def natural_rates(control: OverloadControl) -> dict[str, float]:
    """Return what topics send without a limit, as their metrics show it."""
    return {row.topic: row.natural_rate for row in control.topics()}


@pytest.mark.threat("reconnect-escapes-rate")
async def test_a_producer_that_comes_again_has_the_rate_that_its_topic_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pressed(tmp_path, monkeypatch, ADAPTIVE) as (stage, broker, pressure):
        control = stage.proxy.overload.control
        assert control is not None

        def rates() -> tuple[float, float]:
            rows = [row for row in control.topics() if row.topic == TOPIC]
            return (rows[0].natural_rate, rows[0].effective_rate) if rows else (0, 0)

        async with asyncio.TaskGroup() as group:
            first = await producing(stage, broker)
            sender = Sender(first, (1,))
            tasks = [group.create_task(each) for each in (sender.send(), sender.receive())]
            await stage.until(lambda: rates()[0] > 150_000, "a natural rate")
            pressure.set(0.9)
            await stage.until(lambda: 0 < rates()[1] < 0.6 * rates()[0], "a limit")
            natural = rates()[0]
            for task in tasks:
                task.cancel()
        first.client.reset()
        await stage.until(lambda: not relays(stage), "no producer")
        evaluations = stage.proxy.overload.counters.adaptive.evaluations
        await stage.until(lambda: stage.proxy.overload.counters.adaptive.evaluations > evaluations + 2, "evaluations")
        assert rates()[0] > natural / 2
        again = await producing(stage, broker)
        assert rates()[0] > natural / 2
        data = send_frame(1, payload=bytes(50_000)) * 100
        async with asyncio.TaskGroup() as group:
            group.create_task(again.client.send(data))
            reading = group.create_task(again.broker.receive(len(data)))
            (relay,) = relays(stage)
            await stage.until(lambda: PauseReason.RATE in relay.snapshot().paused[TO_BROKER], "a pause for its rate")
            assert relay.snapshot().moved[TO_BROKER] < len(data) // 4
            pressure.set(0.1)
            stage.change(adaptivePublisherThrottlingEnabled="false")
        assert reading.result() == data


@pytest.mark.threat("new-topic-escapes-rate")
async def test_topics_that_are_new_under_pressure_are_slowed_before_the_next_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pressed(tmp_path, monkeypatch, {}) as (stage, broker, pressure):
        pressure.set(0.9)
        # One evaluation, and none after it.
        stage.change(**ADAPTIVE | {"adaptivePublisherThrottlingIntervalMs": "60000"})
        control, counters = stage.proxy.overload.control, stage.proxy.overload.counters
        assert control is not None
        await stage.until(lambda: counters.adaptive.evaluations == 1, "the first evaluation")
        assert control.memory_pressure == 1.0
        pair = await producing(stage, broker)
        (relay,) = relays(stage)
        payload = bytes(50_000)
        data = b"".join(
            producer_frame(b"persistent://public/default/r%d" % number, 1) + send_frame(1, payload=payload)
            for number in range(200)
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(pair.client.send(data))
            reading = group.create_task(pair.broker.receive(len(data)))
            await stage.until(lambda: PauseReason.RATE in relay.snapshot().paused[TO_BROKER], "a pause for a rate")
            # A read or two, of ten million bytes.
            assert relay.snapshot().moved[TO_BROKER] < len(data) // 4
            assert (counters.adaptive.evaluations, counters.adaptive.failures) == (1, 0)
            stage.change(adaptivePublisherThrottlingEnabled="false")
        assert reading.result() == data
        assert control.active_topics == 0


@pytest.mark.threat("endless-topic-names", "million-throttled-topics")
async def test_topics_without_end_fill_a_part_of_a_bounded_table_and_leave_the_rest_to_others() -> None:
    # Native relays ask for a thousand a second.
    connections, topics, passing = 60, 900, list[asyncio.Task[None]]()
    async with staged(**dict[str, Any](ADAPTIVE)) as stage, raw_broker(greet) as broker:

        async def producers(name: str, source: str = LOOPBACK) -> None:
            client = await stage.client(source=source)
            await client.connect(target=f"127.0.0.1:{broker.port}")
            frames = b"".join(producer_frame(f"{name}-{each}".encode(), each) for each in range(topics))
            passing.append(stage.proxy.loop.create_task(passed(Pair(stage, client, broker.peers[-1]), frames)))

        async def without() -> int:
            """Return how many producers have no topic of their own."""
            return int((await scrape(stage.proxy.web_port))("adaptive_throttle_unslotted_producers_total"))

        for number in range(connections):
            await producers(f"many-{number}")
        await asyncio.gather(*passing)
        # One address has three quarters of 65,536.
        assert await without() == connections * topics - 49_152
        await producers("other", "127.0.0.2")
        await passing[-1]
        assert await without() == connections * topics - 49_152
