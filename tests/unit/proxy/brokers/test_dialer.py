import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from proxy.brokers.dialer import (
    ATTEMPTS_AT_ONCE,
    HEAD_START_SECONDS,
    Dialer,
    SocketOptions,
    _Race,
    interleaved,
)
from proxy.brokers.target import BrokerAddress, CheckedTarget
from proxy.core.errors import BrokerUnavailable
from proxy.net.dial_places import LEAST_DIAL_SECONDS, SOCKETS_A_DIAL, DialPlaces
from tests.support.loops.loops import LoopFactory, both_loops, run_on, run_virtual
from tests.support.tools import ipv6_loopback

OPTIONS = SocketOptions(
    keep_alive_idle_seconds=61, keep_alive_interval_seconds=11, keep_alive_probes=4, user_timeout_millis=31_000
)


class Connected(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport


@contextmanager
def broker(address: str = "127.0.0.1") -> Iterator[int]:
    """Listen on a free port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        yield listener.getsockname()[1]


@contextmanager
def silent_broker() -> Iterator[int]:
    """Listen with a full queue, so that the kernel answers nobody any more."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, socket.socket() as first:
        first.connect(listener.getsockname())
        yield listener.getsockname()[1]


def closed_port() -> int:
    with broker() as port:
        return port


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def connect(
    port: int, addresses: list[str], timeout_seconds: float = 5.0, options: SocketOptions = OPTIONS
) -> Connected:
    dialer = Dialer(asyncio.get_running_loop(), options, timeout_seconds)
    return await dialer.connect(CheckedTarget(BrokerAddress("broker", port), addresses), Connected)


def option(protocol: Connected, level: int, name: int) -> int:
    value = protocol.transport.get_extra_info("socket").getsockopt(level, name)
    assert isinstance(value, int)
    return value


async def close(protocol: Connected) -> None:
    protocol.transport.close()
    await asyncio.sleep(0)


@both_loops
class TestConnecting:
    def test_addresses_that_fail_are_reported_and_others_are_not(self, loop_factory: LoopFactory) -> None:
        failed: list[tuple[str, int, str]] = []

        def on_failed(target: BrokerAddress, address: str) -> None:
            failed.append((target.host, target.port, address))

        async def main(port: int) -> None:
            dialer = Dialer(asyncio.get_running_loop(), OPTIONS, 5.0, on_failed=on_failed)
            checked = CheckedTarget(BrokerAddress("broker", port), ["127.0.0.2", "127.0.0.1"])
            await close(await dialer.connect(checked, Connected))

        with broker() as port:
            run_on(loop_factory, main(port))
        assert failed == [("broker", port, "127.0.0.2")]

    def test_an_address_that_does_not_answer_in_time_is_reported(self, loop_factory: LoopFactory) -> None:
        failed: list[tuple[str, int, str]] = []

        def on_failed(target: BrokerAddress, address: str) -> None:
            failed.append((target.host, target.port, address))

        async def main(port: int) -> None:
            dialer = Dialer(asyncio.get_running_loop(), OPTIONS, 0.05, on_failed=on_failed)
            with pytest.raises(BrokerUnavailable, match="no connection within"):
                await dialer.connect(CheckedTarget(BrokerAddress("broker", port), ["127.0.0.1"]), Connected)

        with silent_broker() as port:
            run_on(loop_factory, main(port))
        assert failed == [("broker", port, "127.0.0.1")]

    def test_a_broker_that_listens_is_connected_to(self, loop_factory: LoopFactory) -> None:
        async def main(port: int) -> None:
            protocol = await connect(port, ["127.0.0.1"])
            assert protocol.transport.get_extra_info("peername") == ("127.0.0.1", port)
            await close(protocol)

        with broker() as port:
            run_on(loop_factory, main(port))

    def test_a_dead_peer_will_show_itself(self, loop_factory: LoopFactory) -> None:
        async def main(port: int) -> None:
            protocol = await connect(port, ["127.0.0.1"])
            tcp = socket.IPPROTO_TCP
            assert option(protocol, socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert option(protocol, tcp, socket.TCP_KEEPIDLE) == 61
            assert option(protocol, tcp, socket.TCP_KEEPINTVL) == 11
            assert option(protocol, tcp, socket.TCP_KEEPCNT) == 4
            assert option(protocol, tcp, socket.TCP_USER_TIMEOUT) == 31_000
            assert option(protocol, tcp, socket.TCP_NODELAY) == 1
            await close(protocol)

        with broker() as port:
            run_on(loop_factory, main(port))

    def test_the_receive_buffer_is_bounded_only_if_asked_for(self, loop_factory: LoopFactory) -> None:
        async def main(port: int) -> None:
            bounded = SocketOptions(60, 10, 3, 30_000, receive_buffer_bytes=20_000)
            free = await connect(port, ["127.0.0.1"])
            small = await connect(port, ["127.0.0.1"], options=bounded)
            assert option(small, socket.SOL_SOCKET, socket.SO_RCVBUF) == 40_000  # Linux doubles it
            assert option(free, socket.SOL_SOCKET, socket.SO_RCVBUF) > 40_000
            await close(free)
            await close(small)

        with broker() as port:
            run_on(loop_factory, main(port))

    def test_the_next_address_is_tried_when_one_refuses(self, loop_factory: LoopFactory) -> None:
        async def main(port: int) -> None:
            protocol = await connect(port, ["127.0.0.2", "127.0.0.1"])
            assert protocol.transport.get_extra_info("peername")[0] == "127.0.0.1"
            await close(protocol)

        with broker() as port:
            run_on(loop_factory, main(port))

    def test_ipv6_addresses_are_connected_to(self, loop_factory: LoopFactory) -> None:
        async def main(port: int) -> None:
            protocol = await connect(port, ["::1"])
            await close(protocol)

        ipv6_loopback()
        with broker("::1") as port:
            run_on(loop_factory, main(port))

    def test_a_refusal_is_named_with_its_target(self, loop_factory: LoopFactory) -> None:
        port = closed_port()
        with pytest.raises(BrokerUnavailable, match=f"cannot connect to broker broker:{port}: connection refused"):
            run_on(loop_factory, connect(port, ["127.0.0.1"]))

    def test_no_address_is_no_connection(self, loop_factory: LoopFactory) -> None:
        with pytest.raises(BrokerUnavailable, match="it has no address"):
            run_on(loop_factory, connect(6650, []))

    def test_a_broker_that_does_not_answer_is_given_up(self, loop_factory: LoopFactory) -> None:
        with silent_broker() as port, pytest.raises(BrokerUnavailable, match="brokerProxyConnectTimeoutMs"):
            run_on(loop_factory, connect(port, ["127.0.0.1"], timeout_seconds=0.02))

    def test_failures_leave_no_socket_open(self, loop_factory: LoopFactory) -> None:
        async def main(silent: int, closed: int) -> None:
            before = open_files()
            for port in (silent, closed):
                with pytest.raises(BrokerUnavailable):
                    await connect(port, ["127.0.0.1", "127.0.0.1"], timeout_seconds=0.02)
            await asyncio.sleep(0)
            assert open_files() == before

        with silent_broker() as silent:
            run_on(loop_factory, main(silent, closed_port()))

    def test_who_is_cancelled_leaves_no_socket_open(self, loop_factory: LoopFactory) -> None:
        async def main(port: int) -> None:
            before = open_files()
            task = asyncio.get_running_loop().create_task(connect(port, ["127.0.0.1"]))
            await asyncio.sleep(0.005)
            assert open_files() == before + 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0)
            assert open_files() == before

        with silent_broker() as port:
            run_on(loop_factory, main(port))


def test_the_timeout_covers_all_addresses_together() -> None:
    async def main(port: int) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        with pytest.raises(BrokerUnavailable, match="no connection within 10 s"):
            await connect(port, ["127.0.0.1"] * 5, timeout_seconds=10.0)
        assert loop.time() - started == pytest.approx(10.0, abs=0.1)

    with silent_broker() as port:
        run_virtual(main(port))


def test_a_dial_to_a_made_up_host_gives_its_place_to_another_address_that_waits() -> None:
    async def main(silent: int, listening: int) -> None:
        loop = asyncio.get_running_loop()
        began, places = loop.time(), DialPlaces(1, loop)
        dialer = Dialer(loop, OPTIONS, 10.0, places=places)

        async def dial(port: int, network: str | None) -> Connected:
            return await dialer.connect(CheckedTarget(BrokerAddress("host", port), ["127.0.0.1"], network), Connected)

        crowd = [loop.create_task(dial(silent, "192.0.2.1")) for _ in range(2)]
        await asyncio.sleep(0.1)
        assert places.states() == {"opening": 1, "waiting": 1}
        # A known broker needs no place.
        await close(await dial(listening, None))
        assert loop.time() - began < 0.5
        await close(await dial(listening, "192.0.2.2"))
        with pytest.raises(BrokerUnavailable, match="given up for clients of other addresses"):
            await crowd[0]
        # A turn of the crowd may come before the other's.
        assert LEAST_DIAL_SECONDS <= loop.time() - began <= 2 * LEAST_DIAL_SECONDS + 0.5
        with pytest.raises(BrokerUnavailable):
            await crowd[1]
        assert places.states() == {"opening": 0, "waiting": 0}

    with silent_broker() as silent, broker() as listening:
        run_virtual(main(silent, listening))


def test_a_dial_to_a_made_up_host_that_finds_no_place_in_time_is_refused() -> None:
    async def main(port: int) -> None:
        loop = asyncio.get_running_loop()
        places = DialPlaces(1, loop)
        dialer = Dialer(loop, OPTIONS, 10.0, places=places)
        target = CheckedTarget(BrokerAddress("host", port), ["127.0.0.1"], "192.0.2.1")
        refusal = "too many connections to hosts that clients name"
        with await places.enter("192.0.2.1", 1.0), pytest.raises(BrokerUnavailable, match=refusal):
            await dialer.connect(target, Connected)

    with silent_broker() as port:
        run_virtual(main(port))


def test_keep_alive_may_be_switched_off() -> None:
    with socket.socket() as sock:
        SocketOptions(0, 10, 3, 30_000).apply(sock)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


class Addresses:
    """Attempts to connect that take their time: seconds until an address answers, or refuses if they are negative."""

    def __init__(self, **seconds: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.seconds = seconds
        self.begun: dict[str, float] = {}
        self.running = self.most_running = 0
        self.sockets: dict[str, socket.socket] = {}
        self.began = self.loop.time()

    async def race(self, at_once: int = ATTEMPTS_AT_ONCE) -> str:
        """Give the address that won, and see that all others are closed."""
        won = await _Race(self._attempt, BrokerAddress("broker", 6650), at_once).run(list(self.seconds))
        (address,) = (name for name, sock in self.sockets.items() if sock is won)
        assert [name for name, sock in self.sockets.items() if sock.fileno() != -1] == [address]
        won.close()
        return address

    async def _attempt(self, address: str, target: BrokerAddress) -> socket.socket:
        self.begun[address] = round(self.loop.time() - self.began, 3)
        seconds = self.seconds[address]
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(abs(seconds))
        finally:
            self.running -= 1
        if seconds < 0:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        self.sockets[address] = socket.socket()
        return self.sockets[address]


class TestSeveralAddresses:
    def test_the_next_is_tried_beside_one_that_does_not_answer_soon(self) -> None:
        async def main() -> None:
            addresses = Addresses(a=60, b=60, c=0.1)
            assert await addresses.race() == "c"
            assert addresses.begun == {"a": 0, "b": HEAD_START_SECONDS, "c": 2 * HEAD_START_SECONDS}

        run_virtual(main())

    def test_one_that_is_late_may_still_win(self) -> None:
        async def main() -> None:
            assert await Addresses(a=0.3, b=60).race() == "a"

        run_virtual(main())

    def test_one_that_refuses_is_followed_by_the_next_at_once(self) -> None:
        async def main() -> None:
            addresses = Addresses(a=-0.01, b=0.01)
            assert await addresses.race() == "b"
            assert addresses.begun == {"a": 0, "b": 0.01}

        run_virtual(main())

    def test_of_two_that_answer_in_one_turn_one_is_closed(self) -> None:
        async def main() -> None:
            addresses = Addresses(a=HEAD_START_SECONDS + 0.1, b=0.1)
            await addresses.race()
            assert len(addresses.sockets) == 2

        run_virtual(main())

    def test_a_few_are_tried_at_a_time_and_the_oldest_ends_for_the_next(self) -> None:
        async def main() -> None:
            addresses = Addresses(**{f"silent-{number}": 60 for number in range(20)}, answers=0.1)
            assert await addresses.race(at_once=3) == "answers"
            assert addresses.most_running == 3
            # None waits for another: each begins as early as if all were tried at once.
            assert list(addresses.begun.values()) == [number * HEAD_START_SECONDS for number in range(21)]

        run_virtual(main())

    def test_a_known_brokers_lost_syn_has_time_to_be_sent_again(self) -> None:
        async def main() -> None:
            addresses = Addresses(answers=1.5, **{f"silent-{number}": 60 for number in range(20)})
            assert await addresses.race() == "answers"
            assert addresses.most_running <= ATTEMPTS_AT_ONCE

        run_virtual(main())

    def test_two_or_three_addresses_all_have_the_whole_time(self) -> None:
        async def main() -> None:
            assert await Addresses(a=9, b=60, c=60).race(at_once=SOCKETS_A_DIAL) == "a"
            assert await Addresses(a=60, b=60, c=9).race(at_once=SOCKETS_A_DIAL) == "c"

        run_virtual(main())

    def test_if_all_refuse_so_does_the_race(self) -> None:
        async def main() -> None:
            with pytest.raises(ConnectionRefusedError):
                await Addresses(a=-0.01, b=-0.3, c=-0.01).race()

        run_virtual(main())

    def test_ipv6_and_ipv4_take_turns(self) -> None:
        assert interleaved(["::1", "::2", "::3", "192.0.2.1"]) == ["::1", "192.0.2.1", "::2", "::3"]
        assert interleaved(["192.0.2.1", "192.0.2.2", "::1"]) == ["192.0.2.1", "::1", "192.0.2.2"]
