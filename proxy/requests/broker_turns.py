"""Give clients turns in front of each broker, so that requests pipelined by one client do not make all others wait.

A broker connection is one line of questions for all clients of a principal, without authentication for everybody. So no
more than QUESTIONS_AT_A_BROKER lookups are in that line; further lookups wait here, in turns by network, and in each
network by connection: a host that opens many connections has no more turns than before. A turn lasts until the broker
has answered, even if the client has left.

A broker may be slow, and all its places may be taken by one client. So there is a reserve of a quarter more, for
connections with fewer than two questions outstanding at the broker: half of it for all of them, the rest for networks
that have less of it than is left. A connection that finds no room there waits for its turn like all others.
"""

from typing import Final, Generic, NamedTuple, TypeVar

from limiter.fair_line import Entry, FairLine
from proxy.brokers.target import BrokerAddress
from proxy.core.counters import Counters, gauge

# So many answers of a broker in the same data center take some tenths of a second; a thousand questions that take 10 ms
# each are still 100,000 a second.
QUESTIONS_AT_A_BROKER: Final = 1000
# The reserve is this part of them.
RESERVE_OF: Final = 4
# The reserve is for connections that have fewer questions at the broker, or waiting for it.
MANY_OUTSTANDING: Final = 2

T = TypeVar("T")
# The network of a client, and the connection: its id, so that nothing here keeps a client that has left.
Asker = tuple[str, int]
LOOKUPS_WAITING: Final = gauge(
    "lookups_waiting", "Lookups that wait for their turn at a broker: 1,000 at a time, in turns by address."
)


class Turn(NamedTuple):
    """A place at a broker: one of the reserve, or one of those that are given in turns."""

    broker: BrokerAddress
    reserved: bool


class _AtBroker(Generic[T]):
    """The questions at one broker, counted, and those that wait."""

    __slots__ = ("_networks", "_outstanding", "asked", "line", "reserved", "turn", "turn_of_reserve")

    def __init__(self, broker: BrokerAddress) -> None:
        self.turn, self.turn_of_reserve = Turn(broker, reserved=False), Turn(broker, reserved=True)
        # The questions that have a turn, and those that have a place of the reserve.
        self.asked = self.reserved = 0
        self.line: FairLine[Entry[T]] = FairLine()
        # The questions of each connection, those that wait among them.
        self._outstanding: dict[int, int] = {}
        # The places of the reserve that each network has.
        self._networks: dict[str, int] = {}

    @property
    def idle(self) -> bool:
        """Return whether nobody asks, and nobody waits."""
        return not self._outstanding

    def try_begin(self, asker: Asker) -> Turn | None:
        """Take a turn, or else a place of the reserve; None if there is neither."""
        if self.asked < QUESTIONS_AT_A_BROKER:
            self.asked += 1
            self._count(asker)
            return self.turn
        network, connection = asker
        reserve = QUESTIONS_AT_A_BROKER // RESERVE_OF
        left, own = reserve - self.reserved, self._networks.get(network, 0)
        if self._outstanding.get(connection, 0) >= MANY_OUTSTANDING or own >= left <= reserve // 2:
            return None
        self.reserved += 1
        self._networks[network] = own + 1
        self._count(asker)
        return self.turn_of_reserve

    def end(self, turn: Turn, asker: Asker) -> T | None:
        """End a turn; return the waiter that has it next, or None."""
        self._uncount(asker)
        if turn.reserved:
            self.reserved -= 1
            network = asker[0]
            self._networks[network] -= 1
            if not self._networks[network]:
                del self._networks[network]
        elif self.line:
            return self.line.pop().item
        else:
            self.asked -= 1
        return None

    def _count(self, asker: Asker) -> None:
        connection = asker[1]
        self._outstanding[connection] = self._outstanding.get(connection, 0) + 1

    def _uncount(self, asker: Asker) -> None:
        connection = asker[1]
        left = self._outstanding[connection] - 1
        if left:
            self._outstanding[connection] = left
        else:
            del self._outstanding[connection]

    def push(self, asker: Asker, waiter: T) -> Entry[T]:
        """Append a waiter, which counts among the questions of its connection."""
        self._count(asker)
        return self.line.push(asker, Entry(waiter))

    def remove(self, asker: Asker, entry: Entry[T]) -> None:
        """Remove a waiter that has given up, and whose turn has not come."""
        self._uncount(asker)
        self.line.remove(entry)


class BrokerTurns(Generic[T]):
    """The questions at each broker, and the questions that wait for their turn."""

    def __init__(self, counters: Counters) -> None:
        self._waiting = counters[LOOKUPS_WAITING]
        self._at_brokers: dict[BrokerAddress, _AtBroker[T]] = {}

    def __len__(self) -> int:
        """Return the number of brokers that are remembered: those that are asked."""
        return len(self._at_brokers)

    @property
    def asked(self) -> int:
        """Return the number of questions at all brokers."""
        return sum(at.asked + at.reserved for at in self._at_brokers.values())

    def try_begin(self, broker: BrokerAddress, asker: Asker) -> Turn | None:
        """Return a turn for a question of `asker` if there is one now, else None; the caller releases the turn."""
        at = self._at_brokers.get(broker)
        if at is None:
            at = self._at_brokers[broker] = _AtBroker(broker)
        return at.try_begin(asker)

    def wait(self, broker: BrokerAddress, asker: Asker, waiter: T) -> Entry[T]:
        """Put a question of `asker` in line, which `try_begin` gave no turn."""
        self._waiting.value += 1
        return self._at_brokers[broker].push(asker, waiter)

    def give_up(self, broker: BrokerAddress, asker: Asker, entry: Entry[T]) -> None:
        """Remove a question that waits, and whose turn has not come."""
        self._waiting.value -= 1
        self._at_brokers[broker].remove(asker, entry)

    def release(self, turn: Turn, asker: Asker) -> T | None:
        """Release a question's place, and return the question that has the turn next; None: none waits.

        A broker that nobody asks is forgotten: redirects may name any number.
        """
        at = self._at_brokers[turn.broker]
        following = at.end(turn, asker)
        if following is not None:
            self._waiting.value -= 1
        elif at.idle:
            del self._at_brokers[turn.broker]
        return following
