"""Signals in the shell: what is not watched any more, brokers of which one does not answer, and a trim that fails."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest

from proxy.brokers.admin_port import AdminUnavailable
from proxy.core.process_memory import MemoryPaths
from proxy.overload.machine_memory import MachineMemory
from proxy.overload.signal_watch import LastKnown
from proxy.relay.topic_slots import SlotSample
from tests.unit.proxy.overload.test_control import ADAPTIVE, THRESHOLD, FakeRelay, Stage, play, settings

FULL = (0.95, 0.0)
ONLY_PROXY, ONLY_BROKERS = ({"overloadSignals": each} for each in ("proxy", "brokers"))
P = ParamSpec("P")
T = TypeVar("T")


async def full(url: str) -> tuple[float, float]:
    return FULL


def answering_late(
    ask: Callable[P, Coroutine[Any, Any, T]],
) -> tuple[asyncio.Event, asyncio.Event, Callable[P, Coroutine[Any, Any, T]]]:
    """Return an event that is set when somebody asks, one that lets him have the answer, and whom to ask."""
    asked, answer = asyncio.Event(), asyncio.Event()

    async def late(*args: P.args, **kwargs: P.kwargs) -> T:
        asked.set()
        await answer.wait()
        return await ask(*args, **kwargs)

    return asked, answer, late


def test_answer_that_comes_when_brokers_are_watched_no_more_holds_nobody() -> None:
    async def act(stage: Stage) -> None:
        asked, answer, stage.brokers.memory = answering_late(full)  # type: ignore[method-assign]
        await asked.wait()
        stage.control.apply(settings(**THRESHOLD | ONLY_PROXY))
        answer.set()
        await asyncio.sleep(2)
        assert stage.paused == [False]

    play([FakeRelay()], THRESHOLD, act)


def test_look_at_memory_that_ends_when_it_is_watched_no_more_holds_nobody() -> None:
    async def act(stage: Stage) -> None:
        stage.memory.ratio = 0.9
        asked, answer, stage.memory.read = answering_late(stage.memory.read)  # type: ignore[method-assign]
        await asked.wait()
        stage.control.apply(settings(**THRESHOLD | ONLY_BROKERS))
        answer.set()
        await asyncio.sleep(60)
        assert stage.paused == [False]

    play([FakeRelay()], THRESHOLD, act)


def test_answer_that_comes_when_another_key_has_changed_counts() -> None:
    async def act(stage: Stage) -> None:
        asked, answer, stage.brokers.memory = answering_late(full)  # type: ignore[method-assign]
        await asked.wait()
        stage.control.apply(settings(**THRESHOLD | {"overloadThrottleObserveOnly": "false"}))
        answer.set()
        # Less than it takes until a broker is asked again.
        await asyncio.sleep(2)
        assert stage.paused == [True]

    play([FakeRelay()], THRESHOLD, act)


def test_memory_that_is_watched_again_has_no_value_of_long_ago() -> None:
    async def act(stage: Stage) -> None:
        stage.memory.ratio = 0.9
        await asyncio.sleep(1)
        assert stage.paused == [True]
        stage.control.apply(settings(**THRESHOLD | ONLY_BROKERS))
        await asyncio.sleep(60)
        assert stage.paused == [False]
        stage.memory.ratio = OSError("the file is gone")
        stage.control.apply(settings(**THRESHOLD))
        await asyncio.sleep(1)
        assert stage.counters.signal_failures["proxy"] > 0
        assert stage.paused == [False]

    play([FakeRelay()], THRESHOLD, act)


def test_q11_broker_that_does_not_answer_among_others_is_counted_and_told() -> None:
    async def act(stage: Stage) -> None:
        async def memory(url: str) -> tuple[float, float]:
            if url == "one":
                raise AdminUnavailable("one: TimeoutError")
            return FULL

        stage.brokers.urls, stage.brokers.memory = ("one", "two"), memory  # type: ignore[assignment, method-assign]
        await asyncio.sleep(7)
        assert stage.paused == [True]
        assert stage.counters.signal_failures["brokers"] > 0

    stage = play([FakeRelay()], THRESHOLD, act)
    assert "one: TimeoutError" in {line.get("detail") for line in stage.lines}


def test_q11_unreadable_signal_keeps_its_value_for_five_samples_and_is_counted() -> None:
    async def act(stage: Stage) -> None:
        stage.memory.ratio = 0.8
        await asyncio.sleep(0.75)
        stage.memory.ratio = OSError("the file is gone")
        found = []
        for _ in range(7):
            await asyncio.sleep(0.5)
            found.append(stage.control.signals.proxy_ratio)
        assert found == [0.8] * 5 + [None] * 2
        assert stage.counters.signal_failures["proxy"] == 7
        stage.memory.ratio = 0.8
        await asyncio.sleep(0.5)
        assert stage.control.signals.proxy_ratio == 0.8

    play([], THRESHOLD, act)


def test_trim_that_fails_delays_no_pause() -> None:
    async def act(stage: Stage) -> None:
        async def trim() -> None:
            raise TimeoutError("no answer within 2 s")

        stage.memory.trim = trim  # type: ignore[method-assign]
        await asyncio.sleep(0.7)
        stage.memory.ratio = 0.9
        # One sample.
        await asyncio.sleep(0.5)
        assert stage.paused == [True]
        assert (stage.counters.trims, stage.counters.threshold.failures) == (1, 0)

    stage = play([FakeRelay()], THRESHOLD, act)
    assert "free memory was not returned to the system" in {line["event"] for line in stage.lines}


# --- what is known --------------------------------------------------------------------------------


def test_a_broker_that_does_not_answer_keeps_its_last_value_for_five_looks_and_the_others_count() -> None:
    found: list[float | None] = []

    async def act(stage: Stage) -> None:
        answers: dict[str, tuple[float, float]] = {"one": FULL, "two": (0.1, 0.0)}

        async def memory(url: str) -> tuple[float, float]:
            if url == "two":
                found.append(stage.control.signals.broker_ratio)
            if url not in answers:
                raise AdminUnavailable("gone")
            return answers[url]

        stage.brokers.urls, stage.brokers.memory = ("one", "two"), memory  # type: ignore[assignment, method-assign]
        # A look each 3.0 to 3.6 s.
        await asyncio.sleep(4)
        del answers["one"]
        await asyncio.sleep(40)
        answers["one"] = (0.99, 0.0)
        await asyncio.sleep(8)

    play([], THRESHOLD, act)
    known = [ratio for ratio in found if ratio is not None]
    assert 5 <= known.count(0.95) <= 9
    assert known[-1] == 0.99
    assert 0.1 in known


def test_a_value_is_known_for_some_failures_in_a_row_more() -> None:
    known = LastKnown[int](2)
    known.took(0.0, "a", 1)
    known.failed("a")
    known.took(0.0, "a", 2)
    left = []
    for _ in range(3):
        known.failed("a")
        left.append(known.get("a"))
    assert left == [2, 2, None]


def test_a_value_of_long_ago_is_not_known() -> None:
    known = LastKnown[int](2)
    for now, key in ((0.0, "a"), (100.0, "b"), (200.0, "a")):
        known.took(now, key, int(now))
    known.forget_old(99.0)
    assert set(known) == {"a", "b"}
    # A clock that goes back makes nothing older.
    known.forget_old(-1e6)
    known.forget_old(101.0)
    assert known == {"a": 200}


def test_topics_are_asked_for_in_turn() -> None:
    async def act(stage: Stage) -> None:
        many = [SlotSample(number, f"persistent://t/n/{number}", 0, 0, False, 1) for number in range(3)]
        stage.rates.walk = lambda: [  # type: ignore[method-assign]
            sample._replace(bytes=stage.counters.adaptive.evaluations * 1_000_000) for sample in many
        ]
        await asyncio.sleep(25)

    asked = play([], ADAPTIVE, act).brokers.asked
    assert {asked.count(topic) - asked.count(asked[0]) for topic in asked} <= {0, 1, -1}
    assert len(set(asked)) == 3


# --- reads in threads -----------------------------------------------------------------------------


async def test_files_that_never_answer_take_a_few_threads_and_not_one_a_sample(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("proxy.overload.machine_memory.READ_SECONDS", 0.01)
    before, hangs = threading.active_count(), tmp_path / "cgroup"
    # Whoever opens it waits for a writer.
    os.mkfifo(hangs)
    paths = MemoryPaths(process=tmp_path, cgroups=tmp_path)
    memory = MachineMemory(is_sidecar=False, socket_bytes=lambda: 0, paths=paths)
    for _ in range(50):
        with pytest.raises(TimeoutError, match=r"no answer within 0.01 s|have not come back"):
            await memory.read()
    assert threading.active_count() <= before + 8
    monkeypatch.setattr("proxy.overload.machine_memory.READ_SECONDS", 60.0)
    # All have the end of the file, and the next one what came instead.
    os.close(os.open(hangs, os.O_RDWR))
    hangs.unlink()
    while True:
        try:
            # The machine's memory, which is not there, is asked for: the look has come to an end.
            with pytest.raises(ValueError, match="got no MemTotal"):
                await memory.read()
        except TimeoutError:
            await asyncio.sleep(0.01)
        else:
            return
