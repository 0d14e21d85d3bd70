"""A burst of topic-list requests is put off when its turn has worked for long enough; a PING never is."""

import pytest

from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import DEFERRED_PER_ITERATION
from tests.support.clients.async_client import PING, topics_frame
from tests.support.clients.list_clients import turns
from tests.support.proxies.client_desk import desk
from tests.support.proxies.counted import counted_by


def list_request(number: int) -> bytes:
    return topics_frame(number, "t/n")


async def test_a_burst_of_lists_is_put_off_while_pings_of_the_same_turn_are_answered() -> None:
    async with desk() as on:
        askers = [on.visitor() for _ in range(3 * DEFERRED_PER_ITERATION)]
        pinging = on.visitor()
        askers[0].arrives(list_request(0))
        assert len(on.loop_budget) == 0
        on.work_long_enough()
        for number, asker in enumerate(askers[1:], 1):
            asker.arrives(list_request(number))
        pinging.arrives(PING)
        assert pinging.answered() == ["pong"]
        assert len(on.loop_budget) == len(askers) - 1
        await turns(1)
        pinging.arrives(PING)
        assert pinging.answered() == ["pong"]
        assert len(on.loop_budget) == len(askers) - 1 - DEFERRED_PER_ITERATION
        await turns(10)
        assert on.lists.served == list(range(len(askers)))
        assert [asker.answered() for asker in askers] == [[number] for number in range(len(askers))]


@pytest.mark.threat("topic-list-burst")
async def test_a_list_of_another_network_waits_for_one_of_a_crowd() -> None:
    async with desk() as on:
        askers = [on.visitor() for _ in range(5 * DEFERRED_PER_ITERATION)]
        neighbour = on.visitor(address="192.0.2.2")
        on.work_long_enough()
        for number, asker in enumerate(askers):
            asker.arrives(list_request(number))
        neighbour.arrives(list_request(99))
        await turns(10)
        # Clients of one network are served in the order in which they came.
        assert on.lists.served == [0, 99, *range(1, len(askers))]


async def test_what_follows_a_list_that_is_put_off_waits_behind_it() -> None:
    async with desk() as on:
        asker = on.visitor()
        on.work_long_enough()
        asker.arrives(list_request(1))
        reading = [asker.session.reading]
        asker.arrives(PING)
        reading.append(asker.session.reading)
        assert (asker.answered(), reading) == ([], [True, False])
        # uvloop may deliver once more after it was told to pause.
        asker.arrives(list_request(2))
        assert (asker.answered(), on.lists.served) == ([], [])
        await turns()
        assert (asker.answered(), on.lists.served) == (["pong", 1, 2], [1, 2])
        assert asker.session.reading


@pytest.mark.parametrize("reads", [1, 2])
async def test_a_client_that_leaves_while_put_off_is_served_nothing(reads: int) -> None:
    async with desk() as on:
        leaving, staying = on.visitor(), on.visitor()
        on.work_long_enough()
        for number in range(reads):
            leaving.arrives(list_request(number))
        staying.arrives(list_request(9))
        leaving.session.abort(DisconnectCause.CLIENT_CLOSED)
        await turns()
        assert on.lists.served == [9]
        assert (leaving.answered(), staying.answered()) == ([], [9])
        assert counted_by(on.counters, "internal_errors") == {}
