"""Give clients turns in front of each broker, so that requests pipelined by one client do not make all others wait.

A broker connection is one line of questions for all clients of a principal, without authentication for everybody. So no
more than QUESTIONS_AT_A_BROKER lookups are in that line; further lookups wait here, in turns by connection. A turn
lasts until the broker has answered, even if the client has left.
"""

from collections.abc import Hashable
from typing import Final

from limiter.clock import Clock
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.brokers.target import BrokerAddress
from proxy.requests.counters import RequestCounters

# So many answers of a broker in the same data center take some tenths of a second; a thousand questions that take 10 ms
# each are still 100,000 a second.
QUESTIONS_AT_A_BROKER: Final = 1000


class BrokerTurns:
    """The questions at each broker, and the questions that wait for their turn."""

    def __init__(self, clock: Clock, counters: RequestCounters) -> None:
        self._clock = clock
        self._counters = counters
        self._at_brokers: dict[BrokerAddress, AsyncSemaphore] = {}

    @property
    def asked(self) -> int:
        """Return the number of questions at all brokers."""
        return sum(turns.held for turns in self._at_brokers.values())

    async def begin(self, broker: BrokerAddress, asker: Hashable, longest_seconds: float) -> "Turn":
        """Return a turn for a question of `asker`; the caller releases it. Raises PermitAcquireError after the wait."""
        turns = self._at_brokers.get(broker)
        if turns is None:
            turns = AsyncSemaphore(
                "lookups at a broker",
                QUESTIONS_AT_A_BROKER,
                max_queue=0,
                timeout_seconds=longest_seconds,
                clock=self._clock,
            )
            self._at_brokers[broker] = turns
        permit = turns.try_acquire(1, key=asker)
        if permit is not None:
            return Turn(self, broker, permit)
        # Sharing costs something: nobody pays until a question has to wait.
        turns.set_sharing(True, 100)
        self._counters.lookups_waiting += 1
        try:
            return Turn(self, broker, await turns.acquire(1, key=asker, timeout_seconds=longest_seconds))
        finally:
            self._counters.lookups_waiting -= 1

    def forget_idle(self, broker: BrokerAddress) -> None:
        """Forget a broker that nobody asks: redirects may name any number of brokers."""
        turns = self._at_brokers[broker]
        if not turns.held and not turns.queue_size:
            del self._at_brokers[broker]


class Turn:
    """A question's place at a broker, released once."""

    __slots__ = ("_broker", "_permit", "_turns")

    def __init__(self, turns: BrokerTurns, broker: BrokerAddress, permit: Permit) -> None:
        self._turns = turns
        self._broker = broker
        self._permit = permit

    def release(self) -> None:
        """Release the place, for the next question."""
        self._permit.release()
        self._turns.forget_idle(self._broker)
