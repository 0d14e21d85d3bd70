"""docs/architecture.md says who owns which descriptor when: here both engines are watched, and the table is held to it.

A socket is known by its inode: how many descriptors of this process are open on it, and how many epoll sets have it
(proc(5), fdinfo).
"""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from proxy.core.errors import DisconnectCause
from proxy.relay.hand_over import HandOver
from proxy.relay.native_engine import NativeEngine
from proxy.relay.native_relay import NativeRelay
from proxy.relay.relay import AsyncioRelay
from tests.integration.test_direct_mode import greet, joined
from tests.integration.test_native_relays import Refusing
from tests.support.brokers.raw_broker import raw_broker
from tests.support.proxies.proxy_under_test import staged
from tests.support.tools import native_extension
from tests.support.walkthrough import ROOT

# The rows of the table that a hand-over passes, by what is seen of them here.
JOIN, EMPTY, GONE, TAKEN, FAILED, ENDED, ON_LOOP = (
    "*native engine*: `join`",
    "both write buffers empty",
    "both transports gone, one turn later",
    "`RelayEngine.join` of the extension returned",
    "`join` failed",
    "ENDED",
    "*asyncio engine*: from `start` on",
)
# Who watches a socket, and how many epoll sets have it then. A transport that is paused or closed leaves its loop's set
# in a later turn.
WATCHERS = {"nobody": (0, 1), "epoll of one thread": (1, 1), "the loop": (1, 1), "the loop; hang-ups": (1, 2)}
Seen = tuple[int, int]


def documented() -> dict[str, tuple[int, int, int]]:
    """Return, by moment, how many descriptors of either socket there are, and the least and most epoll sets."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = text.partition("## Who owns which descriptor when\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:2] == "| "]
    assert rows[0] == ["moment", "client's socket", "broker's socket", "descriptors of each", "watched by"]
    return {row[0]: (int(row[3]), *WATCHERS[row[4]]) for row in rows[1:] if row[0] in ALL}


ALL = {JOIN, EMPTY, GONE, TAKEN, FAILED, ENDED, ON_LOOP}


def looked_at(inode: int) -> Seen:
    """Return how many descriptors are open on a socket, and how many epoll sets have it."""
    descriptors = watched = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            kind = os.readlink(f"/proc/self/fd/{name}")
            descriptors += kind == f"socket:[{inode}]"
            if kind == "anon_inode:[eventpoll]":
                watched += bool(re.search(rf"\bino:{inode:x}\b", Path(f"/proc/self/fdinfo/{name}").read_text()))
    return descriptors, watched


@dataclass
class Watcher:
    """The sockets of one relay, and what was seen of them at each moment."""

    inodes: tuple[int, int] = (0, 0)
    seen: dict[str, list[Seen]] = field(default_factory=dict)

    def look(self, moment: str) -> None:
        self.seen.setdefault(moment, [looked_at(inode) for inode in self.inodes])

    def begin(self, client: Any, broker: Any) -> None:
        first, second = (os.fstat(end.get_extra_info("socket").fileno()).st_ino for end in (client, broker))
        self.inodes = first, second

    def hold_to(self, *moments: str) -> None:
        """Compare what was seen with the page."""
        assert list(self.seen) == list(moments)
        table = documented()
        for moment, both in self.seen.items():
            expected, least, most = table[moment]
            for descriptors, watched in both:
                assert descriptors == expected, (moment, both)
                assert least <= watched <= most, (moment, both)


@pytest.fixture
def watcher(monkeypatch: pytest.MonkeyPatch) -> Watcher:
    """Look at the sockets of the next relay at each step of it."""
    at = Watcher()

    def around(owner: type, name: str, moment: str, *, before: bool = False) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def wrapped(self: Any, *given: Any, **named: Any) -> Any:
            if before:
                at.look(moment)
            result = real(self, *given, **named)
            # Without a number the engine has refused the pair.
            if not before and not (moment == TAKEN and result is None):
                at.look(moment)
            return result

        monkeypatch.setattr(owner, name, wrapped)

    made, started = HandOver.__init__, AsyncioRelay.start

    def begun(self: HandOver, loop: Any, client: Any, broker: Any) -> None:
        at.begin(client, broker)
        made(self, loop, client, broker)
        at.look(JOIN)

    def on_loop(self: AsyncioRelay, client: Any, broker: Any, *first: bytes) -> None:
        at.begin(client, broker)
        started(self, client, broker, *first)

    monkeypatch.setattr(HandOver, "__init__", begun)
    monkeypatch.setattr(AsyncioRelay, "start", on_loop)
    around(HandOver, "_leave", EMPTY)
    around(NativeRelay, "handed_over", GONE, before=True)
    around(NativeEngine, "register", TAKEN)
    around(NativeRelay, "on_ended", ENDED, before=True)
    return at


async def test_the_threads_own_one_descriptor_of_each_socket_from_the_hand_over_to_the_end(watcher: Watcher) -> None:
    native_extension()
    async with staged(relayEngine="native") as stage, raw_broker(greet) as broker:
        pair = await joined(stage, broker)
        await pair.client.send(b"x")
        assert await pair.broker.receive(1) == b"x"
        pair.relay.abort(DisconnectCause.ADMIN)
        await pair.over("admin")
        watcher.hold_to(JOIN, EMPTY, GONE, TAKEN, ENDED)


async def test_a_pair_that_the_threads_refuse_is_transports_of_the_loop_again(watcher: Watcher) -> None:
    native_extension()
    async with staged(relayEngine="native") as stage, raw_broker(greet) as broker:
        engine = stage.proxy.relay_engines.native
        assert engine is not None
        engine.pairs = Refusing(engine.pairs, OSError)
        pair = await joined(stage, broker)
        await pair.client.send(b"x")
        assert await pair.broker.receive(1) == b"x"
        watcher.look(FAILED)
        watcher.hold_to(JOIN, EMPTY, GONE, FAILED)


async def test_a_relay_of_the_loop_has_the_transports_that_there_were(watcher: Watcher) -> None:
    async with staged(relayEngine="asyncio") as stage, raw_broker(greet) as broker:
        pair = await joined(stage, broker)
        await pair.client.send(b"x")
        assert await pair.broker.receive(1) == b"x"
        watcher.look(ON_LOOP)
        watcher.hold_to(ON_LOOP)
