"""A broker that leaves answers of its handshake unread: they stay in front of what the relay writes behind them."""

import asyncio
import socket

import pytest

from protocol.commands import PONG_FRAME
from proxy.brokers.handshake import BrokerHandshake
from tests.support.brokers.raw_broker import CONNECTED, raw_broker
from tests.support.clients.async_client import AsyncClient
from tests.support.patience import in_time
from tests.support.proxies.proxy_under_test import staged
from tests.support.proxies.relays import TO_BROKER, unsent

# A PING whose type takes two bytes: each is answered, where PINGs in the usual form share an answer.
LONG_PING = bytes.fromhex("0000000a00000006089200920100")
PINGS_AT_ONCE = 100
# Looks at PONGs that nobody takes, until the kernel's last probe of the window is surely over.
STILL = 60
KIB = 1024
KERNEL_BYTES = 4 * KIB


def reading_little(sock: socket.socket) -> AsyncClient:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
    return AsyncClient(sock)


async def test_a_broker_that_left_pongs_unread_gets_the_bytes_of_its_own_client_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handshakes: list[BrokerHandshake] = []
    adopt = BrokerHandshake.adopt

    def adopt_narrow(self: BrokerHandshake, transport: asyncio.Transport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * KERNEL_BYTES)
        adopt(self, transport)
        handshakes.append(self)

    async def leave_pongs(peer: AsyncClient) -> None:
        await peer.command()
        (handshake,) = handshakes
        still = 0
        while still < STILL:
            if handshake.write_pending:
                still += 1
                await asyncio.sleep(0.005)
            else:
                still = 0
                await peer.send(LONG_PING * PINGS_AT_ONCE)
                await asyncio.sleep(0)
        await peer.send(CONNECTED)
        await asyncio.Event().wait()

    monkeypatch.setattr(BrokerHandshake, "adopt", adopt_narrow)
    async with staged(relayEngine="asyncio") as stage, raw_broker(leave_pongs, reading_little) as broker:
        client, other = await stage.client(), await stage.client()
        await client.connect(target=f"127.0.0.1:{broker.port}")
        (peer,) = broker.peers
        (relay,) = stage.proxy.sessions.all_relays()
        sent = b"\xaa" * (16 * KIB)
        for at in range(0, len(sent), 4 * KIB):
            await client.send(sent[at : at + 4 * KIB])
            await asyncio.sleep(0.001)
        await stage.until(lambda: unsent(relay, TO_BROKER) >= 4 * KIB, "bytes that wait behind the PONGs")
        # The loop's buffer has other bytes now.
        await other.send(b"\xbb" * len(sent))
        await asyncio.sleep(0)
        await other.rest()
        got = bytearray()
        while len(got.replace(PONG_FRAME, b"")) < len(sent):
            async with in_time():
                got += await asyncio.get_running_loop().sock_recv(peer.sock, 64 * KIB)
        assert got.replace(PONG_FRAME, b"") == sent
