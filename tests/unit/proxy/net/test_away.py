"""Bodies that threads write: what is handed over, what their events do, and whose business a cut is."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from proxy.core.errors import ConnectionClosed, DisconnectCause
from proxy.net import away
from tests.support.clients.list_clients import turns
from tests.support.loops.loops import virtual
from tests.support.sockets.socket_pairs import FakeEndpoint
from tests.unit.proxy.net.test_pump import MIB, PREFIX, Bench, bench, full


class Threads:
    """Threads that do nothing by themselves: a test says how far a body is."""

    def __init__(self) -> None:
        self.writes: list[tuple[int, bytes, int, int]] = []
        self.positions: dict[int, int] = {}
        self.let_go: list[int] = []
        self.error: Exception | None = None
        self.closed: list[int] = []
        self.stopped = False

    def write(self, fd: int, prefix: bytes, pages_fd: int, size: int) -> int:
        if self.error is not None:
            raise self.error
        self.writes.append((fd, prefix, pages_fd, size))
        self.positions[len(self.writes)] = 0
        return len(self.writes)

    def end_write(self, body: int) -> None:
        self.let_go.append(body)

    def written(self, body: int) -> int | None:
        return self.positions.get(body)

    def close_pages(self, pages_fd: int) -> bool:
        if not self.stopped:
            self.closed.append(pages_fd)
            os.close(pages_fd)
        return not self.stopped


@asynccontextmanager
async def threaded() -> AsyncIterator[tuple[Bench, Threads]]:
    async with bench() as on:
        threads = Threads()
        on.pump.threads_started(cast(Any, threads))
        yield on, threads


async def handed_over(on: Bench, threads: Threads, size: int = MIB) -> tuple["asyncio.Task[None]", FakeEndpoint]:
    endpoint, before = on.endpoint(), len(threads.writes)
    sending = on.send(endpoint, on.pages(bytes(size)))
    await turns(3)
    assert len(threads.writes) == before + 1
    return sending, endpoint


# --- what goes to a thread ------------------------------------------------------------------------


@virtual
async def test_a_shared_body_goes_to_a_thread_and_ends_with_it() -> None:
    async with threaded() as (on, threads):
        endpoint, body = on.endpoint(), on.pages(bytes(MIB))
        sending = on.send(endpoint, body)
        await turns(3)
        assert threads.writes == [(endpoint.fd, PREFIX, body.pages_fd, MIB)]
        # A body that was handed over has begun: who is cancelled now has cut a frame.
        assert on.moved == [len(PREFIX)]
        on.pump.body_moved(1, 1000)
        assert (sum(on.moved), sending.done(), len(on.pump)) == (len(PREFIX) + 1000, False, 1)
        on.pump.body_ended(1, MIB, 0)
        await sending
        assert sum(on.moved) == len(PREFIX) + MIB
        assert (threads.let_go, endpoint.received()) == ([], 0)


@virtual
async def test_a_body_behind_bytes_that_nobody_takes_has_not_begun() -> None:
    async with threaded() as (on, threads):
        endpoint = on.endpoint()
        full(endpoint)
        sending = on.send(endpoint, on.pages(bytes(MIB)))
        await turns(20)
        assert (threads.writes, on.moved) == ([], [])
        while endpoint.received():
            await turns(5)
        assert len(threads.writes) == 1
        # The socket is the thread's to watch now.
        assert on.watched() == 0
        on.pump.body_ended(1, MIB, 0)
        await sending


@pytest.mark.parametrize("error", [OSError(24, "no descriptor"), RuntimeError("stopped")])
@virtual
async def test_the_loop_writes_what_the_threads_do_not_take(error: Exception) -> None:
    async with threaded() as (on, threads):
        threads.error = error
        await whole(on)


async def whole(on: Bench) -> None:
    endpoint = on.endpoint()
    sending, received = on.send(endpoint, on.pages(bytes(MIB))), 0
    while not sending.done():
        await turns(20)
        received += endpoint.received()
    assert received + endpoint.received() == len(PREFIX) + MIB


@pytest.mark.threat("no-descriptor-list-thread")
@virtual
async def test_the_loop_writes_what_is_too_much_for_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(away, "MOST_BODIES", 1)

    async with threaded() as (on, threads):
        first, _ = await handed_over(on, threads)
        await whole(on)
        assert len(threads.writes) == 1
        on.pump.body_ended(1, MIB, 0)
        await first


# --- ends -----------------------------------------------------------------------------------------


@virtual
async def test_who_is_cancelled_lets_go_of_the_body_and_hears_no_more() -> None:
    async with threaded() as (on, threads):
        sending, _ = await handed_over(on, threads)
        sending.cancel()
        await turns(3)
        assert (threads.let_go, len(on.pump)) == ([1], 0)
        moved = list(on.moved)
        on.pump.body_moved(1, 1000)
        on.pump.catch_up()
        on.pump.body_ended(1, 2000, 0)
        await turns(3)
        assert on.moved == moved


@virtual
async def test_a_thread_that_cannot_write_on_ends_the_connection() -> None:
    async with threaded() as (on, threads):
        failing, bad = await handed_over(on, threads)
        going, good = await handed_over(on, threads)
        on.pump.body_ended(1, 1000, 32)
        with pytest.raises(ConnectionClosed, match="Broken pipe"):
            await failing
        assert bad.cause is DisconnectCause.CONNECTION_RESET
        on.pump.body_ended(2, MIB, 0)
        await going
        assert good.open


@virtual
async def test_bodies_of_threads_that_have_stopped_are_cut() -> None:
    async with threaded() as (on, threads):
        sending, endpoint = await handed_over(on, threads)
        on.pump.threads_stopped()
        with pytest.raises(ConnectionClosed):
            await sending
        assert endpoint.cause is DisconnectCause.CONNECTION_RESET
        await whole(on)
        assert len(threads.writes) == 1


# --- progress -------------------------------------------------------------------------------------


@virtual
async def test_the_watch_over_slow_readers_sees_what_threads_have_written() -> None:
    async with threaded() as (on, threads):
        first, _ = await handed_over(on, threads)
        second, _ = await handed_over(on, threads)
        on.moved.clear()
        threads.positions.update({1: 300, 2: 50})
        on.pump.catch_up()
        assert on.moved == [300, 50]
        threads.positions[1] = 310
        # An end that was told and not yet taken.
        threads.positions.pop(2)
        on.pump.catch_up()
        assert on.moved == [300, 50, 10]
        on.pump.body_ended(1, MIB, 0)
        on.pump.body_ended(2, MIB, 0)
        await asyncio.gather(first, second)
        assert sum(on.moved) == 2 * MIB


@virtual
async def test_an_owner_that_fails_ends_its_own_connection_only() -> None:
    async with threaded() as (on, threads):
        bug = RuntimeError("a bug")

        def moved(count: int) -> None:
            if count > len(PREFIX):
                raise bug

        endpoint = on.endpoint()
        failing = on.send(endpoint, on.pages(bytes(MIB)), moved)
        await turns(3)
        going, _ = await handed_over(on, threads)
        threads.positions.update({1: 1000, 2: 1000})
        on.pump.catch_up()
        with pytest.raises(ConnectionClosed):
            await failing
        assert endpoint.crashes == [bug]
        assert threads.let_go == [1]
        on.pump.body_ended(2, MIB, 0)
        await going
