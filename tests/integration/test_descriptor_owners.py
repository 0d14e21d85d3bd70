"""Who owns which descriptor of a relay when, in both engines (docs/architecture.md has the table).

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

# Moments of a hand-over.
JOIN, EMPTY, GONE, TAKEN, FAILED, ENDED, ON_LOOP = (
    "join", "write buffers are empty", "transports are gone", "taken", "join failed", "ended", "on the loop",
)  # fmt: skip
# By moment, how many descriptors of either socket there are, and the least and most epoll sets. A transport that is
# paused or closed leaves its loop's set in a later turn.
OWNED = {
    JOIN: (2, 0, 1), EMPTY: (2, 0, 1), GONE: (1, 0, 1), TAKEN: (1, 1, 1), FAILED: (1, 1, 1), ENDED: (0, 0, 1),
    ON_LOOP: (1, 1, 2),
}  # fmt: skip
Seen = tuple[int, int]


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
        """Compare what was seen with the table."""
        assert list(self.seen) == list(moments)
        for moment, both in self.seen.items():
            expected, least, most = OWNED[moment]
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
