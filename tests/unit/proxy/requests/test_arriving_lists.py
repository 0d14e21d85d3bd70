"""Lists that brokers announce and do not send: what they hold is bounded, and is given up for those who wait."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from limiter.errors import PermitAcquireTimeout
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.topic_list import heap_size
from proxy.brokers.target import BrokerAddress
from proxy.requests.topic_lists.broker_queues import ANSWERS_HEAP_PART, LATELY_SECONDS, MANY_QUEUES
from tests.support.brokers.one_broker import OneBroker
from tests.support.clients.list_clients import ListClient, commands_in
from tests.support.proxies.counted import counted
from tests.support.proxies.list_stage import BROKER, KIB, Asked, ListStage, Sizes

OTHER = BrokerAddress("other", 6650)
HEAP = 256 * KIB
LEAST = 32 * KIB
LIST = 24 * KIB


class EachOthersStandIn(OneBroker):
    """Two brokers: namespaces of the tenant `o` are at home on the other, and each stands in for the other."""

    def __init__(self) -> None:
        super().__init__(BROKER)

    def home(self, key: str) -> BrokerAddress:
        return OTHER if key.startswith("o/") else BROKER

    async def pick(self, key: str | None = None, avoid: BrokerAddress | None = None) -> BrokerAddress:
        return OTHER if avoid == BROKER else BROKER


class BetweenBrokers:
    """A stage between clients and two brokers, or one; each principal has a connection of its own."""

    def __init__(self, heap: int = HEAP, *, several: bool = True) -> None:
        self.stage = ListStage(Sizes(heap, 4 * HEAP), EachOthersStandIn() if several else None)
        if several:
            self.stage.queues.queue(OTHER)

    def announce(self, count: int, first: int = 0, size: int = LIST) -> list[Asked]:
        """Ask for lists of different principals, each of which the first broker announces; no more of them comes."""
        before = set(self.stage.asked())
        for number in range(first, first + count):
            self.stage.ask(self.stage.client(f"p{number}"), f"t/{number}")
        self.stage.step()
        announced = [asked for asked in self.stage.asked() if asked not in before]
        for asked in announced:
            self.stage.call(asked.broker.begin, asked, size)
        self.stage.step()
        return announced

    def go_on(self, asked: Asked, size: int = 1 << 20) -> None:
        self.stage.call(asked.broker.go_on, asked, size)
        self.stage.step()

    def pass_seconds(self, count: int, least: int = LEAST) -> None:
        for _ in range(count):
            self.stage.advance(1.0)
            self.stage.call(self.stage.service.arriving.sweep, self.stage.loop.time(), least)
            self.stage.step()

    @property
    def given_up(self) -> int:
        return counted(self.stage.counters, "lists_given_up")

    @property
    def paused(self) -> int:
        return sum(broker.connection.paused for broker in self.stage.brokers)

    def at_the_other(self) -> list[Asked]:
        return [asked for asked in self.stage.asked() if asked.broker.address == OTHER]

    def answers(self, client: ListClient) -> list[pb.BaseCommand]:
        return commands_in(bytes(client.socket.peer_bytes))[0]


@pytest.fixture
def two() -> Iterator[BetweenBrokers]:
    brokers = BetweenBrokers()
    yield brokers
    brokers.stage.close()


@pytest.mark.threat("announced-lists-hold-heap")
def test_answers_that_arrive_from_one_of_several_brokers_hold_a_quarter_of_the_heap(two: BetweenBrokers) -> None:
    two.announce(8)
    estimates = 6 * KIB
    assert two.stage.queues.queue(BROKER).answers.held <= HEAP // ANSWERS_HEAP_PART
    assert two.stage.limiter.heap.held <= HEAP // ANSWERS_HEAP_PART + estimates
    assert two.paused == 6
    # A list of the other broker is served at once.
    client = two.stage.client()
    two.stage.ask(client, "o/n")
    two.stage.step()
    (asked,) = two.at_the_other()
    two.stage.call(asked.broker.begin, asked, LIST)
    two.go_on(asked)
    assert len(two.answers(client)) == 1


def test_a_list_that_has_come_takes_no_room_at_its_broker_while_its_client_does_not_read(two: BetweenBrokers) -> None:
    (asked,) = two.announce(1)
    two.stage.clients[0].socket.room = 0
    two.go_on(asked)
    assert two.stage.queues.queue(BROKER).answers.held == 0
    two.stage.call(two.stage.clients[0].read)
    two.stage.step()


@pytest.mark.parametrize("several", [False, True], ids=["alone", "the other not asked for long"])
def test_answers_of_a_broker_that_is_alone_wait_for_nothing_but_the_heap(several: bool) -> None:
    alone = BetweenBrokers(several=several)
    alone.stage.loop.now += LATELY_SECONDS + 1
    alone.announce(8)
    assert alone.paused == 0
    assert alone.stage.limiter.heap.held >= 8 * heap_size(LIST)
    alone.stage.close()


def test_a_list_that_does_not_come_is_given_up_while_others_wait_and_asked_of_another_broker(
    two: BetweenBrokers,
) -> None:
    two.announce(3)
    two.pass_seconds(2)
    assert two.given_up == 0
    two.pass_seconds(1)
    assert two.given_up == 2
    again = two.at_the_other()
    assert len(again) == 2
    for asked in again:
        two.stage.call(asked.broker.begin, asked, LIST)
        two.go_on(asked)
    assert [len(two.answers(client)) for client in two.stage.clients] == [1, 1, 0]
    # The third has its turn now, and is stuck without anybody who waits.
    assert two.paused == 0
    two.pass_seconds(5)
    assert two.given_up == 2


def test_a_list_that_does_not_come_from_either_broker_is_an_error_long_before_its_clock(two: BetweenBrokers) -> None:
    two.announce(3)
    two.pass_seconds(3)
    two.stage.ask(two.stage.client("p3"), "o/n")
    two.stage.step()
    for asked in two.at_the_other():
        two.stage.call(asked.broker.begin, asked, LIST)
    two.pass_seconds(3)
    assert two.given_up == 4
    for client in two.stage.clients[:2]:
        (answer,) = two.answers(client)
        assert answer.error.error == ServerError.ServiceNotReady
        assert "too slowly" in answer.error.message
    assert two.stage.limiter.heap.held <= 2 * heap_size(LIST + KIB)


def test_a_list_that_does_not_come_is_waited_for_while_nobody_else_waits(two: BetweenBrokers) -> None:
    (asked,) = two.announce(1)
    two.pass_seconds(15)
    assert two.given_up == 0
    two.go_on(asked)
    assert len(two.answers(two.stage.clients[0])) == 1


def test_a_list_that_comes_at_the_least_rate_is_kept_while_others_wait(two: BetweenBrokers) -> None:
    announced = two.announce(3)
    for _ in range(5):
        for asked in announced[:2]:
            two.go_on(asked, 4 * KIB)
        two.pass_seconds(1, least=4 * KIB)
    assert two.given_up == 0


def test_of_lists_that_drip_the_slowest_is_given_up_first(two: BetweenBrokers) -> None:
    slow, slower, _ = two.announce(3)
    for _ in range(3):
        two.go_on(slow, 2 * KIB)
        two.go_on(slower, KIB)
        two.pass_seconds(1)
    assert [asked.request.namespace for asked in two.at_the_other()] == [slower.request.namespace]


def test_without_a_least_rate_only_lists_of_which_nothing_comes_are_given_up(two: BetweenBrokers) -> None:
    dripping, silent, _ = two.announce(3)
    for _ in range(4):
        two.go_on(dripping, 1)
        two.pass_seconds(1, least=0)
    assert [asked.request.namespace for asked in two.at_the_other()] == [silent.request.namespace]


def test_time_in_which_the_proxy_stood_still_counts_against_no_broker(two: BetweenBrokers) -> None:
    two.announce(3)
    two.pass_seconds(1)
    two.stage.loop.now += 5
    two.pass_seconds(2)
    assert two.given_up == 0


def test_lines_of_brokers_that_nothing_waits_on_are_forgotten_and_their_counts_are_not() -> None:
    with closing(ListStage()) as stage:
        queues, brokers = stage.queues, [BrokerAddress(f"broker-{number}", 6650) for number in range(3 * MANY_QUEUES)]
        busy = queues.queue(BROKER)
        assert busy.in_flight.try_acquire(1) is not None

        async def one_times_out() -> None:
            line = queues.queue(brokers[0]).reservations
            line.set_limit(1)
            with await line.acquire(1), pytest.raises(PermitAcquireTimeout):
                await line.acquire(1, timeout_seconds=0)

        stage.run(one_times_out())
        before = queues.statistics()
        for broker in brokers:
            queues.queue(broker)
        assert len(queues.all()) <= MANY_QUEUES
        assert queues.queue(BROKER) is busy
        assert queues.statistics() == before
        assert before.timed_out == 1
