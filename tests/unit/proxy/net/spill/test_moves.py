"""Lists move to disk step by step; whatever fails in between, a list is wholly in memory or wholly on disk."""

import asyncio
import errno
import io
import json
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.core.counters import Counters
from proxy.core.log import open_log
from proxy.net.spill import spill
from proxy.net.spill.body import ListReader, SpillableBody
from proxy.net.spill.judge import SWEEP_SECONDS, SpillJudge
from proxy.net.spill.moves import MOVES_AT_ONCE, STEP_BYTES
from proxy.net.spill.space import SpillSpace
from proxy.net.spill.spill import BURST_SECONDS, HANG_SECONDS, ListSpill, SpillSettings
from tests.support.cores import core_of
from tests.support.loops.clock import ManualClock
from tests.support.loops.loops import virtual
from tests.support.proxies.counted import counted, counted_by
from tests.support.sockets.fake_disk import FakeDisk, StandingWorkers

MIB = 1024 * 1024
LIST_BYTES = 2 * MIB + 12_345


class Memory:
    """A list in memory that knows whether it was given back."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.data = os.urandom(1024) * (size // 1024 + 1)
        self.closed = 0

    def write(self, fd: int, prefix: memoryview, position: int) -> int:
        raise NotImplementedError

    def read(self, position: int, count: int) -> memoryview:
        raise NotImplementedError

    def copy(self, position: int, buffer: memoryview) -> int:
        assert not self.closed
        piece = self.data[position : min(self.size, position + len(buffer))]
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self.closed += 1


class Stage:
    """A spill over a fake disk, with direct memory for three lists."""

    def __init__(self, limit: int, patience_seconds: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.counters = Counters()
        self.disk, self.writers, self.readers = FakeDisk(), StandingWorkers(), StandingWorkers()
        self.space = SpillSpace(limit, 100, self.counters)
        self.direct = AsyncSemaphore("direct", 3 * LIST_BYTES, max_queue=0, timeout_seconds=1000, clock=ManualClock())
        self._file = io.BytesIO()
        log = open_log("info", "json", self._file)
        core = core_of(counters=self.counters, log=log)
        workers = self.writers, self.readers
        self.spill = ListSpill(core, self.disk, self.space, lambda: self.direct.short, *workers)
        self.spill.apply(SpillSettings(limit, self.space.key_cap_percent, patience_seconds))
        self.bodies: list[SpillableBody] = []
        self.permits: list[Permit] = []
        self.waiters: list[Any] = []

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.getvalue().splitlines()]

    def list(
        self, *readers: ListReader, shared: bool = False, behind_disk: bool = False
    ) -> tuple[SpillableBody, Memory]:
        permit = self.direct.try_acquire(LIST_BYTES, key=f"key-{len(self.permits)}")
        assert permit is not None
        memory = Memory(LIST_BYTES)
        body = self.spill.watch(memory, permit, shared=shared, behind_disk=behind_disk)
        for reader in readers:
            body.begin(reader)
        self.bodies.append(body)
        self.permits.append(permit)
        return body, memory

    async def others_wait(self, size: int = 3 * LIST_BYTES) -> None:
        """Have somebody wait for direct memory."""
        self.waiters.append(self.loop.create_task(self.direct.acquire(size)))
        await self.turns()

    async def windows_pass(self) -> None:
        """Let time go by until a slow reader has been slow for long enough."""
        await asyncio.sleep(4 * SWEEP_SECONDS)

    async def turns(self) -> None:
        for _ in range(8):
            await asyncio.sleep(0)

    async def slow(self) -> None:
        """Have somebody wait for longer than a burst lasts, and let the readers be slow."""
        await self.others_wait()
        await asyncio.sleep(BURST_SECONDS)
        await self.windows_pass()

    async def contents(self, body: SpillableBody) -> bytes:
        """Read all that is on disk of a list."""
        assert body.file is not None
        found: list[bytes | None] = []
        position = body.file.start
        while position < body.size:
            read = body.read_from_disk(position, 300_000, found.append)
            await self.readers.go_on()
            read.end()
            assert found[-1] is not None
            position += len(found[-1])
        return b"".join(piece or b"" for piece in found)


@asynccontextmanager
async def stage(limit: int = 100 * MIB, patience_seconds: float = math.inf) -> AsyncIterator[Stage]:
    """Give a stage; at the end nothing is held, in memory or on disk."""
    on = Stage(limit, patience_seconds)
    yield on
    for waiter in on.waiters:
        if not waiter.cancel():
            waiter.result().release()
    for body, permit in zip(on.bodies, on.permits, strict=True):
        body.close()
        permit.release()
    on.disk.faults.clear()
    await on.writers.finish()
    await on.turns()
    await on.writers.finish()
    assert (on.spill.busy, on.space.held, on.space.files, on.space.unwritten) == (0, 0, 0, 0)
    assert (on.disk.files, on.direct.held) == ({}, 0)
    await on.spill.close()
    assert (on.writers.stopped, on.readers.stopped, on.disk.is_shut) == (True, True, True)


@virtual
async def test_a_slow_readers_list_moves_and_its_permit_ends_then() -> None:
    async with stage() as on:
        body, memory = on.list(ListReader())
        told: list[str] = []
        body.listen(lambda: told.append("moved"))
        await on.slow()
        await on.writers.go_on(4)
        assert (body.file, on.permits[0].released, memory.closed) == (None, False, 0), "two of three steps are written"
        await on.writers.go_on()
        assert body.file is not None
        assert (on.permits[0].released, memory.closed, told) == (True, 1, ["moved"])
        assert await on.contents(body) == memory.data[:LIST_BYTES]
        assert (counted(on.counters, "spill_lists"), counted(on.counters, "spill_written_bytes")) == (1, LIST_BYTES)
        assert [count for _, _, count in on.disk.writes] == [STEP_BYTES, STEP_BYTES, LIST_BYTES - 2 * STEP_BYTES]


@virtual
async def test_a_list_behind_a_list_on_disk_moves_at_the_next_look() -> None:
    async with stage() as on:
        on.list(ListReader())
        await on.slow()
        await on.writers.go_on(5)
        await on.turns()
        assert counted(on.counters, "spill_lists") == 1
        on.waiters.pop().result().release()
        behind, _ = on.list(behind_disk=True)
        fresh, _ = on.list(ListReader())
        await on.others_wait()
        await asyncio.sleep(SWEEP_SECONDS)
        assert (behind.moving, fresh.moving) == (True, False)
        await on.writers.go_on(5)
        assert counted(on.counters, "spill_lists") == 2


@virtual
async def test_nothing_moves_in_a_burst() -> None:
    async with stage() as on:
        on.list(ListReader())
        await on.others_wait()
        await on.windows_pass()
        assert not on.writers.calls, "memory has been short for half a second"
        assert not on.space.has_room_for(LIST_BYTES, "a"), "for lists to come, neither"
        await asyncio.sleep(BURST_SECONDS)
        assert on.writers.calls
        assert on.space.has_room_for(LIST_BYTES, "a")


@virtual
async def test_memory_that_is_short_again_within_a_second_is_no_new_burst() -> None:
    async with stage() as on:
        on.list(ListReader())
        await on.others_wait()
        await asyncio.sleep(BURST_SECONDS / 2)
        on.waiters.pop().cancel()
        await asyncio.sleep(BURST_SECONDS / 2)
        assert not on.writers.calls, "nobody waits"
        await on.others_wait()
        await asyncio.sleep(2 * SWEEP_SECONDS)
        assert on.writers.calls


@virtual
async def test_only_the_unsent_rest_moves() -> None:
    async with stage() as on:
        body, memory = on.list(ListReader(MIB + 5))
        await on.slow()
        await on.writers.finish()
        assert body.file is not None
        assert body.file.start == MIB + 5
        assert on.space.held < LIST_BYTES - MIB + 4096
        assert await on.contents(body) == memory.data[MIB + 5 : LIST_BYTES]


@virtual
async def test_a_move_that_is_not_needed_any_more_does_not_begin() -> None:
    async with stage() as on:
        bodies = [on.list(ListReader())[0] for _ in range(3)]
        await on.others_wait(LIST_BYTES)
        await asyncio.sleep(BURST_SECONDS)
        await on.windows_pass()
        await on.writers.finish()
        assert [body.file is not None for body in bodies].count(True) == 2, "two were moving when memory was free"


@virtual
async def test_a_list_that_its_client_leaves_lying_moves_before_its_clock_ends_although_nobody_waits() -> None:
    async with stage(patience_seconds=7) as on:
        lying, _ = on.list(ListReader())
        await on.windows_pass()
        assert not lying.moving, "memory is free, and the client has time"
        await asyncio.sleep(7)
        await on.windows_pass()
        await on.writers.finish()
        assert lying.file is not None
        assert on.space.lacking == 0


@virtual
async def test_a_list_without_a_place_is_its_clients_affair_until_there_is_one() -> None:
    async with stage(limit=3 * MIB) as on:
        on.list(ListReader())
        on.list(ListReader())
        await on.slow()
        await on.writers.finish()
        (stays,) = [each for each in on.bodies if each.file is None]
        (moved,) = [each for each in on.bodies if each.file is not None]
        assert (stays.kept, moved.kept) == (True, False)
        assert counted(on.counters, "spill_kept", "no_space") >= 1
        assert on.space.lacking > 0
        assert on.lines[0]["change"] == "topicListSpillMaxMB"
        moved.close()
        await on.writers.finish()
        await on.windows_pass()
        await on.writers.finish()
        assert (stays.kept, stays.file is None) == (False, False)


@pytest.mark.threat("disk-small-or-broken")
@virtual
async def test_while_a_disk_fails_it_has_no_room_for_lists_to_come() -> None:
    async with stage() as on:
        body, _ = on.list(ListReader())
        on.disk.fail("write", errno.EIO)
        await on.slow()
        assert on.space.has_room_for(LIST_BYTES, "a")
        await on.writers.finish()
        assert (body.kept, on.space.has_room_for(LIST_BYTES, "a")) == (True, False)
        on.disk.faults.clear()
        for _ in range(4):
            await on.windows_pass()
        assert on.writers.calls, "the disk is tried again"
        assert not on.space.has_room_for(LIST_BYTES, "a"), "nobody knows yet"
        await on.writers.finish()
        assert (body.file is not None, on.space.has_room_for(LIST_BYTES, "a")) == (True, True)
        (line,) = on.lines
        told = (line["level"], line["reason"], line["change"], line["lists"])
        assert told == ("warning", "disk_error", "topicListSpillDirectory", 1)


@virtual
async def test_a_disk_that_hangs_has_no_room_and_lists_stay() -> None:
    async with stage() as on:
        bodies = [on.list(ListReader())[0] for _ in range(3)]
        await on.slow()
        waiting = bodies[-1]
        assert (waiting.kept, on.space.failing) == (False, False), "it is about to move"
        await asyncio.sleep(HANG_SECONDS)
        await on.windows_pass()
        assert (waiting.kept, on.space.failing) == (True, True)
        await on.writers.finish()
        assert (waiting.kept, on.space.failing, waiting.file is not None) == (False, False, True)


@virtual
async def test_a_judge_that_raises_once_judges_the_lists_of_the_next_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as on:
        body, _ = on.list(ListReader())
        look = SpillJudge.look

        def fails_once(*_: Any) -> Any:
            monkeypatch.setattr(SpillJudge, "look", look)
            raise ValueError

        # One list a turn: the sweep is not over when the judge raises.
        monkeypatch.setattr(spill, "LISTS_A_TURN", 1)
        on.list(ListReader())
        monkeypatch.setattr(SpillJudge, "look", fails_once)
        await on.slow()
        assert counted_by(on.counters, "internal_errors") == {"list_to_disk": 1}
        assert counted(on.counters, "spill_moving") == MOVES_AT_ONCE
        await on.writers.finish()
        assert body.file is not None


@virtual
async def test_a_tenth_of_the_disk_stays_free() -> None:
    async with stage() as on:
        on.disk.free, on.disk.total = 100 * MIB + LIST_BYTES, 1000 * MIB
        body, _ = on.list(ListReader())
        await on.slow()
        await on.writers.finish()
        assert body.file is None
        assert counted(on.counters, "spill_kept", "disk_full") == 1


@virtual
async def test_a_list_that_nobody_waits_for_asks_nobody_to_leave_the_disk() -> None:
    async with stage(limit=LIST_BYTES // 2, patience_seconds=7) as on:
        lying, _ = on.list(ListReader())
        await asyncio.sleep(7)
        await on.windows_pass()
        assert (lying.moving, lying.kept, on.space.lacking) == (False, False, 0)
        assert sum(counted_by(on.counters, "spill_kept").values()) == 0
