"""Lists that many clients share, written by the loop or by the native engine's threads: who reads gets all, who does
not is closed by the same rules, and nothing is left of either. More of the contract: test_shared_lists.py."""

import asyncio
import errno
import os
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from tests.integration.test_slow_readers import LEAST, LONG_LIST, STALLED, TOO_SLOW, Seconds, timeless, was_reset
from tests.support.clients.async_client import AsyncClient
from tests.support.proxies.proxy_under_test import LIST_BYTES, MIB, Stage, staged
from tests.support.proxies.shared_lists import all_have_lists, being_written, has_list
from tests.support.tools import native_extension

KIB = 1024
STALL_SECONDS = 21

both_engines = pytest.mark.usefixtures("relay_engine")


def at_threads(stage: Stage) -> int:
    return len(stage.proxy.sockets.pump._away)


class Clock:
    """The seconds of one proxy's watch, before each of which the bodies at the threads are looked at."""

    def __init__(self, stage: Stage, seconds: Seconds) -> None:
        self._stage, self._seconds = stage, seconds

    async def pass_by(self, count: int = 1) -> None:
        native = self._stage.proxy.relay_engines.native
        for _ in range(count):
            if native is not None:
                native.tick()
            await self._seconds.pass_by()


async def test_shared_lists_are_written_by_the_threads_if_there_are_any(relay_engine: str) -> None:
    async with staged() as stage:
        members = await being_written(stage)
        assert at_threads(stage) == (3 if relay_engine == "native" else 0)
        await all_have_lists(members)
        await stage.until(lambda: not stage.direct.held, "all given back")
        assert at_threads(stage) == 0


# --- readers --------------------------------------------------------------------------------------


@both_engines
async def test_who_takes_nothing_of_a_shared_list_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with timeless(monkeypatch) as (stage, seconds):
        clock = Clock(stage, seconds)
        members = await being_written(stage)
        await seconds.stand_still()
        await clock.pass_by(STALL_SECONDS - 1)
        assert stage.caused(STALLED) == 0

        async def all_closed() -> None:
            while stage.caused(STALLED) < 3:
                # A thread that had no processor may write its last bytes only now: the seconds begin again then.
                await clock.pass_by()
                await asyncio.sleep(0.001)

        await all_closed()
        await stage.until(lambda: not stage.direct.held, "its memory free")
        for member in members:
            assert await was_reset(member)


async def take_slowly(client: AsyncClient, seconds: Seconds, clock: Clock, count: int, bytes_a_second: int) -> None:
    for _ in range(count):
        await client.receive(bytes_a_second)
        await seconds.stand_still()
        await clock.pass_by()


@both_engines
async def test_who_reads_slowly_but_steadily_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with timeless(monkeypatch, topicListWriteMinBytesPerSecond=LEAST // 4) as (stage, seconds):
        slow, *_ = await being_written(stage)
        clock = Clock(stage, seconds)
        await take_slowly(slow, seconds, clock, STALL_SECONDS + 10, 16 * KIB)
        assert stage.caused(TOO_SLOW) == 0
        # The watch has seen what the client was given, whoever wrote it.
        assert stage.session_of(slow).output.sent_bytes >= (STALL_SECONDS + 10) * 16 * KIB
        await slow.receive(LIST_BYTES - (STALL_SECONDS + 10) * 16 * KIB)
        await stage.until(lambda: stage.outcome("answered") == 2, "the slow one's list, as the first one's")


def of_lists() -> list[str]:
    """Return what descriptors of lists are: files of pages, and sockets that have more than one."""
    targets: list[str] = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            targets.append(os.readlink(f"/proc/self/fd/{fd}"))
    twice = [target for target, count in Counter(targets).items() if count > 1 and target.startswith("socket:")]
    return twice + [target for target in targets if "topic-list" in target]


@pytest.mark.threat("reset-while-list-written")
@both_engines
async def test_clients_that_leave_in_the_middle_leave_no_descriptor() -> None:
    async with staged() as stage:
        for _ in range(5):
            members = await being_written(stage)
            assert of_lists()
            for member in members:
                member.reset()
            for client in list(stage.clients):
                client.close()
            await stage.until(stage.settled, "nothing left")
        await stage.until(lambda: not of_lists(), "all descriptors closed")


# --- without room ---------------------------------------------------------------------------------


class Refusing:
    """The engine's threads, which take no body."""

    def __init__(self, threads: Any) -> None:
        self._threads = threads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._threads, name)

    def write(self, *_: object) -> int:
        raise OSError(errno.EMFILE, "no descriptor")


@pytest.mark.threat("no-descriptor-list-thread")
async def test_without_descriptors_the_loop_writes_and_nobody_notices() -> None:
    native_extension()
    async with staged(relayEngine="native") as stage:
        engine = stage.proxy.relay_engines.native
        assert engine is not None
        stage.proxy.sockets.pump.threads_started(Refusing(engine.pairs))
        members = await being_written(stage)
        assert at_threads(stage) == 0
        await all_have_lists(members)


async def test_a_stopped_engine_cuts_the_lists_under_way_and_the_loop_writes_the_next() -> None:
    native_extension()
    async with staged(relayEngine="native", **LONG_LIST) as stage:
        engine = stage.proxy.relay_engines.native
        assert engine is not None
        members = await being_written(stage)
        assert at_threads(stage) == 3
        await engine.stop()
        for member in members:
            assert await was_reset(member)
        await stage.until(lambda: not stage.direct.held, "all given back")
        for member in await being_written(stage):
            await has_list(member)
        assert stage.direct.statistics().peak_held < 10 * MIB
