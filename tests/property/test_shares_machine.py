"""Permits of two nodes: clients that take a share and then the whole, leave the share, grow, give up and release.

`tests/model` has every order of a few clients; here are keys, caps, timeouts, limits that change, and bounded steps.
At the end releases alone bring everything back, and nobody may be left.
"""

import asyncio
import math
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import limiter.semaphore
from limiter import AsyncSemaphore, Permit, PermitAcquireTimeout
from limiter.semaphore import MOST_AT_ONCE
from tests.support.loops.clock import ManualClock

SIZES = st.sampled_from([0, 1, 1, 2, 3, 4, 6, 13])
AT_ONCE = st.sampled_from([MOST_AT_ONCE, 1, 2])
PICK = st.integers(0, 1000)
PARTS = {"a": 0.5, "b": 0.25}


class Client:
    """Who takes a share, if any, and the whole: `permits` are those taken, `task` waits for the next or for growth."""

    def __init__(self, nodes: list[AsyncSemaphore], n: int, key: str) -> None:
        self._nodes, self._n, self._key = nodes, n, key
        self.permits: list[Permit] = []
        self.task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(self._acquire())

    async def _acquire(self) -> None:
        try:
            for node in self._nodes:
                self.permits.append(await node.acquire(self._n, key=self._key))
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        for permit in reversed(self.permits):
            permit.release()


class SharesMachine(RuleBasedStateMachine):
    """A semaphore, two shares of it, and their clients."""

    @initialize(
        at_once=st.sampled_from([MOST_AT_ONCE, 1, 2]), share_by_key=st.booleans(), kept_of=st.sampled_from([0, 4])
    )
    def begin(self, at_once: int, share_by_key: bool, kept_of: int) -> None:
        limiter.semaphore.MOST_AT_ONCE = at_once
        self.kept_of = kept_of
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock(tick=2.0**-20)
        self.whole = AsyncSemaphore(
            "whole", 12, max_queue=0, timeout_seconds=10.0, clock=self.clock, share_by_key=share_by_key
        )
        self.shares = {
            name: self.whole.share(name, part, share_by_key=share_by_key, kept_of=kept_of)
            for name, part in PARTS.items()
        }
        self.clients: list[Client] = []
        self.largest: dict[str, float] = {name: share.limit for name, share in self.shares.items()}

    @rule(
        asked=st.lists(
            st.tuples(st.sampled_from(["a", "a", "b", None]), SIZES, st.sampled_from("xyz")), min_size=1, max_size=6
        )
    )
    def ask(self, asked: list[tuple[str | None, int, str]]) -> None:
        async def come() -> None:
            for share, n, key in asked:
                nodes = [self.whole] if share is None else [self.shares[share], self.whole]
                self.clients.append(Client(nodes, n, key))

        self.loop.run_until_complete(come())
        self._step()

    @precondition(lambda self: self.holders)
    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        self.holders[pick % len(self.holders)].permits[0].release()
        self._step()

    @precondition(lambda self: self.holders)
    @rule(sizes=st.lists(SIZES, min_size=1))
    def grow(self, sizes: list[int]) -> None:
        for client, n in zip(self.holders, sizes, strict=False):
            if not client.permits[-1].released:
                client.task = self.loop.create_task(client.permits[-1].update(n))
        self._step()

    @precondition(lambda self: self.holders)
    @rule(pick=PICK)
    def release(self, pick: int) -> None:
        self.holders[pick % len(self.holders)].release()
        self._step()

    @precondition(lambda self: any(not client.task.done() for client in self.clients))
    @rule(pick=st.integers(0, 3))
    def cancel(self, pick: int) -> None:
        waiting = [client for client in self.clients if not client.task.done()]
        waiting[pick % len(waiting)].task.cancel()
        self._step()

    @rule(limit=st.sampled_from([0, 1, 4, 8, 12, 20]), without_part=st.sampled_from([None, None, "a", "b"]))
    def change_limit(self, limit: int, without_part: str | None) -> None:
        self.whole.set_limit(limit)
        for name, share in self.shares.items():
            share.part = 0 if name == without_part else PARTS[name]
            share.follow()
            assert share.limit == math.ceil(limit * share.part)
            self.largest[name] = max(self.largest[name], share.limit or math.inf)
        self._step()

    @rule(share_by_key=st.booleans(), cap=st.sampled_from([100, 50, 25]))
    def change_sharing(self, share_by_key: bool, cap: int) -> None:
        for node in self.nodes:
            node.set_sharing(share_by_key, cap)
        self._step()

    @rule(seconds=st.sampled_from([0.5, 4.0, 7.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self._step()

    def _step(self) -> None:
        """Let all run until they wait, and look at the books."""
        steps = 10 + 3 * len(self.clients)
        self.loop.run_until_complete(_settle(steps))
        for client in [client for client in self.clients if client.task.done() and not client.task.cancelled()]:
            if isinstance(client.task.exception(), PermitAcquireTimeout):
                client.release()
        # What these gave back is booked for others, who take it now.
        self.loop.run_until_complete(_settle(steps))
        self.clients = [
            client
            for client in self.clients
            if not client.task.done() or not all(permit.released for permit in client.permits)
        ]
        for node in self.nodes:
            permits = [permit for client in self.clients for permit in client.permits if permit.owner is node]
            assert node.held == sum(permit.size for permit in permits)
            assert node.limit > 0 or not (node.queue_size or node.growers_waiting), "there is no limit, and some wait"
            if node.short and not node.growers_waiting and not (self.kept_of and node.share_by_key):
                head = next(node.waiters(1, 1))[0].size
                assert node.held + head > node.limit, "the first in line may go, and nobody looks"
                assert node.held or head <= node.limit

    @invariant()
    def nobody_passes_a_share(self) -> None:
        for name, most in getattr(self, "largest", {}).items():
            assert self.shares[name].held <= most

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        try:
            self._step()
            for _ in range(2 * len(self.clients) + 1):
                for client in self.holders:
                    client.release()
                self._step()
            assert self.clients == [], "some wait for each other"
            assert [(node.held, node.queue_size, node.growers_waiting) for node in self.nodes] == [(0, 0, 0)] * 3
            assert [node.top_holders(9) for node in self.nodes] == [[]] * 3
        finally:
            limiter.semaphore.MOST_AT_ONCE = MOST_AT_ONCE
            for client in self.clients:
                client.task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()

    @property
    def nodes(self) -> list[AsyncSemaphore]:
        return [*self.shares.values(), self.whole]

    @property
    def holders(self) -> list[Client]:
        return [client for client in self.clients if client.task.done() and client.permits]


async def _settle(steps: int) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)


SharesMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
TestShares = SharesMachine.TestCase
