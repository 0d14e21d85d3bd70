"""Connecting to brokers with TLS: whose name is checked, what ends a handshake, and that nothing stays open then."""

import asyncio
import gc
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from time import perf_counter

import pytest

from proxy.brokers.dialer import Dialer, SocketOptions
from proxy.brokers.target import BrokerAddress, CheckedTarget
from proxy.core.counters import Counters
from proxy.core.errors import BrokerUnavailable, DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.core.tasks import TaskScope
from proxy.net.tls.brokers import BrokerTls
from proxy.net.tls.shared import TlsShared
from proxy.net.transport import SharedReadBuffer
from tests.support.auth.tls import Sealer, calling_config, certificate, server_context
from tests.support.clients.async_client import LOOPBACK
from tests.support.loops.async_tests import on_both_loops
from tests.support.loops.loops import eventually
from tests.support.patience import patient
from tests.support.proxies.counted import counted
from tests.support.sockets.descriptors import targets
from tests.support.sockets.endpoints import RecordingEndpoint, hangup_watcher

OPTIONS = SocketOptions(0)
# More turns of the loop than a dial needs until it waits for the broker's hello.
STEPS_OF_A_DIAL = 20


@contextmanager
def listening() -> Iterator[socket.socket]:
    with closing(socket.create_server((LOOPBACK, 0))) as listener:
        listener.setblocking(False)
        yield listener


def open_files() -> int:
    """Count them, but for the /dev/null that libuv opens once."""
    return len([target for target in targets() if target != "/dev/null"])


class Calls:
    """A dialer with TLS, and what it has counted."""

    def __init__(self, timeout_seconds: float | None = None, with_tls: bool = True) -> None:
        loop = asyncio.get_running_loop()
        self.counters = Counters()
        shared = TlsShared(LoopBudget(loop, perf_counter))
        tls = BrokerTls(loop, shared, calling_config, self.counters) if with_tls else None
        self.dialer = Dialer(loop, OPTIONS, patient(5.0) if timeout_seconds is None else timeout_seconds, tls)

    async def to(
        self, listener: socket.socket, host: str = "localhost", pinned: str = "", made_up_by: str | None = None
    ) -> RecordingEndpoint:
        loop = asyncio.get_running_loop()
        address = BrokerAddress(host, listener.getsockname()[1], tls=True, address=pinned)
        async with hangup_watcher() as watcher:
            return await self.dialer.connect(
                CheckedTarget(address, [LOOPBACK], made_up_by),
                lambda: RecordingEndpoint(loop, SharedReadBuffer(), watcher),
            )

    def handshakes(self, result: str) -> int:
        return counted(self.counters, "tls_handshakes", "broker", result)


async def serve(listener: socket.socket, *names: str) -> None:
    """Shake hands with one that calls, and wait for its end."""
    loop = asyncio.get_running_loop()
    sock, _ = await loop.sock_accept(listener)
    sock.setblocking(False)
    with closing(sock):
        try:
            await Sealer(server_context(certificate("first", *names)), server_side=True).shake(sock)
            await loop.sock_recv(sock, 1)
        except OSError:
            return


@on_both_loops
async def test_a_broker_that_is_one_address_of_a_name_is_checked_by_the_name() -> None:
    scope = TaskScope(lambda error: None)
    with listening() as listener:
        calls = Calls()
        scope.start(serve(listener, "brokers.example"))
        endpoint = await calls.to(listener, "brokers.example", pinned=LOOPBACK)
        assert endpoint.is_tls
        endpoint.abort(DisconnectCause.SHUTDOWN)
        await eventually(lambda: endpoint.transport is None)
        # Whoever holds the address is not yet who is meant.
        scope.start(serve(listener, LOOPBACK))
        with pytest.raises(BrokerUnavailable, match=r"the certificate is refused: .*brokers\.example"):
            await calls.to(listener, "brokers.example", pinned=LOOPBACK)
    await scope.emptied()


@pytest.mark.parametrize("said", [b"", b"\x00\x00\x00\x05hello"])
@on_both_loops
async def test_a_broker_that_does_not_shake_hands_is_given_up(said: bytes) -> None:
    async def answer(listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        sock, _ = await loop.sock_accept(listener)
        sock.setblocking(False)
        with closing(sock):
            await loop.sock_sendall(sock, said)
            while await loop.sock_recv(sock, 4096):
                pass

    scope, before = TaskScope(lambda error: None), open_files()
    with listening() as listener:
        scope.start(answer(listener))
        calls = Calls(timeout_seconds=None if said else 0.05)
        with pytest.raises(BrokerUnavailable, match="does not speak tls" if said else "brokerProxyConnectTimeoutMs"):
            await calls.to(listener)
        assert calls.handshakes("done") == 0
    await scope.emptied()
    await eventually(lambda: open_files() <= before)


@pytest.mark.parametrize(("made_up_by", "bytes_sent"), [(LOOPBACK, 24 * 1024), (None, 72 * 1024)])
@on_both_loops
async def test_a_host_that_a_client_made_up_may_say_less_before_it_is_known(
    made_up_by: str | None, bytes_sent: int
) -> None:
    async def answer(listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        sock, _ = await loop.sock_accept(listener)
        sock.setblocking(False)
        with closing(sock), suppress(OSError):
            # Pieces of a hello that is longer than all that is sent.
            said = bytes((2, 0, 255, 255)) + bytes(4092)
            for _ in range(bytes_sent // len(said)):
                await loop.sock_sendall(sock, b"\x16\x03\x03" + len(said).to_bytes(2) + said)
                said = bytes(4096)
            while await loop.sock_recv(sock, 4096):
                pass

    scope = TaskScope(lambda error: None)
    with listening() as listener:
        scope.start(answer(listener))
        most = 20 * 1024 if made_up_by else 64 * 1024
        with pytest.raises(BrokerUnavailable, match=f"its handshake is not done after {most} bytes"):
            await Calls().to(listener, made_up_by=made_up_by)
    await scope.emptied()


@on_both_loops
async def test_a_dial_that_is_given_up_at_any_step_is_over_and_nobody_hears_of_it() -> None:
    loop, before = asyncio.get_running_loop(), open_files()
    with listening() as listener:
        for steps in range(STEPS_OF_A_DIAL):
            dial = loop.create_task(Calls().to(listener))
            for _ in range(steps):
                await asyncio.sleep(0)
            dial.cancel()
            with pytest.raises(asyncio.CancelledError):
                await dial
            for _ in range(STEPS_OF_A_DIAL):
                await asyncio.sleep(0)
            # What was lost with the dial is told when it is collected.
            gc.collect()
    await eventually(lambda: open_files() <= before)


@pytest.mark.parametrize("host", [".localhost", "a" * 64 + ".example"])
@on_both_loops
async def test_a_name_that_no_certificate_can_have_is_no_crash(host: str) -> None:
    with listening() as listener, pytest.raises(BrokerUnavailable, match="cannot be asked for by name"):
        await Calls().to(listener, host)


async def test_without_tls_such_a_broker_is_refused_by_the_key() -> None:
    with listening() as listener, pytest.raises(BrokerUnavailable, match="tlsEnabledWithBroker"):
        await Calls(with_tls=False).to(listener)
