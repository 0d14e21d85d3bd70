"""The counted relay of the event loop in virtual time: limits only stop reading, and every pause has an end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from proxy.app.metrics.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.net.transport import SharedReadBuffer
from proxy.relay.counted_relay import CountedEndpoint, count
from proxy.relay.engine import Direction, PauseReason, relay_delay
from proxy.relay.relay import AsyncioRelay
from proxy.relay.topic_slots import TopicSlots
from tests.support.loops.loops import run_virtual
from tests.support.sockets.endpoints import hangup_watcher
from tests.support.sockets.memory_transport import MemoryTransport
from tests.support.sockets.producer_frames import producer_frame, send_frame, subscribe_frame

KIB = 1024
TO_BROKER = Direction.TO_BROKER
SMALL, LARGE = send_frame(1, payload=bytes(10)), send_frame(1, payload=bytes(60_000))


@dataclass
class Setting:
    """A counted relay whose topic `t` has the slot 1."""

    relay: AsyncioRelay
    slots: TopicSlots
    client: MemoryTransport
    broker: MemoryTransport
    watched: set[int]
    sent: bytearray = field(default_factory=bytearray)

    def deliver(self, data: bytes) -> int:
        """Let the client's bytes arrive as one read, as far as the relay's buffer goes; tell how many did."""
        assert self.relay.client.reading
        place = self.relay.client.get_buffer(-1)
        taken = min(len(data), len(place))
        place[:taken] = data[:taken]
        self.relay.client.buffer_updated(taken)
        self.sent += data[:taken]
        return taken

    def deliver_while_read(self, data: bytes) -> int:
        """Let the client's bytes arrive until it is not read any more; tell how many did."""
        taken = 0
        while taken < len(data) and self.relay.client.reading:
            taken += self.deliver(data[taken:])
        return taken

    @property
    def reasons(self) -> PauseReason:
        return self.relay.snapshot().paused[TO_BROKER]

    def drain(self) -> None:
        """Use up the first tokens of a slow topic."""
        self.slots.set_rate(1, 1000.0, None)
        self.deliver_while_read(LARGE + send_frame(1, payload=bytes(6_000)))
        assert self.reasons == PauseReason.RATE


Play = Callable[[Setting], Awaitable[None]]


@asynccontextmanager
async def counted(enabled: bool = True) -> AsyncIterator[Setting]:
    loop = asyncio.get_running_loop()
    slots, counters = TopicSlots(loop.time, loop.call_soon), Counters(DisconnectCause)
    shared = SharedReadBuffer(256 * KIB)
    async with hangup_watcher() as watcher:
        budget = LoopBudget(loop, loop.time)
        relay = AsyncioRelay(loop, shared, watcher, budget, counters.relay, 75.0, lambda *_: None)
        if enabled:
            count(relay, slots, loop, shared, watcher)
        client, broker = MemoryTransport(loop), MemoryTransport(loop)
        relay.start(client, broker, b"", b"")
        setting = Setting(relay, slots, client, broker, set())
        if enabled:
            setting.deliver(producer_frame(b"t", 1))
        yield setting
        assert bytes(broker.peer_bytes) == bytes(setting.sent)
        relay.abort(DisconnectCause.SHUTDOWN)
        await asyncio.sleep(1)
        assert [sample.relays for sample in slots.samples()] == [0] * (1 + len(slots))
        assert len(watcher) == 0
        assert not counters.shared.internal_errors


def played(play: Play) -> Callable[[], None]:
    """Run a test's coroutine in virtual time."""

    async def main() -> None:
        async with counted() as setting:
            await play(setting)

    return lambda: run_virtual(main())


@played
async def test_a_client_without_tokens_waits_for_them_and_no_longer(setting: Setting) -> None:
    setting.drain()
    assert setting.slots.samples()[1].ran_dry
    # Debt and sixteen milliseconds of tokens, at 1,000 a second.
    seconds = (len(setting.sent) - len(producer_frame(b"t", 1)) - 64 * KIB) / 1000 + 0.016
    await asyncio.sleep(seconds - 0.005)
    before = setting.relay.client.reading
    await asyncio.sleep(0.01)
    assert (before, setting.relay.client.reading) == (False, True)
    assert setting.reasons == PauseReason(0)


@played
async def test_a_lifted_rate_ends_the_pause_at_once(setting: Setting) -> None:
    setting.drain()
    setting.slots.set_rate(1, None, None)
    await asyncio.sleep(0)
    assert (setting.reasons, setting.relay.client.reading) == (PauseReason(0), True)


@played
async def test_a_lower_rate_does_not_end_a_pause(setting: Setting) -> None:
    setting.drain()
    setting.slots.set_rate(1, 1.0, None)
    await asyncio.sleep(4)
    assert setting.reasons == PauseReason.RATE


@played
async def test_one_frame_passes_after_the_longest_pause_and_is_counted(setting: Setting) -> None:
    setting.slots.set_rate(1, 1.0, None)
    setting.deliver_while_read(LARGE + LARGE)
    for forced in (1, 2):
        await asyncio.sleep(5.01)
        assert setting.slots.counts.forced == forced
        # A frame and a half: the pause holds on behind the frame.
        assert setting.deliver_while_read(SMALL + SMALL[:10]) == len(SMALL)
        assert setting.reasons == PauseReason.RATE


@played
async def test_a_frame_that_has_begun_is_passed_before_the_pause(setting: Setting) -> None:
    setting.slots.set_rate(1, 1.0, None)
    frame = send_frame(1, payload=bytes(500 * KIB))
    assert setting.deliver_while_read(frame + SMALL) == len(frame)
    assert (setting.reasons, setting.slots.counts.forced) == (PauseReason.RATE, 0)


@played
async def test_a_drip_passes_the_rest_of_a_frame_and_the_next_one_frame(setting: Setting) -> None:
    relay = setting.relay
    setting.deliver(SMALL[:20])
    relay.pause(TO_BROKER, PauseReason.THRESHOLD)
    assert not relay.client.reading
    relay.drip(TO_BROKER)
    relay.drip(TO_BROKER)
    assert setting.deliver_while_read(SMALL[20:] + SMALL) == len(SMALL) - 20
    relay.drip(TO_BROKER)
    assert setting.deliver_while_read(LARGE * 5) == len(LARGE)
    assert setting.reasons == PauseReason.THRESHOLD
    relay.resume(TO_BROKER, PauseReason.THRESHOLD)
    assert setting.deliver_while_read(LARGE + SMALL) == len(LARGE + SMALL)


@played
async def test_a_whole_read_passes_a_relay_buffer_however_little_is_read_at_a_time(setting: Setting) -> None:
    relay, stream = setting.relay, SMALL * 20_000
    relay.client.cramp()
    relay.pause(TO_BROKER, PauseReason.THRESHOLD)
    relay.drip(TO_BROKER, whole_read=True)
    passed = setting.deliver_while_read(stream)
    assert passed == 256 * KIB
    # What is there may be less.
    relay.drip(TO_BROKER, whole_read=True)
    assert setting.deliver(stream[passed : passed + 1000]) == 1000
    passed += 1000
    assert (relay.client.reading, setting.reasons) == (False, PauseReason.THRESHOLD)
    relay.drip(TO_BROKER)
    assert 0 < setting.deliver_while_read(stream[passed:]) <= len(SMALL)


@played
async def test_a_drip_does_not_pass_the_reasons_of_others(setting: Setting) -> None:
    relay = setting.relay
    relay.pause(TO_BROKER, PauseReason.THRESHOLD)
    relay.pause(TO_BROKER, PauseReason.POOL)
    relay.drip(TO_BROKER)
    assert not relay.client.reading
    relay.resume(TO_BROKER, PauseReason.POOL)
    assert setting.deliver_while_read(SMALL + SMALL) == len(SMALL)
    relay.drip(TO_BROKER)
    relay.pause(TO_BROKER, PauseReason.POOL)
    assert not relay.client.reading


@played
async def test_a_drip_waits_for_a_broker_that_takes_nothing(setting: Setting) -> None:
    relay = setting.relay
    setting.broker.room = 0
    setting.deliver(SMALL)
    relay.pause(TO_BROKER, PauseReason.THRESHOLD)
    relay.drip(TO_BROKER)
    assert not relay.client.reading
    setting.broker.take(1 << 40)
    assert setting.deliver_while_read(SMALL + SMALL) == len(SMALL)


@played
async def test_reasons_do_not_undo_each_other(setting: Setting) -> None:
    relay = setting.relay
    setting.drain()
    relay.pause(TO_BROKER, PauseReason.THRESHOLD)
    setting.slots.set_rate(1, None, None)
    await asyncio.sleep(0)
    assert (setting.reasons, relay.client.reading) == (PauseReason.THRESHOLD, False)
    relay.resume(TO_BROKER, PauseReason.THRESHOLD)
    assert relay.client.reading


@played
async def test_the_client_may_end_in_a_pause(setting: Setting) -> None:
    setting.drain()
    setting.relay.client.abort(DisconnectCause.CONNECTION_RESET)
    await asyncio.sleep(20)
    assert setting.slots.counts.forced == 0


@played
async def test_what_a_client_is_is_seen(setting: Setting) -> None:
    assert (setting.relay.produces, setting.relay.consumes) == (True, False)
    setting.deliver(subscribe_frame(b"t"))
    assert (setting.relay.produces, setting.relay.consumes) == (True, True)
    assert relay_delay(setting.relay) == 0.0


def test_a_relay_that_is_not_counted_drips_one_read_and_sees_nothing() -> None:
    async def main() -> None:
        async with counted(enabled=False) as setting:
            relay = setting.relay
            assert not isinstance(relay.client, CountedEndpoint)
            setting.deliver(producer_frame(b"t", 1))
            relay.pause(TO_BROKER, PauseReason.THRESHOLD)
            relay.drip(TO_BROKER)
            assert setting.deliver_while_read(SMALL * 3) == 3 * len(SMALL)
            assert not relay.client.reading
            assert setting.deliver_while_read(SMALL) == 0
            assert (relay.produces, len(setting.slots)) == (False, 0)
            relay.resume(TO_BROKER, PauseReason.THRESHOLD)
            setting.deliver(SMALL)

    run_virtual(main())
