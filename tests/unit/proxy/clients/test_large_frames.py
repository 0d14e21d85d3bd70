"""Large frames of clients: memory for what has come, and the ends of those that drip."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from limiter.permit import Permit
from protocol.states import State
from proxy.clients.large_frames import LARGE_FRAME_COPIES, SHARE_PART, UNBOOKED_FRAME_BYTES, memory_for
from tests.support.clients.async_client import connect_frame
from tests.support.clients.uploads import LEAST_BYTES_PER_SECOND, Services, Uploader, schema_frame_of
from tests.support.loops.loops import run_virtual

KIB = 1024
MIB = 1024 * KIB


def test_memory_for_what_has_come_is_at_most_twice_that_until_the_frame_is_whole() -> None:
    charged = 0
    for stored in range(0, 100 * KIB, 1000):
        charged = memory_for(stored, 100 * KIB, charged)
        assert charged <= 2 * stored
        assert charged >= stored or stored < UNBOOKED_FRAME_BYTES
    assert memory_for(100 * KIB, 100 * KIB, charged) == LARGE_FRAME_COPIES * 100 * KIB


def staged(limit: int, test: Callable[[Services], Awaitable[None]]) -> None:
    async def run() -> None:
        services = Services(limit)
        await test(services)
        assert services.direct.held == services.handshakes.held == 0
        assert not len(services.uploads)

    run_virtual(run())


def list_that_waits(services: Services, size: int) -> asyncio.Task[Permit]:
    return asyncio.get_running_loop().create_task(services.direct.acquire(size))


def test_a_frame_grows_its_permit_a_few_times_only() -> None:
    async def test(services: Services) -> None:
        client = Uploader(services, schema_frame_of(MIB))
        client.offer(MIB)
        assert client.handled
        assert services.direct.statistics().granted <= 10
        assert services.direct.statistics().peak_held == LARGE_FRAME_COPIES * MIB

    staged(0, test)


def test_frames_that_all_wait_to_grow_end_one_after_another() -> None:
    async def test(services: Services) -> None:
        # Each holds a place of the share, and no two can grow to what they need in all.
        clients = [Uploader(services, schema_frame_of(100 * KIB)) for _ in range(8)]
        for client in clients:
            client.offer(60 * KIB)
        for client in clients:
            client.offer(40 * KIB)
        for _ in range(8):
            await services.settle()
        assert all(client.handled for client in clients)
        # Each could grow as the only one above the share.
        assert services.frames.statistics().peak_held <= 512 * KIB + LARGE_FRAME_COPIES * 100 * KIB

    staged(2 * MIB, test)


def test_a_dripping_sender_in_front_of_a_list_is_closed_and_the_list_goes_on() -> None:
    async def test(services: Services) -> None:
        dripping = Uploader(services, schema_frame_of(100 * KIB))
        dripping.offer(30 * KIB)
        rest = services.direct.try_acquire(services.direct.available)
        assert rest is not None
        waiting = list_that_waits(services, 10 * KIB)
        # The first burst is in the first window of ten seconds.
        for _ in range(11):
            dripping.offer(10)
            await services.live(1)
        assert [dripping.end] == [None]
        await services.live(2)
        assert dripping.end == "sends_too_slowly"
        (await waiting).release()
        line = json.loads(services.lines[-1])
        assert (line["cause"], line["evictions"]) == ("sends_too_slowly", 1)
        assert line["change"] == "topicListWriteMinBytesPerSecond"
        rest.release()

    staged(400 * KIB, test)


def test_the_slowest_is_closed_first_and_only_as_many_as_a_list_needs() -> None:
    async def test(services: Services) -> None:
        clients = [Uploader(services, schema_frame_of(100 * KIB)) for _ in range(3)]
        for number, client in enumerate(clients):
            client.offer(20 * KIB + number * KIB)
        rest = services.direct.try_acquire(services.direct.available)
        assert rest is not None
        for _ in range(12):
            await services.live(1)
            for client, count in zip(clients, (200, 10, 300), strict=True):
                client.offer(count)
        waiting = list_that_waits(services, 10 * KIB)
        await services.live(1)
        assert [client.end for client in clients] == [None, "sends_too_slowly", None]
        (await waiting).release()
        rest.release()
        for client in clients:
            client.leave()

    staged(MIB, test)


@pytest.mark.parametrize("count", [0, 10])
def test_a_dripping_sender_that_nobody_waits_for_has_its_clock_only(count: int) -> None:
    async def test(services: Services) -> None:
        client = Uploader(services, schema_frame_of(100 * KIB))
        client.offer(30 * KIB)
        for _ in range(27):
            await services.live(1)
            client.offer(count)
        assert client.end is None
        await services.live(2)
        assert client.end == "read_timeout"

    staged(0, test)


def test_time_in_which_a_frame_waits_for_memory_is_not_its_client_s() -> None:
    async def test(services: Services) -> None:
        client = Uploader(services, schema_frame_of(100 * KIB))
        client.offer(10 * KIB)
        rest, over = services.direct.try_acquire(services.direct.available), services.direct.try_acquire(0)
        assert rest is not None
        assert over is not None
        assert over.try_update(1)
        client.offer(90 * KIB)
        await services.settle()
        assert services.direct.growers_waiting == 1
        # 24 of the 25 seconds for memory, as of 28 seconds for bytes; a waiter of its own keeps memory short.
        await services.live(24)
        assert client.end is None
        over.release()
        rest.release()
        await services.settle()
        assert client.handled

    staged(300 * KIB, test)


def test_waits_for_memory_have_one_time_limit_together() -> None:
    async def test(services: Services) -> None:
        client = Uploader(services, schema_frame_of(100 * KIB))
        taken = services.direct.try_acquire(services.direct.limit)
        assert taken is not None
        client.offer(6 * KIB)
        await services.settle()
        await services.live(20)
        taken.release()
        await services.settle()
        rest, over = services.direct.try_acquire(services.direct.available), services.direct.try_acquire(0)
        assert rest is not None
        assert over is not None
        assert over.try_update(1)
        client.offer(94 * KIB)
        await services.settle()
        await services.live(4)
        assert not client.sent
        await services.live(2)
        # Passed over: the answer was sent, and the connection lives.
        assert len(client.sent) == 1
        assert client.end is None
        assert services.direct.held == rest.size + 1
        over.release()
        rest.release()

    staged(100 * KIB, test)


def test_before_connected_memory_is_the_handshakes_own() -> None:
    async def test(services: Services) -> None:
        taken = services.direct.try_acquire(services.direct.limit)
        assert taken is not None
        client = Uploader(services, connect_frame(auth_data=bytes(60 * KIB)), state=State.INIT)
        client.offer(10 * KIB)
        assert services.handshakes.held == 16 * KIB
        client.offer(60 * KIB)
        assert client.handled
        taken.release()

    staged(100 * KIB, test)


@pytest.mark.threat("large-connect")
def test_before_connected_all_addresses_of_one_ipv6_network_have_one_turn() -> None:
    async def test(services: Services) -> None:
        frame = connect_frame(auth_data=bytes(60 * KIB))
        crowd = [Uploader(services, frame, state=State.INIT, address=f"2001:db8::{n:x}") for n in range(1, 21)]
        other = Uploader(services, frame, state=State.INIT, address="2001:db8:0:1::1")
        for client in (*crowd, other):
            client.offer(10 * KIB)
        await services.settle()
        holders = [client for client in crowd if client.large.held_bytes]
        assert len(holders) < 5
        assert [other.large.held_bytes] == [0]
        for client in holders:
            client.leave()
        await services.settle()
        assert other.large.held_bytes
        for client in (*crowd, other):
            client.leave()
        await services.settle()

    staged(40 * KIB, test)


def test_a_connect_without_memory_ends_its_connection() -> None:
    async def test(services: Services) -> None:
        taken = services.handshakes.try_acquire(services.handshakes.limit)
        assert taken is not None
        client = Uploader(services, connect_frame(auth_data=bytes(60 * KIB)), state=State.INIT)
        client.offer(10 * KIB)
        await services.live(26)
        assert client.end == "memory_limit"
        assert [refusal.stage for refusal in services.requests.refusals.recent] == ["handshake"]
        assert services.requests.refusals.recent[0].change == "maxHandshakeInFlightMemSizeMB"
        taken.release()

    staged(100 * KIB, test)


def test_a_sender_above_the_least_rate_is_never_closed_for_it() -> None:
    async def test(services: Services) -> None:
        client = Uploader(services, schema_frame_of(100 * KIB))
        client.offer(30 * KIB)
        rest = services.direct.try_acquire(services.direct.available)
        waiting = Uploader(services, schema_frame_of(10 * KIB))
        assert rest is not None
        waiting.offer(10 * KIB)
        for _ in range(20):
            await services.live(1)
            client.offer(2 * LEAST_BYTES_PER_SECOND)
        assert client.end is None
        client.leave()
        await services.settle()
        assert waiting.handled
        rest.release()

    staged(200 * KIB, test)


# --- the share of direct memory, and those who hold it and send nothing ------------------------------------


def shared(limit: int, test: Callable[[Services], Awaitable[None]]) -> None:
    async def checked(services: Services) -> None:
        await test(services)
        assert services.frames.held == services.frames.queue_size == services.frames.growers_waiting == 0

    staged(limit, checked)


async def holding(services: Services, count: int, size: int = 64 * KIB, address: str = "192.0.2.1") -> list[Uploader]:
    """Have clients that send the first `size` bytes of a frame of one MiB, and then nothing."""
    clients = [Uploader(services, schema_frame_of(MIB), address=address) for _ in range(count)]
    for client in clients:
        client.offer(size)
    await services.settle()
    return clients


async def leave(services: Services, clients: list[Uploader]) -> None:
    for client in clients:
        client.leave()
    await services.settle()


def test_frames_hold_a_quarter_of_direct_memory_and_leave_the_rest_to_lists() -> None:
    async def test(services: Services) -> None:
        clients = await holding(services, 100)
        assert 0 < services.direct.held <= services.direct.limit // SHARE_PART + 64 * KIB
        assert services.direct.queue_size == services.direct.growers_waiting == 0
        lists = services.direct.try_acquire(services.direct.limit * 3 // 4 - 64 * KIB)
        assert lists is not None
        lists.release()
        await leave(services, clients)

    shared(4 * MIB, test)


@pytest.mark.parametrize("more", [0, 100])
def test_frames_that_wait_to_grow_and_send_nothing_are_refused_and_an_honest_sender_is_served(more: int) -> None:
    async def test(services: Services) -> None:
        # 16 places; the bytes after the first 64 KiB wait in the kernel.
        clients = await holding(services, 40, 64 * KIB + more)
        honest = Uploader(services, schema_frame_of(MIB))
        honest.offer(MIB)
        await services.settle()
        assert not honest.over
        await services.look(6)
        assert honest.handled
        refused = [client for client in clients if client.sent]
        assert len(refused) >= 24
        # One answer, and a connection that lives: the frame's rest will be passed over.
        assert {(len(client.sent), client.end) for client in refused} == {(1, None)}
        assert {refusal.stage for refusal in services.requests.refusals.recent} == {"direct"}
        refused[0].offer(MIB)
        assert not refused[0].decoder.storing
        await leave(services, clients)

    shared(4 * MIB, test)


@pytest.mark.threat("large-frames-stop")
def test_an_honest_sender_of_another_address_goes_before_the_line_of_the_first() -> None:
    async def test(services: Services) -> None:
        clients = await holding(services, 300)
        honest = Uploader(services, schema_frame_of(MIB), address="192.0.2.2")
        honest.offer(MIB)
        await services.look(3)
        assert honest.handled
        assert sum(bool(client.sent) for client in clients) < 60
        await leave(services, clients)

    shared(4 * MIB, test)


def test_frames_that_send_nothing_are_left_alone_while_nobody_waits() -> None:
    async def test(services: Services) -> None:
        clients = await holding(services, 7)
        await services.look(9)
        assert not any(client.over for client in clients)
        await leave(services, clients)

    shared(4 * MIB, test)


def test_a_sender_above_the_least_rate_keeps_its_frame_while_others_wait() -> None:
    async def test(services: Services) -> None:
        steady = Uploader(services, schema_frame_of(MIB))
        steady.offer(20 * KIB)
        clients = await holding(services, 40)
        for _ in range(16):
            steady.offer(LEAST_BYTES_PER_SECOND // 2)
            await services.look(0.25)
        assert not steady.over
        assert any(client.sent for client in clients)
        await leave(services, [steady, *clients])

    shared(4 * MIB, test)


def test_a_sender_that_the_proxy_has_no_time_to_read_is_not_judged() -> None:
    async def test(services: Services) -> None:
        # All of the share, by growth, but no frame is full: their bytes are awaited, and others wait for a place.
        clients = await holding(services, 18, 40 * KIB)
        clients[0].put_off = True
        await services.look(1)
        assert not clients[0].over
        assert clients[1].sent
        clients[0].put_off = False
        await services.look(1)
        await leave(services, clients)

    shared(4 * MIB, test)


def test_a_frame_larger_than_the_share_is_served_alone() -> None:
    async def test(services: Services) -> None:
        client = Uploader(services, schema_frame_of(MIB))
        client.offer(MIB)
        await services.settle()
        assert client.handled

    shared(100 * KIB, test)


def test_two_frames_that_wait_for_each_other_in_two_memories_end_with_the_lists() -> None:
    async def test(services: Services) -> None:
        first, second = (Uploader(services, schema_frame_of(300 * KIB)) for _ in range(2))
        first.offer(100 * KIB)
        second.offer(7 * KIB)
        # The first passes the share, and then a list takes what is left of direct memory.
        first.offer(100 * KIB)
        assert services.frames.held > services.frames.limit
        a_list = services.direct.try_acquire(services.direct.available)
        assert a_list is not None
        # The second passes direct memory, and waits for its share; the first waits for direct memory.
        second.offer(300 * KIB)
        first.offer(300 * KIB)
        await services.look(3)
        assert (services.frames.growers_waiting, services.direct.growers_waiting) == (1, 1)
        a_list.release()
        await services.look(1)
        assert first.handled
        assert second.handled

    shared(800 * KIB, test)


def test_connects_that_send_nothing_more_make_room_for_others_in_seconds() -> None:
    async def test(services: Services) -> None:
        frame = connect_frame(auth_data=bytes(60 * KIB))
        clients = [Uploader(services, frame, state=State.INIT) for _ in range(60)]
        for client in clients:
            client.offer(16 * KIB)
        token = connect_frame(auth_data=bytes(5 * KIB))
        honest = Uploader(services, token, state=State.INIT, address="192.0.2.2")
        honest.offer(len(token))
        await services.settle()
        assert not honest.over
        await services.look(4)
        assert honest.handled
        assert {client.end for client in clients if client.over} == {"memory_limit"}
        await leave(services, clients)

    staged(400 * KIB, test)


def test_a_frame_grows_in_small_steps_while_others_wait() -> None:
    assert memory_for(64 * KIB, MIB, 64 * KIB) == 128 * KIB
    assert memory_for(64 * KIB, MIB, 64 * KIB, 8) == 72 * KIB
    assert memory_for(8 * KIB, MIB, 8 * KIB, 8) == 12 * KIB
    assert memory_for(MIB, MIB, 0, 8) == LARGE_FRAME_COPIES * MIB
