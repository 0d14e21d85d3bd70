import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.support.loops.async_tests import on_both_loops
from tests.support.loops.loops import eventually
from tests.support.sockets.endpoints import Peer, hangup_watcher, tcp_pair


@contextmanager
def sockets(kind: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = tcp_pair() if kind == "tcp" else socket.socketpair()
    with ours, theirs:
        yield ours, theirs


kinds = pytest.mark.parametrize("kind", ["tcp", "unix"])


def hear(heard: list[str], name: str, _: bool) -> None:
    heard.append(name)


class TestHangup:
    @kinds
    @on_both_loops
    async def test_a_fin_is_heard_once(self, kind: str) -> None:
        with sockets(kind) as (ours, theirs):
            heard: list[bool] = []
            async with hangup_watcher() as watcher:
                watcher.watch(ours.fileno(), heard.append)
                theirs.shutdown(socket.SHUT_WR)
                await eventually(lambda: heard)
                for _ in range(5):
                    await asyncio.sleep(0)
                assert heard == [False]
                assert len(watcher) == 0

    @pytest.mark.threat("unheard-hang-up")
    @on_both_loops
    async def test_who_stops_too_late_takes_nothing_from_a_newcomer_with_the_same_number(self) -> None:
        late: list[bool] = []
        heard: list[bool] = []
        async with hangup_watcher() as watcher:
            with sockets("tcp") as (ours, _), sockets("tcp") as (newcomer, theirs):
                number = ours.fileno()
                watcher.watch(number, late.append)
                # It is closed, and has its successor, in one step: any thread might get a number that is free.
                os.dup2(newcomer.fileno(), number)
                watcher.watch(number, heard.append)
                watcher.unwatch(number, late.append)
                assert len(watcher) == 1
                Peer(theirs).reset()
                await eventually(lambda: heard)
                assert (heard, late) == ([True], [])

    @kinds
    @on_both_loops
    async def test_data_alone_says_nothing(self, kind: str) -> None:
        with sockets(kind) as (ours, theirs), sockets(kind) as (other, its_peer):
            heard: list[str] = []
            async with hangup_watcher() as watcher:
                watcher.watch(ours.fileno(), lambda gone: heard.append("data"))
                watcher.watch(other.fileno(), lambda gone: heard.append("end"))
                theirs.sendall(b"x" * 1000)
                its_peer.close()
                await eventually(lambda: heard)
                assert heard == ["end"]

    @on_both_loops
    async def test_who_is_unwatched_hears_nothing(self) -> None:
        with sockets("tcp") as (ours, theirs), sockets("tcp") as (other, its_peer):
            heard: list[str] = []
            async with hangup_watcher() as watcher:
                unwatched = partial(hear, heard, "unwatched")
                watcher.watch(ours.fileno(), unwatched)
                watcher.watch(other.fileno(), lambda gone: heard.append("watched"))
                watcher.unwatch(ours.fileno(), unwatched)
                theirs.close()
                its_peer.close()
                await eventually(lambda: heard)
                assert heard == ["watched"]
