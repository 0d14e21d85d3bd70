"""Answers that cannot go to disk, for clients that do not read: others have their lists all the same (ADR 23).

Verdicts hang on the order of events: the clients that read are served before any of the others has read a byte.
"""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from protocol.commands import request_id_of
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.async_client import AsyncClient, Closed, schema_frame
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import (
    LIST_BYTES,
    MIB,
    SLOW_READER_RCVBUF,
    TIGHT,
    TOPIC,
    Stage,
    direct_taken,
    namespace,
    staged,
    waiting_for_direct,
)
from tests.support.proxies.shared_lists import has_list
from tests.support.proxies.storms import LIMIT_MIB, NAMES, QUICK, SLOW, STORM, has_lists, listed, pass_by, timeless

LEAST: Final[dict[str, Any]] = {"topicListWriteStallTimeoutMillis": 0, "topicListWriteMinBytesPerSecond": 32_768}


def large_schema(stage: Stage, size: int = LIST_BYTES) -> None:
    """Give the broker a schema of a topic that every client may ask for."""
    stage.broker.answers.schemas[TOPIC] = [pb.Schema(name="s", type=pb.Schema.String, schema_data=bytes(size))]


async def askers_of_schemas(stage: Stage) -> list[AsyncClient]:
    """Have more clients ask for a large schema, and not read it, than direct memory has room for."""
    clients = [await stage.connected(SLOW_READER_RCVBUF) for _ in range(SLOW)]
    for client in clients:
        await client.send(schema_frame(77, TOPIC))
    share = stage.unproven
    await stage.until(
        lambda: stage.lookups.held == SLOW and stage.direct.held + LIST_BYTES > share.limit, "schemas there"
    )
    return clients


# --- schemas and their share ------------------------------------------------------------------------


@pytest.mark.threat("unread-large-schemas")
@pytest.mark.parametrize("disk", [False, True], ids=["without a disk", "with a disk"])
async def test_schemas_that_nobody_reads_leave_memory_to_lists(tmp_path: Path, disk: bool) -> None:
    keys: dict[str, Any] = {"topicListSpillDirectory": str(tmp_path / "lists")} if disk else {}
    async with staged(NAMES, **STORM, **keys) as stage:
        large_schema(stage)
        quick = [await stage.connected() for _ in range(QUICK)]
        for number, client in enumerate(quick):
            await listed(client, number)
        slow = await askers_of_schemas(stage)
        await asyncio.gather(*(listed(client, number) for number, client in enumerate(quick, QUICK)))
        assert stage.direct.held <= LIMIT_MIB * MIB // 2
        # Nobody was refused for the sake of others: those that begin to read now have their schemas.
        answers = await asyncio.gather(*(client.answer() for client in slow))
        assert {len(answer.getSchemaResponse.schema.schema_data) for answer in answers} == {LIST_BYTES}


async def test_small_schemas_of_new_clients_wait_for_no_reader() -> None:
    patient = dict.fromkeys(
        ("topicListRequestTimeoutMillis", "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis"), 3_600_000
    )
    async with staged(NAMES, **{**STORM, **patient}) as stage:
        large_schema(stage)
        await askers_of_schemas(stage)
        large_schema(stage, 100)
        fresh = await stage.connected()
        for number in range(5):
            await fresh.send(schema_frame(number, TOPIC))
            assert len((await fresh.answer()).getSchemaResponse.schema.schema_data) == 100


@pytest.mark.threat("unread-large-schemas")
async def test_a_client_that_reads_and_then_asks_for_many_schemas_holds_no_more_than_others() -> None:
    async with staged(NAMES, **STORM) as stage:
        large_schema(stage)
        greedy, quick = await stage.connected(SLOW_READER_RCVBUF), await stage.connected()
        await listed(greedy, 0)
        await listed(quick, 1)
        asked = set(range(100, 100 + SLOW))
        await greedy.send(b"".join(schema_frame(number, TOPIC) for number in sorted(asked)))
        await stage.until(lambda: not stage.outstanding and stage.session_of(greedy).output.holds_memory, "all asked")
        # One more than fits into the half: what a client that reads has without a share.
        assert stage.direct.held <= LIMIT_MIB * MIB // 2 + LIST_BYTES + 64 * 1024
        await listed(quick, 2)
        answers = [await greedy.answer() for _ in asked]
        assert {request_id_of(answer) for answer in answers} == asked
        assert {answer.type for answer in answers} == {pb.BaseCommand.GET_SCHEMA_RESPONSE}


async def test_a_client_that_leaves_its_schemas_behind_gives_shares_and_places_back() -> None:
    async with staged(NAMES, **STORM) as stage:
        large_schema(stage)
        clients = await askers_of_schemas(stage)
        await stage.until(lambda: stage.unproven.queue_size, "schemas that wait for a share")
        for client in clients:
            client.reset()
        await stage.until(stage.settled, "all given back")


async def test_a_schema_without_a_share_in_time_is_refused() -> None:
    async with staged(NAMES, **STORM) as stage:
        large_schema(stage)
        await askers_of_schemas(stage)
        stage.change(maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis=50)
        late = await stage.connected()
        await late.send(schema_frame(5, TOPIC))
        error = await late.error(5)
        assert error.error == pb.TooManyRequests


# --- what waits behind a list on disk -----------------------------------------------------------------


@pytest.mark.threat("more-behind-disk-list")
async def test_a_schema_behind_a_list_on_disk_is_given_up_for_those_who_wait(tmp_path: Path) -> None:
    async with timeless(**TIGHT | LEAST, topicListSpillDirectory=str(tmp_path / "lists")) as stage:
        large_schema(stage)
        slow = await direct_taken(stage)
        await has_list(await waiting_for_direct(stage))
        await slow.send(schema_frame(77, TOPIC))
        await stage.until(lambda: stage.direct.held >= LIST_BYTES, "a schema behind the list on disk")
        await pass_by(stage, range(30))
        assert stage.caused("reads_too_slowly") == 0, "nobody waits for its memory"
        quick = await waiting_for_direct(stage, 2)
        await pass_by(stage, range(30, 32))
        assert stage.caused("reads_too_slowly") == 1
        await has_list(quick)
        with pytest.raises(Closed):
            await slow.answer()


@pytest.mark.threat("more-behind-disk-list")
async def test_a_list_behind_a_list_on_disk_that_finds_no_place_is_given_up_for_those_who_wait(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"topicListFairness": "connection", "topicListSpillMaxMB": 2}
    async with timeless(**TIGHT | LEAST, **keys, topicListSpillDirectory=str(tmp_path / "lists")) as stage:
        assert stage.proxy.memory.spill is not None
        # No connection may have two lists there, and for others there is space.
        stage.proxy.memory.spill.space.key_cap_percent = 60
        slow = await direct_taken(stage)
        await has_list(await waiting_for_direct(stage))
        assert counted(stage.proxy.counters, "spill_files") == 1
        await slow.ask_topics(namespace(1))
        await stage.until(lambda: stage.direct.held >= LIST_BYTES, "a list behind the list on disk")
        await pass_by(stage, range(30))
        quick = await waiting_for_direct(stage, 2)
        await stage.until(lambda: counted(stage.proxy.counters, "spill_kept", "no_space"), "no place on the disk")
        await pass_by(stage, range(30, 32))
        assert stage.caused("reads_too_slowly") == 1
        await has_list(quick)
        with pytest.raises(Closed):
            await slow.answer()


# --- the share where the disk is small ------------------------------------------------------------------


@pytest.mark.threat("disk-small-or-broken")
async def test_lists_take_shares_while_the_disk_has_no_room_for_them(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"topicListSpillDirectory": str(tmp_path / "lists"), "topicListSpillMaxMB": 1}
    async with staged(NAMES, **STORM, **keys) as stage:
        quick = [await stage.connected() for _ in range(QUICK)]
        for number, client in enumerate(quick):
            await listed(client, number)
        slow = [await stage.connected(SLOW_READER_RCVBUF) for _ in range(SLOW)]
        for number, client in enumerate(slow, QUICK):
            await client.ask_topics(namespace(number))
        share = stage.unproven
        await stage.until(lambda: share.queue_size and share.held + LIST_BYTES > share.limit, "shares taken")
        await asyncio.gather(*(listed(client, number) for number, client in enumerate(quick, QUICK + SLOW)))
        assert stage.direct.held <= LIMIT_MIB * MIB // 2
        await has_lists(slow)


async def test_lists_that_can_move_to_disk_hold_half_of_memory_and_newcomers_pass(tmp_path: Path) -> None:
    async with staged(NAMES, **STORM, topicListSpillDirectory=str(tmp_path / "lists")) as stage:
        slow = [await stage.connected(SLOW_READER_RCVBUF) for _ in range(SLOW)]
        for number, client in enumerate(slow):
            await client.ask_topics(namespace(number))
        await stage.until(lambda: counted(stage.proxy.counters, "spill_lists") >= SLOW // 4, "lists on disk")
        await listed(await stage.connected(), SLOW)
        assert stage.unproven.held <= stage.unproven.limit
        assert stage.direct.held <= 3 * stage.direct.limit // 4
