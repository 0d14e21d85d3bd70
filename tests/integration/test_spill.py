"""Slow readers' lists go to disk, and quick clients are served beside clients that take nothing.

Every stage ends on zero: permits, space, files, descriptors, and what the threads have to do.
"""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from protocol.commands import request_id_of
from protocol.pb import PulsarApi_pb2 as pb
from proxy.app import proxy as app
from proxy.auth.failures import SettingFault
from proxy.clients.requests import LISTS_AT_ONCE
from proxy.net.spill.disk import DirectoryDisk
from tests.support.clients.async_client import AsyncClient, Closed
from tests.support.patience import patient_millis
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import (
    LIST_BYTES,
    MIB,
    SLOW_READER_RCVBUF,
    TIGHT,
    TOPICS,
    Stage,
    direct_taken,
    namespace,
    staged,
    waiting_for_direct,
)
from tests.support.proxies.shared_lists import behind_a_question, has_list, let_go

NEVER_SLOW: Final = {"topicListWriteStallTimeoutMillis": 0, "topicListWriteMinBytesPerSecond": 0}


def spilling(tmp_path: Path, **keys: Any) -> dict[str, Any]:
    return {**TIGHT, **NEVER_SLOW, "topicListSpillDirectory": str(tmp_path / "lists"), **keys}


def names(answer: pb.BaseCommand) -> list[str]:
    return list(answer.getTopicsOfNamespaceResponse.topics)


async def on_disk(stage: Stage, lists: int = 1) -> None:
    await stage.until(lambda: counted(stage.proxy.counters, "spill_lists") >= lists, f"{lists} lists on disk")


class Gate:
    """Holds the threads of a disk at a call until the gate is opened."""

    def __init__(self) -> None:
        self.waiting = 0
        self._open = threading.Event()

    def wait(self) -> None:
        self.waiting += 1
        self._open.wait(600)

    def open(self) -> None:
        self._open.set()


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, method: str) -> Iterator[Gate]:
    """Hold all calls of one method of the disk."""
    gate, really = Gate(), getattr(DirectoryDisk, method)

    def waits(disk: DirectoryDisk, *given: object) -> object:
        gate.wait()
        return really(disk, *given)

    with monkeypatch.context() as patched:
        patched.setattr(DirectoryDisk, method, waits)
        try:
            yield gate
        finally:
            gate.open()


def failing(monkeypatch: pytest.MonkeyPatch, method: str, number: int) -> None:
    """Let the calls of one method of the disk fail."""

    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(DirectoryDisk, method, fails)


# --- quick clients do not wait ----------------------------------------------------------------------


@pytest.mark.threat("unread-lists-with-disk")
async def test_many_that_take_nothing_hold_up_nobody(tmp_path: Path) -> None:
    async with staged(**spilling(tmp_path)) as stage:
        slow = []
        for number in range(8):
            reader = await stage.connected(SLOW_READER_RCVBUF)
            await reader.ask_topics(namespace(number))
            slow.append(reader)
        for number in range(8, 12):
            quick = await stage.connected()
            assert len((await quick.topics(namespace(number))).topics) == TOPICS
        assert stage.outcome("answered") <= 4, "no slow reader has its list"
        await on_disk(stage, 8)
        shown: Any = stage.proxy.shown()["spill"]
        assert (shown["files"], shown["moved_lists"], shown["limit_bytes"]) == (8, 8, 4096 * MIB)
        await asyncio.gather(*(has_list(reader) for reader in slow))


async def test_several_lists_of_one_client_outlast_their_clocks_on_disk_and_come_back_in_order(tmp_path: Path) -> None:
    clock_millis = patient_millis(1500)
    async with staged(**spilling(tmp_path, topicListRequestTimeoutMillis=clock_millis)) as stage:
        slow = await stage.connected(SLOW_READER_RCVBUF)
        asked = [await slow.ask_topics(namespace(number)) for number in range(LISTS_AT_ONCE)]
        quick = await stage.connected()
        # Lists move while others wait: each quick request meets the next list in memory.
        while counted(stage.proxy.counters, "spill_lists") < len(asked):
            assert len((await quick.topics(namespace(5))).topics) == TOPICS
        await asyncio.sleep(clock_millis / 1000 + 0.1)
        answers = [await slow.answer() for _ in asked]
        assert sorted(map(request_id_of, answers)) == asked
        for answer in answers:
            number = asked.index(request_id_of(answer))
            assert names(answer) == list((await quick.topics(namespace(number))).topics)


async def test_a_shared_list_is_written_once_for_all_its_readers(tmp_path: Path) -> None:
    async with staged(**spilling(tmp_path)) as stage:
        reference = list((await (await stage.connected()).topics(namespace(0))).topics)
        first, _ = await behind_a_question(stage, 0)
        members = [await stage.connected(SLOW_READER_RCVBUF) for _ in range(5)]
        before = stage.lookups.held
        for member in members:
            await member.ask_topics(namespace(0))
        await stage.until(lambda: stage.lookups.held == before + 5, "all members read")
        let_go(stage)
        await has_list(first)
        await stage.until(lambda: stage.direct.held >= LIST_BYTES, "the shared list in direct memory")
        quick = await waiting_for_direct(stage)
        await has_list(quick)
        assert (counted(stage.proxy.counters, "spill_lists"), counted(stage.proxy.counters, "spill_files")) == (1, 1)
        members.pop().reset()
        for answer in await asyncio.gather(*(member.answer() for member in members)):
            assert names(answer) == reference


# --- clients that leave -----------------------------------------------------------------------------

cuts = pytest.mark.parametrize("cut", [AsyncClient.close, AsyncClient.reset, AsyncClient.fin])


@cuts
@pytest.mark.parametrize("method", ["room", "create", "write"])
async def test_a_client_that_leaves_during_the_move_frees_its_memory_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: Callable[[AsyncClient], None], method: str
) -> None:
    async with staged(**spilling(tmp_path)) as stage:
        slow = await direct_taken(stage)
        quick = await waiting_for_direct(stage)
        with held(monkeypatch, method) as gate:
            await stage.until(lambda: gate.waiting, f"a thread in {method}")
            cut(slow)
            # The thread stands still: its memory is not the list's.
            await has_list(quick)
            assert counted(stage.proxy.counters, "spill_files") == 1
        await stage.until(lambda: not counted(stage.proxy.counters, "spill_files"), "the file closed")


@cuts
async def test_a_client_that_leaves_during_a_read_frees_its_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: Callable[[AsyncClient], None]
) -> None:
    async with staged(**spilling(tmp_path)) as stage:
        slow = await direct_taken(stage)
        await has_list(await waiting_for_direct(stage))
        assert counted(stage.proxy.counters, "spill_files") == 1
        with held(monkeypatch, "read") as gate:
            reading = asyncio.get_running_loop().create_task(slow.answer())
            await stage.until(lambda: gate.waiting, "a thread that reads")
            reading.cancel()
            await asyncio.wait([reading])
            cut(slow)
            if cut is not AsyncClient.fin:
                await stage.until(lambda: len(stage.proxy.sessions) == 1, "the client gone")
                assert counted(stage.proxy.counters, "spill_files") == 1, "a thread still reads"
        slow.close()
        await stage.until(lambda: not stage.proxy.memory.spill.busy, "space and pool free")  # type: ignore[union-attr]


# --- disks that fail --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "number", "reason"), [("create", errno.EMFILE, "disk_error"), ("write", errno.ENOSPC, "disk_full")]
)
async def test_a_disk_that_cannot_be_written_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, number: int, reason: str
) -> None:
    async with staged(**spilling(tmp_path)) as stage:
        failing(monkeypatch, method, number)
        slow = await direct_taken(stage)
        quick = await waiting_for_direct(stage)
        await stage.until(lambda: counted(stage.proxy.counters, "spill_kept", reason) >= 1, reason)
        assert stage.direct.queue_size == 1, "the list stays in memory"
        assert len(names(await slow.answer())) == TOPICS
        await has_list(quick)


async def test_a_read_that_fails_closes_that_client_with_the_cause_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(**spilling(tmp_path)) as stage:
        slow = await direct_taken(stage)
        quick = await waiting_for_direct(stage)
        await has_list(quick)
        failing(monkeypatch, "read", errno.EIO)
        with pytest.raises(Closed):
            await slow.answer()
        assert stage.caused("spill_read_failed") == 1
        assert counted(stage.proxy.counters, "spill_read_errors") == 1
        await quick.ping()


# --- the rules for slow readers -----------------------------------------------------------------------


async def test_a_list_on_disk_is_not_judged_by_its_rate_until_space_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "TICK_SECONDS", 3600)
    least = {"topicListWriteMinBytesPerSecond": 32_768}
    async with staged(**spilling(tmp_path, topicListSpillMaxMB=1, **least)) as stage:
        watch, counters, spill = stage.proxy.memory.writes, stage.proxy.counters, stage.proxy.memory.spill
        assert spill is not None
        seconds = iter(range(1000))

        async def pass_by(count: int) -> None:
            for _ in range(count):
                await watch.sweep(next(seconds))

        slow = await direct_taken(stage)
        await has_list(await waiting_for_direct(stage))
        assert counted(counters, "spill_files") == 1
        await pass_by(30)
        assert (stage.caused("reads_too_slowly"), counted(counters, "spill_held_bytes") > MIB // 2) == (0, True), (
            "there is space"
        )
        # A second list finds no space beside the first.
        second = await stage.connected(SLOW_READER_RCVBUF)
        await second.ask_topics(namespace(2))
        await stage.until(lambda: stage.direct.held >= LIST_BYTES, "a second list in memory")
        quick = await waiting_for_direct(stage, 6)
        await stage.until(lambda: counted(counters, "spill_kept", "no_space"), "no space for the second list")
        await stage.until(lambda: spill.space.lacking, "short of space")
        # The second reader has been looked at for too short a time to be judged.
        await pass_by(9)
        assert stage.caused("reads_too_slowly") == 1, "the list on disk made room"
        await has_list(quick)
        assert len(names(await second.answer())) == TOPICS
        with pytest.raises(Closed):
            await slow.answer()


async def test_a_client_whose_list_is_on_disk_and_who_takes_nothing_is_closed_for_that(tmp_path: Path) -> None:
    async with staged(**spilling(tmp_path)) as stage:
        await direct_taken(stage)
        await has_list(await waiting_for_direct(stage))
        stage.change(topicListWriteStallTimeoutMillis=300)
        await stage.until(lambda: stage.caused("write_stalled") == 1, "the stalled reader closed")
        await stage.until(lambda: not counted(stage.proxy.counters, "spill_files"), "its file closed")


# --- the end of the proxy -----------------------------------------------------------------------------


async def test_lists_on_disk_are_sent_before_the_proxy_ends(tmp_path: Path) -> None:
    async with staged(**spilling(tmp_path, shutdownDrainMillis=60_000)) as stage:
        slow = await direct_taken(stage)
        await has_list(await waiting_for_direct(stage))
        assert counted(stage.proxy.counters, "spill_files") == 1
        stopping = asyncio.get_running_loop().create_task(stage.proxy.stop())
        await stage.until(lambda: str(stage.proxy.phase) == "draining", "the drain")
        assert len(names(await slow.answer())) == TOPICS
        await stopping
        assert counted(stage.proxy.counters, "spill_files") == 0


async def test_a_proxy_that_ends_leaves_no_file_and_no_thread(tmp_path: Path) -> None:
    async with staged(**spilling(tmp_path)) as stage:
        await direct_taken(stage)
        await has_list(await waiting_for_direct(stage))
        assert [thread.name for thread in threading.enumerate() if thread.name.startswith("list-")]
        await stage.proxy.stop(0)
    assert os.listdir(tmp_path / "lists") == []
    for thread in threading.enumerate():
        if thread.name.startswith("list-"):
            thread.join(20)
            assert not thread.is_alive()


@pytest.mark.threat("spill-files-read")
async def test_a_directory_that_others_may_write_to_takes_no_list(tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    lists.mkdir()
    lists.chmod(0o777)
    with pytest.raises(SettingFault, match="mode 0777, expected one that only its owner may write to") as refusal:
        async with staged(**spilling(tmp_path)):
            pass
    assert "topicListSpillDirectory" in str(refusal.value)
