import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.support.loops.loops import LoopFactory, both_loops, eventually, run_on
from tests.support.sockets.endpoints import Peer, hangup_watcher, tcp_pair


@contextmanager
def sockets(kind: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = tcp_pair() if kind == "tcp" else socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@contextmanager
def successor_of(number: int) -> Iterator[socket.socket]:
    """Open a pair, one end of which has the number of a socket that was just closed, and give the other end."""
    with sockets("tcp") as ends:
        assert number in [end.fileno() for end in ends]
        (other,) = [end for end in ends if end.fileno() != number]
        yield other


kinds = pytest.mark.parametrize("kind", ["tcp", "unix"])


def hear(heard: list[str], name: str, _: bool) -> None:
    heard.append(name)


@both_loops
class TestHangup:
    @kinds
    def test_a_fin_is_heard_once(self, loop_factory: LoopFactory, kind: str) -> None:
        async def main() -> None:
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

        run_on(loop_factory, main())

    def test_a_socket_is_watched_whose_number_was_another_s_that_closed_unnoticed(
        self, loop_factory: LoopFactory
    ) -> None:
        async def main() -> None:
            heard: list[bool] = []
            async with hangup_watcher() as watcher:
                with sockets("tcp") as (ours, _):
                    number = ours.fileno()
                    watcher.watch(number, heard.append)
                with successor_of(number) as theirs:
                    watcher.watch(number, heard.append)
                    Peer(theirs).reset()
                    await eventually(lambda: heard)
                    assert heard == [True]

        run_on(loop_factory, main())

    @pytest.mark.threat("unheard-hang-up")
    def test_who_stops_too_late_takes_nothing_from_a_newcomer_with_the_same_number(
        self, loop_factory: LoopFactory
    ) -> None:
        async def main() -> None:
            late: list[bool] = []
            heard: list[bool] = []
            async with hangup_watcher() as watcher:
                with sockets("tcp") as (ours, _):
                    number = ours.fileno()
                    watcher.watch(number, late.append)
                with successor_of(number) as theirs:
                    watcher.watch(number, heard.append)
                    watcher.unwatch(number, late.append)
                    assert len(watcher) == 1
                    Peer(theirs).reset()
                    await eventually(lambda: heard)
                    assert (heard, late) == ([True], [])

        run_on(loop_factory, main())

    def test_a_reset_is_heard_as_gone(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            with sockets("tcp") as (ours, theirs):
                heard: list[bool] = []
                async with hangup_watcher() as watcher:
                    watcher.watch(ours.fileno(), heard.append)
                    Peer(theirs).reset()
                    await eventually(lambda: heard)
                    assert heard == [True]

        run_on(loop_factory, main())

    @kinds
    @pytest.mark.parametrize("reset", [False, True])
    def test_unread_data_does_not_hide_the_end(self, loop_factory: LoopFactory, kind: str, reset: bool) -> None:
        async def main() -> None:
            with sockets(kind) as (ours, theirs):
                theirs.sendall(b"x" * 1000)
                heard: list[bool] = []
                async with hangup_watcher() as watcher:
                    watcher.watch(ours.fileno(), heard.append)
                    Peer(theirs).reset() if reset else theirs.close()
                    await eventually(lambda: heard)
                    assert len(heard) == 1

        run_on(loop_factory, main())

    @kinds
    def test_data_alone_says_nothing(self, loop_factory: LoopFactory, kind: str) -> None:
        async def main() -> None:
            with sockets(kind) as (ours, theirs), sockets(kind) as (other, its_peer):
                heard: list[str] = []
                async with hangup_watcher() as watcher:
                    watcher.watch(ours.fileno(), lambda gone: heard.append("data"))
                    watcher.watch(other.fileno(), lambda gone: heard.append("end"))
                    theirs.sendall(b"x" * 1000)
                    its_peer.close()
                    await eventually(lambda: heard)
                    assert heard == ["end"]

        run_on(loop_factory, main())

    def test_an_end_before_the_watch_is_heard(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            with sockets("tcp") as (ours, theirs):
                theirs.close()
                heard: list[bool] = []
                async with hangup_watcher() as watcher:
                    watcher.watch(ours.fileno(), heard.append)
                    await eventually(lambda: heard)

        run_on(loop_factory, main())

    def test_who_is_unwatched_hears_nothing(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
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

        run_on(loop_factory, main())

    def test_a_descriptor_number_used_again_is_another_connection(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            heard: list[str] = []
            async with hangup_watcher() as watcher:
                ours, theirs = tcp_pair()
                number = ours.fileno()
                first = partial(hear, heard, "first")
                watcher.watch(number, first)
                watcher.unwatch(number, first)
                ours.close()
                theirs.close()
                with sockets("tcp") as (again, its_peer):
                    watcher.watch(again.fileno(), lambda gone: heard.append("second"))
                    its_peer.close()
                    await eventually(lambda: heard)
                assert heard == ["second"]
                assert len(watcher) == 0

        run_on(loop_factory, main())

    def test_a_socket_closed_before_its_unwatch_does_no_harm(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            async with hangup_watcher() as watcher:
                ours, theirs = tcp_pair()
                number = ours.fileno()
                heard: list[bool] = []
                watcher.watch(number, heard.append)
                ours.close()
                theirs.close()
                watcher.unwatch(number, heard.append)
                watcher.unwatch(number, heard.append)
                assert len(watcher) == 0

        run_on(loop_factory, main())

    def test_the_latest_watch_of_a_socket_counts(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            with sockets("tcp") as (ours, theirs):
                heard: list[str] = []
                async with hangup_watcher() as watcher:
                    watcher.watch(ours.fileno(), lambda gone: heard.append("old"))
                    watcher.watch(ours.fileno(), lambda gone: heard.append("new"))
                    theirs.close()
                    await eventually(lambda: heard)
                    assert heard == ["new"]

        run_on(loop_factory, main())

    def test_an_end_that_was_heard_is_heard_again_by_a_new_watch(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            with sockets("tcp") as (ours, theirs):
                heard: list[str] = []
                async with hangup_watcher() as watcher:
                    theirs.close()
                    for name in ("first", "second"):
                        watcher.watch(ours.fileno(), lambda gone, name=name: heard.append(name))  # type: ignore[misc]
                        await eventually(lambda name=name: name in heard)  # type: ignore[misc]
                    assert heard == ["first", "second"]

        run_on(loop_factory, main())

    def test_many_ends_at_once_are_all_heard(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            pairs = [socket.socketpair() for _ in range(200)]
            heard: list[int] = []
            async with hangup_watcher() as watcher:
                for number, (ours, _) in enumerate(pairs):
                    watcher.watch(ours.fileno(), lambda gone, number=number: heard.append(number))  # type: ignore[misc]
                for _, theirs in pairs:
                    theirs.close()
                await eventually(lambda: len(heard) == len(pairs))
            assert sorted(heard) == list(range(len(pairs)))
            for ours, _ in pairs:
                ours.close()

        run_on(loop_factory, main())
