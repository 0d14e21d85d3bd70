"""Give clients turns in front of each broker, so that requests pipelined by one client do not make all others wait.

A broker connection is one line of questions for all clients of a principal, without authentication for everybody. So no
more than QUESTIONS_AT_A_BROKER lookups are in that line; further lookups wait here, in turns by network, and in each
network by connection: a host that opens many connections has no more turns than before. A turn lasts until the broker
has answered, even if the client has left.
"""

from collections import OrderedDict
from typing import Final, Protocol

from proxy.brokers.target import BrokerAddress
from proxy.core.lanes import Lanes
from proxy.requests.counters import RequestCounters

# So many answers of a broker in the same data center take some tenths of a second; a thousand questions that take 10 ms
# each are still 100,000 a second.
QUESTIONS_AT_A_BROKER: Final = 1000

# The network of a client, and the connection: its id, so that nothing here keeps a client that has left.
Asker = tuple[str, int]


class TurnWaiter(Protocol):
    """A question that waits for its turn."""

    def turn_came(self) -> None:
        """Called once, when the question has its turn, which its owner releases."""


class _AtBroker:
    """The questions at one broker, counted, and those that wait: in turns by network, then by connection."""

    __slots__ = ("asked", "waiting")

    def __init__(self) -> None:
        self.asked = 0
        self.waiting: OrderedDict[str, Lanes[TurnWaiter]] = OrderedDict()

    def push(self, asker: Asker, waiter: TurnWaiter) -> None:
        network, connection = asker
        lanes = self.waiting.get(network)
        if lanes is None:
            lanes = self.waiting[network] = Lanes()
        lanes.push(connection, waiter)

    def popleft(self) -> TurnWaiter:
        """Remove and return the waiter whose turn it is."""
        network, lanes = self.waiting.popitem(last=False)
        waiter = lanes.popleft()
        if lanes:
            self.waiting[network] = lanes
        return waiter

    def discard(self, asker: Asker, waiter: TurnWaiter) -> None:
        """Remove a waiter that has given up, unless its turn has come."""
        network, connection = asker
        lanes = self.waiting.get(network)
        if lanes is not None:
            lanes.discard(connection, waiter)
            if not lanes:
                del self.waiting[network]


class BrokerTurns:
    """The questions at each broker, and the questions that wait for their turn."""

    def __init__(self, counters: RequestCounters) -> None:
        self._counters = counters
        self._at_brokers: dict[BrokerAddress, _AtBroker] = {}

    @property
    def asked(self) -> int:
        """Return the number of questions at all brokers."""
        return sum(at.asked for at in self._at_brokers.values())

    def try_begin(self, broker: BrokerAddress) -> bool:
        """Take a turn for a question if that is possible now, else return False; the caller releases the turn."""
        at = self._at_brokers.get(broker)
        if at is None:
            at = self._at_brokers[broker] = _AtBroker()
        if at.asked >= QUESTIONS_AT_A_BROKER:
            return False
        at.asked += 1
        return True

    def wait(self, broker: BrokerAddress, asker: Asker, waiter: TurnWaiter) -> None:
        """Put a question of `asker` in line, which `try_begin` gave no turn."""
        self._counters.lookups_waiting += 1
        self._at_brokers[broker].push(asker, waiter)

    def give_up(self, broker: BrokerAddress, asker: Asker, waiter: TurnWaiter) -> None:
        """Remove a question that waits, and whose turn has not come."""
        self._counters.lookups_waiting -= 1
        self._at_brokers[broker].discard(asker, waiter)

    def release(self, broker: BrokerAddress) -> None:
        """Release a question's place, for the next; forget a broker that nobody asks: redirects may name any number."""
        at = self._at_brokers[broker]
        if at.waiting:
            self._counters.lookups_waiting -= 1
            at.popleft().turn_came()
            return
        at.asked -= 1
        if not at.asked:
            del self._at_brokers[broker]
