"""Threads for the disk, and what comes back when the process may have no more of them."""

import asyncio
import threading

import pytest

from proxy.core.counters import Counters
from proxy.core.threads import NoThread
from proxy.net.spill.file import SpillFile
from proxy.net.spill.space import SpaceReservation, SpillSpace
from proxy.net.spill.workers import WorkerThreads
from tests.support.patience import in_time
from tests.support.sockets.fake_disk import FakeDisk, StandingWorkers

KIB = 1024


def no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


async def test_a_call_without_a_thread_fails_and_later_calls_run(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = WorkerThreads(asyncio.get_running_loop(), 2, "test")
    with monkeypatch.context() as patch:
        no_more_threads(patch)
        for _ in range(3):
            with pytest.raises(NoThread):
                await workers.run(lambda: 1)
    assert await workers.run(lambda: 2) == 2
    workers.stop()


async def test_calls_that_get_no_thread_of_their_own_are_done_by_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = WorkerThreads(asyncio.get_running_loop(), 2, "test")
    go_on = threading.Event()
    first = workers.run(go_on.wait)
    no_more_threads(monkeypatch)
    second = workers.run(lambda: 2)
    go_on.set()
    assert (await first, await second) == (True, 2)
    workers.stop()


async def test_a_file_is_closed_and_its_space_comes_back_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    no_more_threads(monkeypatch)
    disk, standing, closed = FakeDisk(), StandingWorkers(), asyncio.Event()
    space = SpillSpace(KIB * KIB, 10, Counters())
    reservation = space.reserve(KIB, "key")
    assert isinstance(reservation, SpaceReservation)
    threads = WorkerThreads(asyncio.get_running_loop(), 2, "test")
    file = SpillFile(disk, space, reservation, threads, 0, closed.set)
    created = file.create(standing)
    await standing.go_on()
    await created
    with pytest.raises(NoThread):
        await file.write(threads, memoryview(bytes(KIB)), 0)
    file.close()
    async with in_time():
        await closed.wait()
    assert (disk.files, space.held, space.files) == ({}, 0, 0)
