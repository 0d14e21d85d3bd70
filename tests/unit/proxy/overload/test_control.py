"""The shell of overload control on a loop of virtual time, with fakes of all that it uses."""

import asyncio
import io
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest

from proxy.brokers.admin_port import AdminRefused
from proxy.config.config import Config
from proxy.core.log import open_log
from proxy.overload.control import OverloadControl
from proxy.overload.counters import OverloadCounters
from proxy.overload.report import ThrottleReport
from proxy.overload.samples import OTHER_TOPICS, BacklogSample, MemorySample, OwnerBytes
from proxy.overload.settings import OverloadSettings
from proxy.overload.signal_watch import SignalWatch
from proxy.relay.engine import NOT_PAUSED, Direction, PauseReason, RelaySnapshot
from proxy.relay.topic_slots import OTHER, Begin, RateCounts, SlotSample
from tests.support.loops.loops import run_without_sockets

KEYS = {"brokerServiceURL": "pulsar://broker.invalid:6650", "brokerWebServiceURL": "http://broker.invalid:8080"}
THRESHOLD = {"overloadThrottleEnabled": "true"}
ADAPTIVE = {"adaptivePublisherThrottlingEnabled": "true"}
LIMIT = 1_000_000_000


def settings(**keys: str) -> OverloadSettings:
    return OverloadSettings.of(Config.load(overrides=KEYS | keys))


class FakeRelay:
    """A relay whose reasons are a set of bits."""

    def __init__(self, *, consumes: bool = False, broken: bool = False) -> None:
        self.produces = True
        self.consumes = consumes
        self.broken = broken
        self.reasons = NOT_PAUSED

    def snapshot(self) -> RelaySnapshot:
        return RelaySnapshot((0, 0), (0, 0), (self.reasons, NOT_PAUSED), 0, False)

    def pause(self, direction: Direction, reason: PauseReason) -> None:
        assert (direction, reason) == (Direction.TO_BROKER, PauseReason.THRESHOLD)
        if self.broken:
            raise RuntimeError("broken")
        self.reasons |= reason

    def resume(self, direction: Direction, reason: PauseReason) -> None:
        assert (direction, reason) == (Direction.TO_BROKER, PauseReason.THRESHOLD)
        self.reasons &= ~reason

    def drip(self, direction: Direction, *, whole_read: bool = False) -> None:
        """Have nothing that could pass."""


class FakeRates:
    """A table with one topic that sends 1 MB/s, as far as its rate and its reader let it."""

    def __init__(self) -> None:
        self.rates: dict[int, float | None] = {}
        self.is_read: Callable[[], bool] = lambda: True
        self.total = 0
        self.broken = False
        self.counts = RateCounts(0, 0, 0, 0)

    def walk(self) -> Sequence[SlotSample]:
        if self.broken:
            raise RuntimeError("no samples")
        rate = self.rates.get(3)
        self.total += int(1e6 if rate is None else min(1e6, rate)) * self.is_read()
        return [SlotSample(3, "persistent://t/n/a", self.total, self.total // 1000, rate is not None, 1)]

    def set_rate(self, slot: int, bytes_per_second: float | None, messages_per_second: float | None) -> None:
        self.rates[slot] = bytes_per_second

    def begin_with(self, begin: Begin | None) -> None:
        self.begin = begin


# All memory is on its way to brokers.
ALL = OwnerBytes(towards_brokers=1 << 60)


class FakeMemory:
    """The memory of a machine as a test wants it; an exception is raised."""

    def __init__(self) -> None:
        self.ratio: float | Exception = 0.1

    async def read(self) -> MemorySample:
        if isinstance(self.ratio, Exception):
            raise self.ratio
        return MemorySample("test", int(self.ratio * LIMIT), LIMIT)

    async def trim(self) -> None:
        """Return nothing to the system."""


class FakeBrokers:
    """Brokers whose answers a test sets; an exception is raised."""

    def __init__(self) -> None:
        self.urls = ("one",)
        self.sample: tuple[float, float] | Exception = (0.01, 0.0)
        self.topic: BacklogSample | Exception = BacklogSample(0, 0)
        self.asked: list[str] = []

    async def memory(self, url: str) -> tuple[float, float]:
        if isinstance(self.sample, Exception):
            raise self.sample
        return self.sample

    async def backlog(self, topic: str, first: str) -> tuple[BacklogSample, str]:
        self.asked.append(topic)
        if isinstance(self.topic, Exception):
            raise self.topic
        return self.topic, first


class Stage:
    """Overload control with fakes; `lines` are those of the log, `events` those of the event log."""

    def __init__(self, relays: Sequence[FakeRelay] = (), **keys: str) -> None:
        self.relays = list(relays)
        self.rates, self.memory, self.brokers = FakeRates(), FakeMemory(), FakeBrokers()
        self.counters = OverloadCounters()
        self.events: list[Mapping[str, object]] = []
        self._file = io.BytesIO()
        report = ThrottleReport(open_log("info", "json", self._file), self.events.append)
        # Of fakes.
        watch: Any = SignalWatch
        control: Any = OverloadControl
        chosen = settings(**keys)
        signals = watch(chosen, self.memory, lambda: ALL, self.brokers, self.counters, report)
        self.control: OverloadControl = control(
            asyncio.get_running_loop(), chosen, signals, lambda: self.relays, self.rates, pick=lambda _: 0
        )  # fmt: skip

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.getvalue().splitlines()]

    @property
    def paused(self) -> list[bool]:
        return [bool(relay.reasons) for relay in self.relays]


def play(relays: Sequence[FakeRelay], keys: Mapping[str, str], act: Callable[[Stage], Coroutine[Any, Any, None]]) -> (
    Stage
):  # fmt: skip
    """Run a stage in virtual time; at its end nobody is paused and no topic has a rate."""

    async def main() -> Stage:
        stage = Stage(relays, **keys)
        stage.control.start()
        await act(stage)
        await stage.control.close()
        assert not any(stage.paused)
        assert not any(stage.rates.rates.values())
        assert stage.counters.view is None
        return stage

    return run_without_sockets(main())


def test_q7_producers_take_turns_while_memory_stays_between_the_marks_and_events_add_up() -> None:
    async def act(stage: Stage) -> None:
        stage.memory.ratio = 0.9
        await asyncio.sleep(0.6)
        assert all(stage.paused)
        # Room for one read.
        stage.memory.ratio = 0.74995
        await asyncio.sleep(0.5)
        stage.memory.ratio = 0.8
        seen = set()
        for _ in range(25):
            await asyncio.sleep(1)
            assert stage.paused.count(False) == 1
            seen.add(stage.paused.index(False))
        assert seen == {0, 1, 2, 3}

    stage = play([FakeRelay() for _ in range(4)], THRESHOLD, act)
    changes = [
        (1 if event["throttle_action"] == "pause" else -1) * int(str(event["throttle_connections"]))
        for event in stage.events
    ]
    assert changes[:2] == [4, -1]
    assert len(changes) > 8
    assert sum(changes) == 3


def test_a8_evaluation_that_fails_is_counted_and_the_next_one_comes() -> None:
    async def act(stage: Stage) -> None:
        stage.rates.broken = True
        await asyncio.sleep(3.5)
        failed = stage.counters.adaptive.failures
        assert failed == stage.counters.adaptive.evaluations >= 3
        stage.rates.broken = False
        await asyncio.sleep(2)
        assert stage.counters.adaptive.failures == failed
        assert stage.counters.adaptive.evaluations > failed
        assert stage.counters.adaptive.last_at > 0

    stage = play([], ADAPTIVE, act)
    assert any(line["level"] == "error" and line["event"].startswith("overload control failed") for line in stage.lines)


def test_relay_that_raises_is_counted_and_the_others_are_paused() -> None:
    async def act(stage: Stage) -> None:
        stage.memory.ratio = 0.9
        await asyncio.sleep(1)
        assert stage.paused == [False, True]
        assert stage.counters.threshold.failures >= 1

    play([FakeRelay(broken=True), FakeRelay()], THRESHOLD, act)


@pytest.mark.parametrize("keys", [THRESHOLD, {}])
def test_topics_are_forgotten_when_the_adaptive_throttle_is_switched_off(keys: dict[str, str]) -> None:
    async def act(stage: Stage) -> None:
        await asyncio.sleep(5)
        assert list(stage.control.largest_topics(9))
        if keys:
            stage.control.apply(settings(**keys))
            await asyncio.sleep(1)
        else:
            await stage.control.close()
            stage.counters.view = None
        assert not list(stage.control.largest_topics(9))

    play([], ADAPTIVE, act)


def test_a9_reasons_of_others_are_left_alone() -> None:
    relay = FakeRelay()
    relay.reasons = PauseReason.POOL | PauseReason.RATE

    async def act(stage: Stage) -> None:
        stage.memory.ratio = 0.9
        await asyncio.sleep(1)
        assert relay.reasons == PauseReason.POOL | PauseReason.RATE | PauseReason.THRESHOLD
        stage.memory.ratio = 0.1
        await asyncio.sleep(1.1)
        assert relay.reasons == PauseReason.POOL | PauseReason.RATE
        relay.reasons = NOT_PAUSED

    play([relay], THRESHOLD, act)


def test_a10_transitions_of_a_topic_have_a_line_a_minute() -> None:
    async def act(stage: Stage) -> None:
        await asyncio.sleep(20)
        for _ in range(10):
            stage.memory.ratio = 0.9
            await asyncio.sleep(3)
            stage.memory.ratio = 0.1
            await asyncio.sleep(7)

    stage = play([], ADAPTIVE, act)
    assert stage.counters.activations == 10
    assert 1 <= sum("publish rate of a topic" in line["event"] for line in stage.lines) <= 3


def test_a_pause_of_all_producers_teaches_the_adaptive_throttle_nothing() -> None:
    async def act(stage: Stage) -> None:
        stage.rates.is_read = lambda: not any(stage.paused)
        await asyncio.sleep(40.5)
        stage.memory.ratio = 0.9
        await asyncio.sleep(30)
        assert all(stage.paused)
        stage.memory.ratio = 0.1
        await asyncio.sleep(2)
        assert not any(stage.paused)
        assert [row.natural_rate for row in stage.control.largest_topics(1)] == [pytest.approx(1e6, rel=0.01)]

    # The marks of rates are above those of the pause, so that no rate is limited.
    marks = {
        "adaptivePublisherThrottlingMemoryHighWatermarkPct": "1",
        "adaptivePublisherThrottlingMemoryLowWatermarkPct": "0.99",
    }
    play([FakeRelay()], THRESHOLD | ADAPTIVE | marks, act)


@pytest.mark.threat("million-throttled-topics")
def test_thousands_of_topics_make_a_bounded_number_of_events_and_lines() -> None:
    async def act(stage: Stage) -> None:
        many = [SlotSample(number, f"persistent://t/n/{number}", 0, 0, False, 1) for number in range(3000)]
        stage.rates.walk = lambda: [  # type: ignore[method-assign]
            sample._replace(bytes=round(stage.counters.adaptive.evaluations) * 1_000_000) for sample in many
        ]
        await asyncio.sleep(5.5)
        stage.memory.ratio = 0.9
        await asyncio.sleep(1.5)
        assert len(stage.rates.rates) == 3000

    stage = play([], ADAPTIVE, act)
    # Two evaluations, and the end.
    assert 200 <= len(stage.events) <= 600
    assert len(stage.lines) < 10


def test_throttle_that_is_switched_off_during_an_evaluation_leaves_no_rate() -> None:
    async def act(stage: Stage) -> None:
        many = [SlotSample(number, f"persistent://t/n/{number}", 0, 0, False, 1) for number in range(3000)]
        stage.rates.walk = lambda: [  # type: ignore[method-assign]
            sample._replace(bytes=stage.counters.adaptive.evaluations * 1_000_000) for sample in many
        ]
        began, set_rate = asyncio.Event(), stage.rates.set_rate

        def noted(slot: int, bytes_per_second: float | None, messages_per_second: float | None) -> None:
            began.set()
            set_rate(slot, bytes_per_second, messages_per_second)

        stage.rates.set_rate = noted  # type: ignore[method-assign]
        await asyncio.sleep(5.5)
        stage.memory.ratio = 0.9
        await began.wait()
        assert len(stage.rates.rates) < 3000
        stage.control.apply(settings(**THRESHOLD))
        await asyncio.sleep(2)
        assert not any(stage.rates.rates.values())

    play([], ADAPTIVE, act)


def test_brokers_that_refuse_are_told_of_once_and_slow_nobody() -> None:
    async def act(stage: Stage) -> None:
        stage.brokers.sample = AdminRefused("status 403")
        await asyncio.sleep(60)
        assert stage.paused == [False]

    stage = play([FakeRelay()], THRESHOLD, act)
    assert sum("brokers do not show their memory" in line["event"] for line in stage.lines) == 1
    assert stage.counters.signal_failures["brokers"] == 0


def test_backlog_of_topics_seen_here_slows_them() -> None:
    async def act(stage: Stage) -> None:
        await asyncio.sleep(20)
        stage.brokers.topic = BacklogSample(95, 100)
        await asyncio.sleep(5)
        assert set(stage.brokers.asked) == {"persistent://t/n/a"}
        # At most 20 a second.
        assert len(stage.brokers.asked) <= 20 * 25
        assert stage.rates.rates[3] is not None

    play([], ADAPTIVE, act)


# --- events ---------------------------------------------------------------------------------------


def of(stage: Stage, *names: str) -> list[tuple[object, ...]]:
    return [tuple(event.get(name) for name in names) for event in stage.events]


def test_event_of_a_pause_says_whose_memory_is_short_and_how_many_are_paused() -> None:
    async def act(stage: Stage) -> None:
        await asyncio.sleep(1)
        stage.memory.ratio = 0.9
        await asyncio.sleep(1)
        stage.relays.append(FakeRelay())
        stage.brokers.sample = (0.9, 0.0)
        # The minimum of the brokers' heap counts.
        await asyncio.sleep(20)
        stage.brokers.sample, stage.memory.ratio = (0.1, 0.0), 0.5
        # The next sample of the brokers comes within 6 s, by its jitter.
        await asyncio.sleep(8)
        assert stage.control.threshold_state == "normal"

    stage = play([FakeRelay() for _ in range(100)], THRESHOLD, act)
    told = of(stage, "throttle_action", "throttle_reasons", "throttle_paused")
    # While some are released, the others are still paused for what paused them.
    assert told == [("pause", 1, 100), ("pause", 1, 101), ("resume", 3, 37), ("resume", 0, 0)]


def test_event_of_a_rate_says_what_presses() -> None:
    async def act(stage: Stage) -> None:
        await asyncio.sleep(15)
        stage.brokers.topic = BacklogSample(95, 100)
        await asyncio.sleep(3)
        stage.memory.ratio = 0.9
        await asyncio.sleep(2)
        stage.brokers.topic, stage.memory.ratio = BacklogSample(0, 100), 0.1
        await asyncio.sleep(8)

    stage = play([], ADAPTIVE, act)
    reasons = [event["throttle_reasons"] for event in stage.events]
    assert list(dict.fromkeys(reasons)) == [4, 5, 0]
    assert all(event["throttle_topic"] for event in stage.events)


def test_forgotten_topics_are_told_together() -> None:
    async def act(stage: Stage) -> None:
        await asyncio.sleep(5)
        stage.rates.walk = list  # type: ignore[method-assign]
        await asyncio.sleep(70)

    stage = play([], ADAPTIVE, act)
    assert of(stage, "throttle_action", "throttle_forgotten") == [("forget", 1)]


def test_topics_without_a_name_of_their_own_are_told_as_others() -> None:
    async def act(stage: Stage) -> None:
        def walk() -> list[SlotSample]:
            sent = 1_000_000 * stage.counters.adaptive.evaluations
            return [SlotSample(OTHER, "", sent, sent // 1000, False, 0)]

        stage.rates.walk = walk  # type: ignore[method-assign]
        await asyncio.sleep(10)
        stage.memory.ratio = 0.9
        await asyncio.sleep(2)

    stage = play([], ADAPTIVE, act)
    assert {event["throttle_topic"] for event in stage.events} == {OTHER_TOPICS}
    assert {line["topic"] for line in stage.lines if "publish rate" in line["event"]} == {OTHER_TOPICS}


def test_event_of_observe_only_says_how_many_would_be_paused() -> None:
    async def act(stage: Stage) -> None:
        stage.memory.ratio = 0.9
        await asyncio.sleep(1)

    stage = play([FakeRelay(), FakeRelay()], THRESHOLD | {"overloadThrottleObserveOnly": "true"}, act)
    assert of(stage, "throttle_action", "throttle_reasons", "throttle_paused")[0] == ("would_pause", 1, 2)
