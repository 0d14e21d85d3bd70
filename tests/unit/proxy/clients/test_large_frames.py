"""Large frames of clients: memory for what has come, and the ends of those that drip."""

import json
from collections.abc import Awaitable, Callable

import pytest

from protocol.states import State
from proxy.clients.large_frames import LARGE_FRAME_COPIES, UNBOOKED_FRAME_BYTES, memory_for
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
        clients = [Uploader(services, schema_frame_of(40 * KIB)) for _ in range(8)]
        # Each holds a part, and no two fit.
        for client in clients:
            client.offer(10 * KIB)
        await services.settle()
        for client in clients:
            client.offer(30 * KIB)
        await services.settle()
        assert all(client.handled for client in clients)
        # Each could grow as the only one above the limit.
        assert services.direct.statistics().peak_held <= 80 * KIB + LARGE_FRAME_COPIES * 40 * KIB

    staged(80 * KIB, test)


def test_a_dripping_sender_in_front_of_others_is_closed_and_they_go_on() -> None:
    async def test(services: Services) -> None:
        dripping = Uploader(services, schema_frame_of(100 * KIB))
        dripping.offer(30 * KIB)
        waiting = Uploader(services, schema_frame_of(10 * KIB))
        rest = services.direct.try_acquire(services.direct.available)
        assert rest is not None
        waiting.offer(10 * KIB)
        await services.settle()
        # The first burst is in the first window of ten seconds.
        for _ in range(11):
            dripping.offer(10)
            await services.live(1)
        assert [dripping.end] == [None]
        await services.live(2)
        assert dripping.end == "sends_too_slowly"
        assert waiting.handled
        line = json.loads(services.lines[-1])
        assert (line["cause"], line["evictions"]) == ("sends_too_slowly", 1)
        assert line["change"] == "topicListWriteMinBytesPerSecond"
        rest.release()

    staged(100 * KIB, test)


def test_the_slowest_is_closed_first_and_only_as_many_as_others_need() -> None:
    async def test(services: Services) -> None:
        clients = [Uploader(services, schema_frame_of(100 * KIB)) for _ in range(3)]
        for number, client in enumerate(clients):
            client.offer(20 * KIB + number * KIB)
        waiting = Uploader(services, schema_frame_of(10 * KIB))
        rest = services.direct.try_acquire(services.direct.available)
        assert rest is not None
        for _ in range(12):
            await services.live(1)
            for client, count in zip(clients, (200, 10, 300), strict=True):
                client.offer(count)
        waiting.offer(10 * KIB)
        await services.settle()
        await services.live(1)
        assert [client.end for client in clients] == [None, "sends_too_slowly", None]
        assert waiting.handled
        rest.release()
        for client in clients:
            client.leave()

    staged(500 * KIB, test)


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
