"""However many tunnels have bytes, an iteration of the loop passes a few pieces, in turns by key."""

import asyncio

import pytest

from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget
from proxy.web.forward.paced_streams import PIECE_SECONDS, StreamTurns
from tests.support.loops.loops import run_virtual

TUNNELS = 200
# Work of one piece, by a clock of the test's own.
WORK_SECONDS = 0.0002
# Those who got a turn in an iteration work in the next, beside those whose bytes have just come.
A_FEW = round(ITERATION_SECONDS / PIECE_SECONDS) + round(ITERATION_SECONDS / WORK_SECONDS)


class Tunnels:
    """Tunnels whose pieces take time, and what passes in each iteration of the loop."""

    def __init__(self) -> None:
        self.time = 0.0
        self.budget = LoopBudget(asyncio.get_running_loop(), lambda: self.time)
        self.passed: list[str] = []
        self.iterations = [0]

    async def carry(self, key: str, reader: asyncio.StreamReader) -> None:
        turns = StreamTurns(self.budget, key)
        while await reader.read(1000):
            await turns.wait(reader)
            self.time += WORK_SECONDS
            self.passed.append(key)
            self.iterations[-1] += 1

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.iterations.append(0)


@pytest.mark.threat("websocket-floods-loop")
def test_an_iteration_passes_a_few_pieces_of_many_tunnels_and_keys_take_turns() -> None:
    async def main() -> None:
        tunnels, loop = Tunnels(), asyncio.get_running_loop()
        watch = loop.create_task(tunnels.watch())
        readers = [asyncio.StreamReader() for _ in range(TUNNELS)]
        tasks = [loop.create_task(tunnels.carry("crowd", reader)) for reader in readers[1:]]
        tasks.append(loop.create_task(tunnels.carry("other", readers[0])))
        for _ in range(3):
            for reader in readers:
                reader.feed_data(b"x" * 1000)
        await asyncio.sleep(0)
        for reader in readers:
            reader.feed_eof()
        await asyncio.gather(*tasks)
        watch.cancel()
        assert len(tunnels.passed) == TUNNELS * 3
        assert max(tunnels.iterations) <= A_FEW
        # Every second turn is the other's while it waits.
        assert tunnels.passed.index("other") <= 2 * A_FEW
        assert len(tunnels.budget) == 0

    run_virtual(main())
