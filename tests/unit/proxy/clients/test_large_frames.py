"""Large frames of clients: memory for what has come, and the ends of those that drip."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from protocol.states import State
from proxy.clients.large_frames import LARGE_FRAME_COPIES, UNBOOKED_FRAME_BYTES, memory_for
from proxy.clients.upload_watch import LOOK_SECONDS
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


# --- the memory of frames, and those who hold it and send nothing ------------------------------------------


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


def test_frames_that_grow_do_not_wait_for_each_other_beside_a_list_that_stays() -> None:
    async def test(services: Services) -> None:
        large, larger = clients = [Uploader(services, schema_frame_of(size * KIB)) for size in (100, 200)]
        large.offer(8 * KIB)
        larger.offer(60 * KIB)
        taken = services.direct.try_acquire(services.direct.available)
        assert taken is not None
        # The first grows within its place, the other one beyond the share, and then the first does.
        for client, count in ((large, 12), (larger, 140), (large, 80)):
            client.offer(count * KIB)
            await services.settle()
        assert [client.handled for client in clients] == [True, True]
        taken.release()

    shared(600 * KIB, test)


def test_only_frames_that_come_drop_by_drop_give_way_to_one_that_waits() -> None:
    async def test(services: Services) -> None:
        clients = [Uploader(services, schema_frame_of(100 * KIB)) for _ in range(3)]
        for client in clients:
            client.offer(20 * KIB)
        waiting = Uploader(services, schema_frame_of(20 * KIB), address="192.0.2.2")
        waiting.offer(20 * KIB)
        for _ in range(4):
            for client, share in zip(clients, (2, 1 / 2, 2), strict=True):
                client.offer(int(LEAST_BYTES_PER_SECOND * share / 4))
            await services.look(0.25)
        assert waiting.handled
        assert [client.over for client in clients] == [False, True, False]
        assert clients[1].end is None
        await leave(services, clients)

    shared(4 * 200 * KIB, test)


@pytest.mark.threat("large-frames-stop")
def test_a_frame_that_begins_to_wait_while_the_watch_looks_is_looked_at_next() -> None:
    async def test(services: Services) -> None:
        clients = await holding(services, 16, 8 * KIB)
        watch = asyncio.get_running_loop().create_task(services.uploads.run(services.clock.time))
        services.uploads.wait_began()
        honest = Uploader(services, schema_frame_of(20 * KIB), address="192.0.2.2")
        honest.offer(20 * KIB)
        # A look that was due for somebody who has memory by now; the task of the frame has not begun.
        await services.uploads.look(services.clock.time())
        for _ in range(8):
            services.clock.advance(LOOK_SECONDS)
            await asyncio.sleep(LOOK_SECONDS)
        assert honest.handled
        watch.cancel()
        await leave(services, clients)

    shared(4 * MIB, test)


def test_a_frame_that_cannot_be_refused_ends_its_client_and_the_watch_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(services: Services) -> None:
        broken, _ = clients = await holding(services, 2, 8 * KIB)
        monkeypatch.setattr(broken, "send", lambda _: 1 // 0)
        monkeypatch.setattr(broken, "crashed", lambda error: broken.close(type(error).__name__))  # type: ignore[arg-type]
        waiting = Uploader(services, schema_frame_of(100 * KIB), address="192.0.2.2")
        waiting.offer(100 * KIB)
        await services.look(2)
        assert (broken.end, waiting.handled) == ("ZeroDivisionError", True)
        await leave(services, clients)

    shared(4 * 128 * KIB, test)


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


def test_a_frame_grows_in_small_steps_while_others_wait() -> None:
    assert memory_for(64 * KIB, MIB, 64 * KIB) == 128 * KIB
    assert memory_for(64 * KIB, MIB, 64 * KIB, 8) == 72 * KIB
    assert memory_for(8 * KIB, MIB, 8 * KIB, 8) == 12 * KIB
    assert memory_for(MIB, MIB, 0, 8) == LARGE_FRAME_COPIES * MIB
