"""Clients that always have more to say take turns, and keep-alives cost next to nothing."""

import asyncio

import pytest

from protocol import commands
from protocol.commands import PING_FRAME, PONG_FRAME
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.target import BrokerAddress
from proxy.clients.connection import READ_SECONDS
from proxy.clients.turns import FRAMES_PER_TURN
from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import ITERATION_SECONDS
from proxy.net.output import Output
from proxy.net.transport import SMALL_READ_BYTES
from proxy.requests.lookups import WAITED_TOO_LONG
from tests.support.brokers.one_broker import SilentBroker
from tests.support.clients.async_client import lookup_frame, topics_frame
from tests.support.clients.list_clients import turns
from tests.support.loops.loops import run_virtual
from tests.support.proxies.client_desk import LOOKUP_SECONDS, Desk, Visitor, desk

# libuv reads a socket so often in one iteration of the loop, as long as each read fills its buffer.
READS_PER_ITERATION = 32
FLOW = commands.frame(pb.BaseCommand(type=pb.BaseCommand.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=1000)))

MALFORMED = bytes(20)


class Flooder:
    """A client whose socket always has more, read as libuv reads it."""

    def __init__(self, desk: Desk, data: bytes) -> None:
        self.visitor = desk.visitor()
        self.data = data
        self.reads: list[int] = []

    def read_on(self) -> bool:
        """Tell whether the loop reads the socket."""
        told = [event for event in self.visitor.socket.events if event in ("pause reading", "resume reading")]
        return not told or told[-1] == "resume reading"

    def poll(self) -> None:
        """Let the loop find the socket ready."""
        reads = 0
        while self.read_on() and reads < READS_PER_ITERATION and self.data:
            self.visitor.arrives(self.data[:SMALL_READ_BYTES])
            self.data = self.data[SMALL_READ_BYTES:]
            reads += 1
        self.reads.append(reads)


def served(visitor: Visitor) -> int:
    """Count the answers since the last call."""
    return len(visitor.answers())


# --- keep-alives ----------------------------------------------------------------------------------


async def test_keep_alives_are_passed_without_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk() as on:
        client = on.visitor()
        monkeypatch.setattr(commands, "decode_command", None)
        before = on.counters.clients.binary_ops
        client.arrives(PONG_FRAME * 100 + PING_FRAME + PONG_FRAME * 10 + PING_FRAME * 2)
        monkeypatch.undo()
        assert on.counters.clients.binary_ops - before == 113
        assert client.answered() == ["pong"] * 3


async def test_a_ping_between_other_frames_is_answered_in_its_place() -> None:
    async with desk() as on:
        client = on.visitor()
        client.arrives(FLOW + PING_FRAME + FLOW + PONG_FRAME + PING_FRAME[:5])
        client.arrives(PING_FRAME[5:])
        kinds = [answer.type for answer in client.answers()]
        error, pong = pb.BaseCommand.ERROR, pb.BaseCommand.PONG
        assert kinds == [error, pong, error, pong]


async def test_answers_to_one_read_are_one_write() -> None:
    async with desk() as on:
        client = on.visitor()
        client.socket.events.clear()
        client.arrives(FLOW * 10 + PING_FRAME + FLOW * 5)
        assert len(client.answers()) == 16
        assert [event.split()[0] for event in client.socket.events] == ["write"]


async def test_answers_before_a_frame_that_ends_the_connection_are_sent() -> None:
    async with desk() as on:
        client = on.visitor()
        client.arrives(FLOW * 3 + MALFORMED)
        assert len(client.answers()) == 3
        assert on.registry.ends == [DisconnectCause.MALFORMED_FRAME]


@pytest.mark.threat("unread-pongs")
async def test_a_client_that_does_not_take_its_pongs_is_not_read() -> None:
    async with desk() as on:
        flooder = Flooder(on, PING_FRAME * 20_000)
        flooder.visitor.socket.room = 10_000
        for _ in range(100):
            flooder.poll()
            await turns(1)
        assert len(flooder.data) > 200_000
        assert flooder.visitor.session.holds == ("output",)
        assert flooder.visitor.socket.get_write_buffer_size() + flooder.visitor.session.output.unsent_bytes < 32_768
        flooder.visitor.socket.take(1 << 20)
        await turns(1)
        assert flooder.visitor.session.reading


# --- turns ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [PONG_FRAME, PING_FRAME, FLOW], ids=["pong", "ping", "flow"])
async def test_one_read_of_a_flood_is_served_in_an_iteration(frame: bytes) -> None:
    async with desk(unanswered_per_second=0) as on:
        flooder = Flooder(on, frame * 4000)
        while flooder.data:
            flooder.poll()
            await turns(1)
        assert max(flooder.reads) == 1


async def test_a_client_is_served_its_share_and_goes_on_behind_the_others() -> None:
    async with desk() as on:
        flooders = [on.visitor() for _ in range(2)]
        for flooder in flooders:
            flooder.arrives(FLOW * 3 * FRAMES_PER_TURN)
        # While one client waits, the next has half of what it would have alone.
        half = FRAMES_PER_TURN // 2
        assert [served(flooder) for flooder in flooders] == [FRAMES_PER_TURN, half]
        assert not any(flooder.session.reading for flooder in flooders)
        quick = on.visitor()
        quick.arrives(FLOW)
        assert served(quick) == 1
        await turns(1)
        assert [served(flooder) for flooder in flooders] == [half] * 2
        while len(on.loop_budget):
            await turns(1)
        assert [served(flooder) for flooder in flooders] == [3 * half, 4 * half]
        assert all(flooder.session.reading for flooder in flooders)


@pytest.mark.threat("lookups-of-many-connections")
@pytest.mark.parametrize(
    ("crowd", "address", "before"),
    [
        ("192.0.2.1", "192.0.2.1", 40),
        ("192.0.2.1", "192.0.2.2", 1),
        ("192.0.2.1", "2001:db8::1", 1),
        # All networks of one customer.
        ("2001:db8:0:{:x}::1", "2001:db8:1::1", 1),
        ("192.0.2.{}", "192.0.2.99", 40),
    ],
)
async def test_a_newcomer_waits_for_a_frame_of_each_client_of_its_network_and_of_each_other_network(
    crowd: str, address: str, before: int
) -> None:
    async with desk() as on:
        order, send = [], Output.send

        def noted(output: Output, frame: bytes) -> None:
            order.append(output)
            on.now += ITERATION_SECONDS
            send(output, frame)

        flooders = [on.visitor(address=crowd.format(number)) for number in range(40)]
        newcomer = on.visitor(address=address)
        on.work_long_enough()
        for flooder in flooders:
            flooder.arrives(FLOW * 20)
        newcomer.arrives(FLOW)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Output, "send", noted)
            while newcomer.session.output not in order:
                await turns(1)
        assert order.index(newcomer.session.output) == before
        assert len(set(order[:before])) == before
        while len(on.loop_budget):
            await turns(1)
        assert {served(flooder) for flooder in flooders} == {20}


# --- the clock of requests that wait in line ------------------------------------------------------


async def put_in_line(on: Desk, visitor: Visitor, data: bytes) -> None:
    """Let requests wait in line, and keep the client from being served when its turn comes."""
    on.work_long_enough()
    visitor.arrives(data)
    visitor.session.output_full()
    await turns(2)


@pytest.mark.threat("lookups-wait-for-ever")
def test_requests_whose_time_is_over_before_their_turn_are_refused_and_the_next_is_served() -> None:
    async def play() -> None:
        async with desk() as on:
            client = on.visitor()
            await put_in_line(on, client, lookup_frame(1, "t") + lookup_frame(2, "t") + topics_frame(3, "t/n"))
            await asyncio.sleep(LOOKUP_SECONDS)
            client.session.output_settled()
            await turns(2)
            answers = client.answers()
            assert [answer.lookupTopicResponse.error for answer in answers[:2]] == [ServerError.TooManyRequests] * 2
            assert [answer.lookupTopicResponse.message for answer in answers[:2]] == [WAITED_TOO_LONG] * 2
            assert on.counters.requests.refused_requests == {"too_late": 2}
            assert on.lists.arrivals == [on.services.loop.time() - LOOKUP_SECONDS]
            assert client.session.outstanding == 0
            # What comes now has a clock of its own.
            client.arrives(topics_frame(4, "t/n"))
            await turns(2)
            assert on.lists.arrivals[1:] == [on.services.loop.time()]

    run_virtual(play())


async def test_frames_wait_for_the_next_iteration_when_the_time_is_spent_but_pings_do_not() -> None:
    async with desk() as on:
        client, pinging = on.visitor(), on.visitor()
        on.work_long_enough()
        client.arrives(FLOW)
        pinging.arrives(PING_FRAME)
        assert (served(client), served(pinging)) == (0, 1)
        await turns(2)
        assert served(client) == 1


@pytest.mark.threat("small-frame-flood")
async def test_however_many_clients_flood_an_iteration_takes_its_time_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with desk() as on:
        flooders = [on.visitor() for _ in range(40)]
        on.work_long_enough()
        for flooder in flooders:
            flooder.arrives(FLOW * 20)
        cost, send = ITERATION_SECONDS / 10, Output.send

        def costly(output: Output, frame: bytes) -> None:
            on.now += cost
            send(output, frame)

        monkeypatch.setattr(Output, "send", costly)
        rounds = []
        while len(on.loop_budget):
            await turns(1)
            rounds.append(sum(served(flooder) for flooder in flooders))
        assert sum(rounds) == 800
        assert max(rounds) <= ITERATION_SECONDS / cost + 2


async def test_sockets_that_rest_are_read_again_a_few_in_an_iteration() -> None:
    async with desk(unanswered_per_second=0) as on:
        flooders = [Flooder(on, PONG_FRAME * 4000) for _ in range(200)]
        for flooder in flooders:
            flooder.poll()
        assert not any(flooder.read_on() for flooder in flooders)
        read_again = []
        while not all(flooder.read_on() for flooder in flooders):
            before = sum(flooder.read_on() for flooder in flooders)
            await turns(1)
            read_again.append(sum(flooder.read_on() for flooder in flooders) - before)
        assert max(read_again) <= ITERATION_SECONDS / READ_SECONDS + 1


async def test_a_client_that_is_held_while_it_rests_is_not_read_when_its_turn_comes() -> None:
    async with desk() as on:
        flooder = Flooder(on, PING_FRAME * 1000)
        flooder.poll()
        flooder.visitor.session.output_full()
        await turns(3)
        assert not flooder.read_on()
        flooder.visitor.session.output_settled()
        await turns(1)
        assert flooder.read_on()


# --- commands that nobody answers -----------------------------------------------------------------


def test_a_client_that_sends_pongs_too_fast_is_read_later() -> None:
    async def play() -> None:
        async with desk(unanswered_per_second=300) as on:
            client = on.visitor()
            # One second's worth may come at once.
            client.arrives(PONG_FRAME * 300)
            held = [client.session.holds]
            client.arrives(PONG_FRAME * 300)
            for seconds in (0.9, 0.2):
                held.append(client.session.holds)
                await asyncio.sleep(seconds)
            held.append(client.session.holds)
            assert held == [(), ("rate",), ("rate",), ()]

    run_virtual(play())


@pytest.mark.parametrize(("rate", "frame"), [(0, PONG_FRAME), (100, PING_FRAME), (100, FLOW)])
async def test_commands_that_are_answered_have_no_rate(rate: int, frame: bytes) -> None:
    async with desk(unanswered_per_second=rate) as on:
        client = on.visitor()
        for _ in range(20):
            client.arrives(frame * 20)
            await turns(2)
        assert client.session.holds == ()


# --- the memory for commands ----------------------------------------------------------------------


def lookups(count: int, topic: str = "persistent://t/n/" + "x" * 1000) -> bytes:
    return b"".join(lookup_frame(number, topic) for number in range(1, count + 1))


async def stuck(on: Desk) -> Visitor:
    """Let a client use the memory for commands up, of brokers that do not answer, and wait with more of them."""
    on.services.requests.lookups.forwarder.brokers = SilentBroker(BrokerAddress("broker", 6650))
    client = on.visitor()
    client.arrives(lookups(3))
    assert client.session.holds == ("command_bytes",)
    return client


async def test_a_lookup_of_a_client_with_none_is_served_while_others_fill_the_memory_for_commands() -> None:
    async with desk(command_bytes=2000) as on:
        await stuck(on)
        for address in ("192.0.2.1", "203.0.113.1"):
            neighbour = on.visitor(address=address)
            neighbour.arrives(lookup_frame(1, "persistent://t/n/t"))
            assert (neighbour.session.outstanding, neighbour.session.holds) == (1, ())


async def test_a_client_that_waits_for_memory_is_told_that_the_proxy_lives() -> None:
    async with desk(command_bytes=2000) as on:
        client = await stuck(on)
        # What is read before the loop heard of the pause stays where it is.
        client.arrives(PING_FRAME)
        assert client.answers() == []
        client.session.tick(1.0)
        assert client.answered() == ["pong"]


async def test_half_a_command_is_read_on_while_memory_is_used_up() -> None:
    async with desk(command_bytes=2000) as on:
        await stuck(on)
        other = on.visitor()
        other.arrives(lookups(2) + lookups(1)[:100])
        # The second is for the reserve, whose half is used up then.
        assert other.session.outstanding == 1
        quick = on.visitor()
        quick.arrives(lookups(1)[:100])
        assert quick.session.reading


async def test_a_client_that_waits_goes_on_when_its_own_answers_have_come() -> None:
    async with desk(command_bytes=2000) as on:
        gate = asyncio.Event()
        on.services.requests.lookups.forwarder.brokers = SilentBroker(BrokerAddress("broker", 6650), gate)
        client = on.visitor()
        client.arrives(lookups(3))
        assert client.session.outstanding == 2
        assert client.session.holds == ("command_bytes",)
        gate.set()
        await turns(20)
        assert len(client.answers()) == 3
        assert client.session.reading
        assert len(on.command_bytes or ()) == 0
