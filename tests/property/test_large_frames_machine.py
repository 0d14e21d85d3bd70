"""Many clients send large frames into little memory, in any order: what they hold is bounded, and none waits for good.

At the end some clients drip for ever, and all others send the rest of their frames: the clock and the watch end those
who drip, and every other frame gets its answer, by time alone.
"""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from protocol.frames import HEAD_BYTES
from protocol.states import State
from proxy.clients.large_frames import LARGE_FRAME_COPIES, PLACE_BYTES, UNBOOKED_FRAME_BYTES
from tests.support.clients.async_client import connect_frame
from tests.support.clients.uploads import Services, Uploader, question_frame_of, schema_frame_of

KIB = 1024
LARGEST = 64 * KIB
SIZES = st.sampled_from([5 * KIB, 8 * KIB, 20 * KIB, 50 * KIB, LARGEST])
COUNTS = st.sampled_from([1, 100, 4 * KIB, 10 * KIB, LARGEST])
PICK = st.integers(0, 1000)


def a_connect(size: int) -> bytes:
    return connect_frame(auth_data=bytes(size))


KINDS = [a_connect, schema_frame_of, question_frame_of]


class LargeFramesMachine(RuleBasedStateMachine):
    """Clients with one large frame each."""

    @initialize(limit=st.sampled_from([10 * KIB, 64 * KIB, 100 * KIB, 200 * KIB]))
    def begin(self, limit: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.services = Services(limit)
        self.clients: list[Uploader] = []
        self.places: dict[Uploader, int] = {}

    def _run(self, do: Callable[[], object]) -> None:
        async def run() -> None:
            do()
            await self.services.settle()

        self.loop.run_until_complete(run())

    @rule(size=SIZES, count=COUNTS, host=st.sampled_from(["a", "b"]), build=st.sampled_from(KINDS))
    def come(self, size: int, count: int, host: str, build: Callable[[int], bytes]) -> None:
        state = State.INIT if build is a_connect else State.LOOKUP
        client = Uploader(self.services, build(size), state=state, address=host)
        self.clients.append(client)
        if build is not a_connect:
            self.places[client] = min(LARGE_FRAME_COPIES * len(client.frame), PLACE_BYTES)
        self._run(lambda: self.clients[-1].offer(count))

    @precondition(lambda self: self.clients)
    @rule(pick=PICK, count=COUNTS)
    def send(self, pick: int, count: int) -> None:
        self._run(lambda: self.clients[pick % len(self.clients)].offer(count))

    @rule(count=COUNTS)
    def all_send(self, count: int) -> None:
        for pick in range(len(self.clients)):
            self.send(pick, count)

    @precondition(lambda self: self.clients)
    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        self._run(self.clients.pop(pick % len(self.clients)).leave)

    @rule(seconds=st.sampled_from([1, 5, 12]))
    def live(self, seconds: int) -> None:
        self.loop.run_until_complete(self.services.look(seconds))

    @invariant()
    def memory_is_charged_for_what_has_come(self) -> None:
        for client in getattr(self, "clients", ()):
            if client.end is None and client.decoder.storing:
                stored, held = client.decoder.stored_bytes, client.large.held_bytes
                place = self.places.get(client, 0)
                assert held <= max(
                    place, 2 * stored, LARGE_FRAME_COPIES * len(client.frame) * (stored == len(client.frame))
                )
                # More than a connection at rest may hold is charged. One small read may follow half a head.
                assert stored <= max(held, UNBOOKED_FRAME_BYTES + HEAD_BYTES)
            else:
                assert client.large.held_bytes == 0

    @invariant()
    def a_limit_is_passed_by_one_frame_only(self) -> None:
        if hasattr(self, "services"):
            for memory in (self.services.frames, self.services.handshakes):
                assert memory.held <= memory.limit + LARGE_FRAME_COPIES * (LARGEST + 100)

    @invariant()
    def a_request_has_one_answer_or_a_closed_connection(self) -> None:
        for client in getattr(self, "clients", ()):
            assert client.handled + len(client.sent) <= 1

    def teardown(self) -> None:
        if not hasattr(self, "services"):
            return
        dripping = self.clients[::3]
        honest = [client for client in self.clients if client not in dripping]
        # The head of a frame (40 s), its clock (28 s), its waits for memory (25 s).
        for _ in range(100):
            for client in honest:
                self._run(lambda client=client: client.offer(LARGEST))  # type: ignore[misc]
            for client in dripping:
                if client.unsent > 1:
                    self._run(lambda client=client: client.offer(1))  # type: ignore[misc]
            self.loop.run_until_complete(self.services.look(1))
        assert all(client.over for client in honest), [client.end for client in honest]
        assert all(client.over or not client.decoder.storing for client in dripping)
        assert self.services.frames.held == self.services.handshakes.held == 0
        for client in self.clients:
            client.leave()
        self._run(lambda: None)
        self.loop.close()


@pytest.mark.threat("announced-frames", "large-frames-stop")
def test_large_frames_are_bounded_and_all_end() -> None:
    run_state_machine_as_test(
        LargeFramesMachine, settings=settings(max_examples=40, stateful_step_count=25, deadline=None)
    )
