"""The relay of a proxy without the native extension: the contract as far as it goes, on the event loop."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from proxy.config.config import Config
from proxy.core.loop_budget import ITERATION_SECONDS
from proxy.relay.engine import Direction
from proxy.relay.small_relay import SmallEnd, SmallRelay
from tests.integration.test_direct_mode import (
    RELAY_BUFFER_BYTES,
    Side,
    greet,
    joined,
    paired,
    pour_until_still,
    sides,
    test_a_fin_while_the_proxy_does_not_read_loses_no_byte,
    test_a_half_close_is_passed_on_and_the_other_direction_goes_on,
    test_a_reset_while_the_proxy_does_not_read_ends_the_pair_at_once,
    test_a_silent_pair_ends_after_the_read_timeout_and_one_that_moves_lives,
    test_bytes_pass_unchanged_both_ways_at_once,
    test_bytes_sent_together_with_connect_reach_the_broker_behind_it,
    test_bytes_that_a_broker_sends_together_with_connected_reach_the_client_behind_it,
    test_fins_of_both_sides_while_the_proxy_does_not_read_lose_no_byte,
    test_the_reader_of_a_standing_relay_that_is_cut_ends_the_sender,
    test_when_one_side_is_cut_the_other_is_closed,
)
from tests.integration.test_half_closed_relays import (
    test_a_receiver_that_stands_still_is_reset_by_the_clock_of_ended_sockets,
    test_bytes_that_were_held_at_the_end_reach_a_receiver_that_comes_late,
    test_the_read_timeout_ends_a_relay_whose_peer_takes_nothing_of_what_came_before_a_fin,
)
from tests.integration.test_relay_contract import FRAMES, PINGS, RELAYS, flood
from tests.support.brokers.raw_broker import raw_broker
from tests.support.proxies.proxy_under_test import staged

# The contract of every relay.
__all__ = [
    "test_a_fin_while_the_proxy_does_not_read_loses_no_byte",
    "test_a_half_close_is_passed_on_and_the_other_direction_goes_on",
    "test_a_receiver_that_stands_still_is_reset_by_the_clock_of_ended_sockets",
    "test_a_reset_while_the_proxy_does_not_read_ends_the_pair_at_once",
    "test_a_silent_pair_ends_after_the_read_timeout_and_one_that_moves_lives",
    "test_bytes_pass_unchanged_both_ways_at_once",
    "test_bytes_sent_together_with_connect_reach_the_broker_behind_it",
    "test_bytes_that_a_broker_sends_together_with_connected_reach_the_client_behind_it",
    "test_bytes_that_were_held_at_the_end_reach_a_receiver_that_comes_late",
    "test_fins_of_both_sides_while_the_proxy_does_not_read_lose_no_byte",
    "test_the_read_timeout_ends_a_relay_whose_peer_takes_nothing_of_what_came_before_a_fin",
    "test_the_reader_of_a_standing_relay_that_is_cut_ends_the_sender",
    "test_when_one_side_is_cut_the_other_is_closed",
]
# Those that one iteration of the loop has time for by the test's clock, and the one that finds the time over.
READS_AN_ITERATION = 4 + 1


@pytest.fixture(autouse=True)
def no_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    load: Callable[..., Config] = Config.load
    monkeypatch.setattr(Config, "load", partial(load, without_extension=True))


@sides
async def test_one_that_does_not_read_stops_the_other_and_costs_one_read(side: Side) -> None:
    async with paired() as pair:
        assert isinstance(pair.relay, SmallRelay)
        sent = await pour_until_still(pair, side)
        _, reader, direction = pair.ends(side)
        snapshot = pair.relay.snapshot()
        assert 0 < snapshot.unsent[direction] <= RELAY_BUFFER_BYTES
        assert snapshot.unsent[1 - direction] == 0
        assert not snapshot.reads(direction)
        assert await reader.receive(len(sent)) == sent
        await pair.stage.until(lambda: pair.relay.snapshot().moved[direction] == len(sent), "all counted")


async def test_tiny_frames_through_many_relays_leave_a_neighbour_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = iterations = 0
    ours = SmallEnd.data_arrived

    def counted(end: SmallEnd, count: int) -> None:
        nonlocal reads
        reads += 1
        ours(end, count)

    async def count() -> None:
        nonlocal iterations
        while True:
            await asyncio.sleep(0)
            iterations += 1

    monkeypatch.setattr(SmallEnd, "data_arrived", counted)
    keys: dict[str, Any] = {"relayBufferBytes": 64 * 1024}
    async with staged(**keys) as stage, raw_broker(greet) as broker:
        # By this clock a read of a relay takes a quarter of an iteration's time, on every machine.
        stage.proxy.core.loop_budget.now = lambda: reads * ITERATION_SECONDS / 4
        neighbour = await stage.connected()
        pairs = [await joined(stage, broker) for _ in range(RELAYS)]
        relays, over = list(stage.proxy.sessions.all_relays()), asyncio.Event()

        def moved() -> list[int]:
            return [relay.snapshot().moved[Direction.TO_CLIENT] for relay in relays]

        async with asyncio.TaskGroup() as group:
            counting = group.create_task(count())
            for pair in pairs:
                group.create_task(flood(pair, over))
            await stage.until(lambda: min(moved()) > len(FRAMES), "a flood through each relay")
            reads_before, before = reads, iterations
            for _ in range(PINGS):
                await neighbour.ping()
            passed = sum(moved())
            await stage.until(lambda: sum(moved()) > passed, "the flood, which goes on")
            # The first may have begun before it was counted.
            assert reads - reads_before <= READS_AN_ITERATION * (iterations - before + 1)
            over.set()
            counting.cancel()
