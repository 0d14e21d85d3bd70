"""The book of large kernel buffers as a state machine: the sum is kept, and nothing is taken from who uses a buffer.

The model has only the rules that matter to others: what is booked is what the holders have, a holder that is asked for
its memory rests and has nothing under way, and memory that a resting holder could give is not refused for long.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proxy.net.send_buffers import LOOKS, KernelMemory

LIMIT = 1000
HOLDERS = 2 * LOOKS + 3
holders = st.integers(0, HOLDERS - 1)
sizes = st.sampled_from((0, 1, 99, 100, 333, 500, LIMIT, LIMIT + 1))


class Holder:
    """A connection with a large buffer of `booked_bytes`; `queued`: the kernel has more than fits into a small one."""

    def __init__(self) -> None:
        self.booked_bytes = 0
        self.resting = self.queued = False

    def spare(self) -> bool:
        assert self.resting, "a connection that uses its buffer was looked at"
        return not self.queued

    def shrink(self) -> None:
        assert (self.resting, self.queued) == (True, False)
        assert not self.booked_bytes, "what is taken back is not booked any more"
        self.resting = False


class KernelMemoryMachine(RuleBasedStateMachine):
    """Connections that take, rest, wake and leave in any order, under a limit that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = KernelMemory(LIMIT)
        self.holders: list[Any] = [Holder() for _ in range(HOLDERS)]
        # The most that may be booked: what was booked when the limit was lowered, or the limit.
        self.allowed = LIMIT

    @property
    def booked(self) -> int:
        return sum(holder.booked_bytes for holder in self.holders)

    @rule(one=holders, size=sizes, spared=st.sampled_from((0, 100)))
    def takes(self, one: int, size: int, spared: int) -> None:
        holder, before = self.holders[one], self.holders[one].booked_bytes
        took = self.memory.take(holder, size, spared)
        assert holder.booked_bytes == (size if took else before)
        if took and size > before:
            assert self.memory.limit_bytes is None or self.booked + spared <= self.memory.limit_bytes
        if not took:
            assert self.memory.limit_bytes is not None
            free = self.memory.limit_bytes - self.booked
            assert free < size - before + spared

    @rule(one=holders, size=sizes)
    def takes_until_all_that_rest_were_asked(self, one: int, size: int) -> None:
        """A refusal is final only after each resting connection was looked at: a few looks at a time."""
        holder = self.holders[one]
        for _ in range(HOLDERS // LOOKS + 2):
            if self.memory.take(holder, size):
                return
        spare = [each for each in self.holders
                 if each.resting and not each.queued and each.booked_bytes and each is not holder]  # fmt: skip
        assert not spare

    @rule(one=holders)
    def rests(self, one: int) -> None:
        holder = self.holders[one]
        if holder.booked_bytes:
            holder.resting = True
            self.memory.resting[holder] = None

    @rule(one=holders)
    def wakes(self, one: int) -> None:
        self.holders[one].resting = False
        self.memory.resting.pop(self.holders[one], None)

    @rule(one=holders, queued=st.booleans())
    def kernel_has_much(self, one: int, queued: bool) -> None:
        self.holders[one].queued = queued

    @rule(one=holders)
    def leaves(self, one: int) -> None:
        self.memory.release(self.holders[one])
        assert not self.holders[one].booked_bytes
        self.holders[one] = Holder()

    @rule(limit=st.sampled_from((0, 100, 500, LIMIT, None)))
    def limit_changes(self, limit: int | None) -> None:
        self.memory.limit_bytes = limit
        self.memory.trim(HOLDERS)
        if self.memory.over:
            left = [each for each in self.holders if each.resting and not each.queued and each.booked_bytes]
            assert not left, "a resting connection kept memory above the limit"

    @invariant()
    def the_books_say_what_is_held(self) -> None:
        assert self.memory.used_bytes == self.booked
        assert all(holder.resting for holder in self.holders if holder in self.memory.resting)


TestKernelMemory = KernelMemoryMachine.TestCase
TestKernelMemory.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
