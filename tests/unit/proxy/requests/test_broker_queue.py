"""The lines in front of brokers: those that nothing waits in are forgotten, and what they counted is not."""

import pytest

from limiter.errors import PermitAcquireTimeout
from proxy.brokers.target import BrokerAddress
from proxy.requests.topic_lists.broker_queues import MANY_QUEUES
from tests.support.proxies.list_stage import BROKER, ListStage


def _broker(number: int) -> BrokerAddress:
    return BrokerAddress(f"broker-{number}", 6650)


def test_lines_of_brokers_that_nothing_waits_on_are_forgotten_and_their_counts_are_not() -> None:
    stage = ListStage()
    queues = stage.queues
    busy = queues.queue(BROKER)
    held = busy.in_flight.try_acquire(1)
    assert held is not None

    async def one_times_out() -> None:
        line = queues.queue(_broker(0)).reservations
        line.set_limit(1)
        line.timeout_seconds = 0
        with await line.acquire(1), pytest.raises(PermitAcquireTimeout):
            await line.acquire(1)

    stage.run(one_times_out())
    before = queues.heap_statistics()
    for number in range(3 * MANY_QUEUES):
        queues.queue(_broker(number))
    assert len(queues._queues) <= MANY_QUEUES
    assert queues.queue(BROKER) is busy
    assert queues.heap_statistics() == before
    assert before.timed_out == 1
    held.release()
    stage.close()
