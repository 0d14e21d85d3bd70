"""The memory for commands as a state machine: clients of several networks ask, get answers and leave in any order.

The model keeps what each client holds and who waits; it says when somebody must not wait any more.
"""

from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proxy.core.loop_budget import LoopBudget
from proxy.requests.request_bytes import MANY_OUTSTANDING, RESERVE_OF, RequestBytes

LIMIT = 200
RESERVE = LIMIT // RESERVE_OF
LARGEST = 60
NETWORKS = 3
CLIENTS = 9
clients = st.integers(0, CLIENTS - 1)


class Sender:
    """A client with commands of `size` bytes, as many as it is told to send."""

    def __init__(self, machine: "RequestBytesMachine", number: int) -> None:
        self.machine = machine
        self.network = f"192.0.2.{number % NETWORKS}"
        self.held: list[int] = []
        self.unserved: list[int] = []
        self.waits = False

    @property
    def outstanding(self) -> int:
        return len(self.held)

    def go_on(self) -> None:
        """Serve what may be served, as a connection does with the frames that it has."""
        while self.unserved and not self.waits:
            if self.machine.bytes.admits(self):
                self.serve()
            else:
                self.waits = True
                self.machine.bytes.wait(self)

    def serve(self) -> None:
        size = self.unserved.pop(0)
        self.held.append(size)
        self.machine.bytes.hold(self.network, size)

    def begin_command_turn(self) -> None:
        assert self.waits
        self.waits = False
        self.serve()
        self.go_on()


class RequestBytesMachine(RuleBasedStateMachine):
    """Requests of clients, with answers and ends; `runs` is the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.soon: list[Any] = []
        loop: Any = SimpleNamespace(time=lambda: 0.0, call_soon=self.soon.append)
        self.now = 0.0
        self.bytes: Any = RequestBytes(loop, LIMIT, LoopBudget(loop, lambda: self.now))
        self.senders = [Sender(self, number) for number in range(CLIENTS)]

    @property
    def used(self) -> int:
        return sum(sum(sender.held) for sender in self.senders)

    @rule(one=clients, sizes=st.lists(st.integers(1, LARGEST), min_size=1, max_size=4))
    def asks(self, one: int, sizes: list[int]) -> None:
        self.senders[one].unserved += sizes
        self.senders[one].go_on()

    @rule(one=clients)
    def is_answered(self, one: int) -> None:
        sender = self.senders[one]
        if sender.held:
            self.bytes.release(sender.network, sender.held.pop(0))
            self.bytes.answered(sender)

    @rule(one=clients)
    def leaves(self, one: int) -> None:
        """The broker goes on with what it was asked."""
        sender = self.senders[one]
        sender.unserved.clear()
        if sender.waits:
            sender.waits = False
            self.bytes.leave(sender)

    @rule(seconds=st.sampled_from((0.0, 1.0)))
    def runs(self, seconds: float) -> None:
        """Run an iteration of the loop, which is busy if the clock goes on in it."""
        ready, self.soon[:] = list(self.soon), []
        self.now += seconds
        for function in ready:
            function()

    @precondition(lambda self: any(sender.waits for sender in self.senders))
    @rule()
    def everybody_is_served_in_the_end(self) -> None:
        for _ in range(1000):
            self.runs(0.0)
            for one in range(CLIENTS):
                self.is_answered(one)
        assert not any(sender.waits or sender.unserved or sender.held for sender in self.senders)
        assert len(self.bytes) == 0
        assert not self.bytes.scarce

    @precondition(lambda self: any(sender.waits for sender in self.senders))
    @rule()
    def a_wait_is_no_busy_loop(self) -> None:
        for _ in range(100):
            self.runs(0.0)
        assert not self.soon

    @invariant()
    def books_are_right(self) -> None:
        record = self.bytes.record()
        assert record.used_bytes == self.used < LIMIT + RESERVE + LARGEST
        assert record.muted == sum(sender.waits for sender in self.senders)

    @invariant()
    def nobody_waits_without_a_reason(self) -> None:
        """When the loop has nothing to do, memory is used up for all who wait."""
        waiting = [sender for sender in self.senders if sender.waits]
        if self.soon or not waiting:
            return
        assert self.used >= LIMIT
        left = max(0, LIMIT + RESERVE - self.used)
        for sender in waiting:
            if sender.outstanding < MANY_OUTSTANDING:
                assert left <= RESERVE // 2
                network = sum(sum(other.held) for other in self.senders if other.network == sender.network)
                # Both as powers of two: a network with 16 of 25 bytes left has no room.
                assert network.bit_length() >= left.bit_length()


TestRequestBytes = RequestBytesMachine.TestCase
TestRequestBytes.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
