import asyncio
import os
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from proxy.brokers.dialer import ATTEMPTS_AT_ONCE, HEAD_START_SECONDS, Dialer, SocketOptions, interleaved
from proxy.brokers.target import BrokerAddress, CheckedTarget
from proxy.core.errors import BrokerUnavailable
from proxy.net.dial_places import DialPlaces
from tests.support.loops.loops import LoopFactory, both_loops, eventually, run_on, run_virtual
from tests.support.patience import patient
from tests.support.sockets.ports import free_port
from tests.support.tools import ipv6_loopback

OPTIONS = SocketOptions(user_timeout_millis=31_000)
HOME = "127.0.0.1"


class Connected(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport


@contextmanager
def broker(address: str = HOME, port: int = 0) -> Iterator[int]:
    """Listen on a port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, port), family=family) as listener:
        yield listener.getsockname()[1]


@contextmanager
def silent_broker(address: str = HOME, port: int = 0) -> Iterator[int]:
    """Listen with a full queue, so that the kernel answers nobody any more."""
    with socket.create_server((address, port), backlog=0) as listener, socket.socket() as first:
        first.connect(listener.getsockname())
        # The one that fills the queue may come into it after its own end of the connection is open.
        assert select.select([listener], [], [], patient(5))[0]
        yield listener.getsockname()[1]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


class Dial(Dialer):
    """A dialer for tests; `failed` are the addresses it reported."""

    def __init__(
        self, seconds: float = 5.0, options: SocketOptions = OPTIONS, places: DialPlaces | None = None
    ) -> None:
        self.failed: list[tuple[int, str]] = []
        super().__init__(asyncio.get_running_loop(), options, seconds, on_failed=self._note, places=places)

    def _note(self, target: BrokerAddress, address: str) -> None:
        self.failed.append((target.port, address))

    async def reach(self, port: int, *addresses: str, network: str | None = None) -> Connected:
        return await self.connect(CheckedTarget(BrokerAddress("broker", port), addresses, network), Connected)

    async def winner(self, port: int, *addresses: str) -> str:
        """Return the address that a connection was made to, and close it."""
        transport = (await self.reach(port, *addresses)).transport
        transport.close()
        await asyncio.sleep(0)
        return str(transport.get_extra_info("peername")[0])


@both_loops
class TestConnecting:
    def test_the_next_address_is_tried_when_one_refuses_and_only_that_is_reported(
        self, loop_factory: LoopFactory
    ) -> None:
        async def main(port: int) -> None:
            dialer = Dial()
            assert await dialer.winner(port, "127.0.0.2", HOME) == HOME
            assert dialer.failed == [(port, "127.0.0.2")]

        with broker() as port:
            run_on(loop_factory, main(port))

    def test_an_address_that_does_not_answer_in_time_is_given_up_and_reported(self, loop_factory: LoopFactory) -> None:
        async def main(port: int) -> None:
            dialer = Dial(0.05)
            with pytest.raises(BrokerUnavailable, match=r"no connection within .*brokerProxyConnectTimeoutMs"):
                await dialer.reach(port, HOME)
            assert dialer.failed == [(port, HOME)]

        with silent_broker() as port:
            run_on(loop_factory, main(port))

    def test_a_dead_peer_will_show_itself_and_the_receive_buffer_is_bounded_only_if_asked_for(
        self, loop_factory: LoopFactory
    ) -> None:
        async def options(port: int, given: SocketOptions) -> list[int]:
            transport = (await Dial(options=given).reach(port, HOME)).transport
            sock, tcp = transport.get_extra_info("socket"), socket.IPPROTO_TCP
            names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
            found = [sock.getsockopt(tcp, name) for name in (*names, socket.TCP_NODELAY)]
            found += [sock.getsockopt(socket.SOL_SOCKET, name) for name in (socket.SO_KEEPALIVE, socket.SO_RCVBUF)]
            transport.close()
            await asyncio.sleep(0)
            return found

        async def main(port: int) -> None:
            *rest, buffer = await options(port, OPTIONS)
            assert (rest, buffer > 40_000) == ([60, 10, 3, 31_000, 1, 1], True)
            # Linux doubles what is asked for.
            *rest, buffer = await options(port, SocketOptions(30_000, receive_buffer_bytes=20_000))
            assert (rest[3:], buffer) == ([30_000, 1, 1], 40_000)

        with broker() as port:
            run_on(loop_factory, main(port))

    def test_ipv6_addresses_are_connected_to(self, loop_factory: LoopFactory) -> None:
        async def main(port: int) -> None:
            assert await Dial().winner(port, "::1") == "::1"

        ipv6_loopback()
        with broker("::1") as port:
            run_on(loop_factory, main(port))

    def test_failures_and_who_is_cancelled_leave_no_socket_open(self, loop_factory: LoopFactory) -> None:
        async def main(silent: int, closed: int) -> None:
            before = open_files()
            for port in (silent, closed):
                with pytest.raises(BrokerUnavailable):
                    await Dial(0.02).reach(port, HOME, HOME)
            task = asyncio.get_running_loop().create_task(Dial().reach(silent, HOME))
            await eventually(lambda: open_files() != before, "a socket of the dial")
            assert open_files() == before + 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0)
            assert open_files() == before

        with silent_broker() as silent:
            run_on(loop_factory, main(silent, free_port()))


def test_a_refusal_is_named_with_its_target_and_no_address_is_no_connection() -> None:
    async def main(port: int) -> None:
        with pytest.raises(BrokerUnavailable, match=f"cannot connect to broker broker:{port}: connection refused"):
            await Dial().reach(port, HOME)
        with pytest.raises(BrokerUnavailable, match="it has no address"):
            await Dial().reach(port)

    run_virtual(main(free_port()))


def test_a_dial_to_a_made_up_host_that_finds_no_place_in_time_is_refused() -> None:
    async def main() -> None:
        places = DialPlaces(1, asyncio.get_running_loop())
        refusal = "too many connections to hosts that clients name"
        with await places.enter("192.0.2.1", 1.0), pytest.raises(BrokerUnavailable, match=refusal):
            await Dial(10.0, places=places).reach(1, HOME, network="192.0.2.1")

    run_virtual(main())


# --- several addresses ------------------------------------------------------------------------------


def raced(silent: int, seconds: float = 60.0) -> tuple[str, float]:
    """Dial `silent` addresses that say nothing and then one that answers; return the winner, and after how long."""

    async def main(port: int) -> tuple[str, float]:
        loop, addresses = asyncio.get_running_loop(), [f"127.0.1.{number}" for number in range(1, silent + 1)]
        before, began = open_files(), loop.time()
        with ExitStack() as stack:
            for address in addresses:
                stack.enter_context(silent_broker(address, port))
            files = open_files()
            dial = loop.create_task(Dial(seconds).winner(port, *addresses, HOME))
            while not dial.done():
                assert open_files() - files <= ATTEMPTS_AT_ONCE
                await asyncio.sleep(HEAD_START_SECONDS / 10)
            took = loop.time() - began
        assert open_files() == before
        return dial.result(), took

    with broker() as port:
        return run_virtual(main(port))


@pytest.mark.parametrize("silent", [1, 2, 2 * ATTEMPTS_AT_ONCE])
def test_the_next_is_tried_beside_those_that_do_not_answer_soon_a_few_at_a_time(silent: int) -> None:
    address, seconds = raced(silent)
    # None waits for another: each begins as early as if all were tried at once.
    assert address == HOME
    assert seconds == pytest.approx(silent * HEAD_START_SECONDS, abs=0.1)


def test_the_timeout_covers_all_addresses_together() -> None:
    with pytest.raises(BrokerUnavailable, match="no connection within 1 s"):
        raced(5, seconds=1.0)


def test_ipv6_and_ipv4_take_turns() -> None:
    assert interleaved(["::1", "::2", "::3", "192.0.2.1"]) == ["::1", "192.0.2.1", "::2", "::3"]
    assert interleaved(["192.0.2.1", "192.0.2.2", "::1"]) == ["192.0.2.1", "::1", "192.0.2.2"]
