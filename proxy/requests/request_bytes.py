"""The bytes of commands that are held for brokers, beside their number (KIP-72, `maxConcurrentLookupRequestMB`).

Rule: a soft limit (`limiter.soft_pool`). A command is served while anything is free and nobody waits. Else its client
is not read, and has its turn: one command, in turns by network, and of a network in the order of coming, from a random
place of the line on. Turns come as quickly as memory and the loop's time allow.

A client with few requests outstanding does not wait for those who filled the limit: beside the limit there is a reserve
for such clients, half of it for networks that hold less than is left (both as powers of two). A client that waits with
more outstanding joins them when its answers have come, so nobody starves. Handshakes and PINGs never wait.
"""

import asyncio
import math
import random
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Protocol

from limiter.soft_pool import LocalBooks, PoolLine, PoolRecord
from proxy.core.loop_budget import LoopBudget

# The reserve is this part of the limit.
RESERVE_OF: Final = 4
# The reserve is for clients that have fewer requests outstanding.
MANY_OUTSTANDING: Final = 2
# Turns of an iteration of the loop, also if its time is spent: behind thousands of busy clients those that have waited
# for memory would wait on.
LEAST_TURNS: Final = 6
# So many networks are judged for one turn: many that had room may have lost it at once.
MOST_LOOKS: Final = 64


class CommandSender(Hashable, Protocol):
    """A client that waits (`clients.connection.ClientConnection`)."""

    network: str

    @property
    def outstanding(self) -> int:
        """Count the requests that have no answer yet."""

    def begin_command_turn(self) -> None:
        """Serve one command, and be read on."""


class _Books(LocalBooks):
    """The books of a pool with a reserve: something is free for somebody while any of the reserve is left."""

    __slots__ = ("networks", "reserve")

    def __init__(self, limit_bytes: int, now: Callable[[], float]) -> None:
        super().__init__(limit_bytes, now)
        self.reserve = limit_bytes // RESERVE_OF
        # The bytes of each network that holds any.
        self.networks: dict[str, int] = {}

    @property
    def left(self) -> int:
        """Return what is left of limit and reserve."""
        return self._limit + self.reserve - self._used

    def pool_free(self) -> bool:
        """Return whether anything is left."""
        return self.left > 0

    @property
    def below_limit(self) -> bool:
        """Return whether anything is free without the reserve."""
        return self._used < self._limit

    @property
    def shelves(self) -> float:
        """Return the number of the first shelf without room, for clients that have few requests outstanding."""
        left = self.left
        return math.inf if left > self.reserve // 2 else max(0, left).bit_length()

    def shelf(self, network: str) -> int:
        """Return the number of a network's shelf: what it holds, to a power of two."""
        return self.networks.get(network, 0).bit_length()

    def has_room(self, network: str) -> bool:
        """Return whether a client of `network` that has few requests outstanding may go on."""
        return self.shelf(network) < self.shelves

    def change(self, network: str, size: int) -> None:
        """Record that a network holds `size` bytes more."""
        self.pool_change(0, size)
        held = self.networks.get(network, 0) + size
        if held:
            self.networks[network] = held
        else:
            self.networks.pop(network, None)


class _Turns:
    """Clients that wait in turns by network; those of a network are a line of the pool."""

    __slots__ = ("_books", "_lines", "_ring")

    def __init__(self, books: _Books) -> None:
        self._books = books
        self._lines: dict[str, PoolLine[CommandSender]] = {}
        # The first network has the next turn.
        self._ring: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lines)

    def enter(self, sender: CommandSender) -> None:
        network = sender.network
        line = self._lines.get(network)
        if line is None:
            line = self._lines[network] = PoolLine(self._books, random.randrange)
            self._ring[network] = None
        line.enter(sender)

    def leave(self, sender: CommandSender) -> bool:
        line = self._lines.get(sender.network)
        if line is None or not line.leave(sender):
            return False
        if not line:
            self._forget(sender.network)
        return True

    def next(self) -> CommandSender | None:
        """Take the first client of the next network; None if nobody waits, or nothing is free."""
        if not self._ring:
            return None
        network = next(iter(self._ring))
        line = self._lines[network]
        sender = line.admit()
        if line:
            self._ring.move_to_end(network)
        else:
            self._forget(network)
        return sender

    def _forget(self, network: str) -> None:
        del self._lines[network]
        self._ring.pop(network, None)


class _FewTurns(_Turns):
    """Clients that have few requests outstanding: a network without room in its turn is put aside until it has some.

    Networks aside stand on shelves by what they hold, so nobody looks through all of them: of tens of thousands that
    took 30 ms for each turn. Each step is O(1).
    """

    __slots__ = ("_aside", "_shelves")

    def __init__(self, books: _Books) -> None:
        super().__init__(books)
        # The shelf of each network that is aside, and the networks on each shelf that has any.
        self._aside: dict[str, int] = {}
        self._shelves: dict[int, OrderedDict[str, None]] = {}

    @property
    def pending(self) -> bool:
        """Return whether a network has not had the turn in which it is judged."""
        return bool(self._ring)

    def next(self) -> CommandSender | None:
        """Take the first client of the next network that has room; None if there is none among `MOST_LOOKS`."""
        for _ in range(MOST_LOOKS):
            self._bring_back()
            if not self._ring:
                return None
            network = next(iter(self._ring))
            if self._books.has_room(network):
                return super().next()
            del self._ring[network]
            self._put_aside(network)
        return None

    def changed(self, network: str) -> None:
        """Called when a network holds more or less than before."""
        shelf = self._aside.get(network)
        if shelf is None or shelf == (now := self._books.shelf(network)):
            return
        self._take_back(network)
        if now < shelf:
            self._ring[network] = None
        else:
            self._put_aside(network)

    def _bring_back(self) -> None:
        """Return the turn that it missed to a network that has room by now: the first turn."""
        if self._shelves and (lowest := min(self._shelves)) < self._books.shelves:
            network = next(iter(self._shelves[lowest]))
            self._take_back(network)
            self._ring[network] = None
            self._ring.move_to_end(network, last=False)

    def _put_aside(self, network: str) -> None:
        number = self._aside[network] = self._books.shelf(network)
        self._shelves.setdefault(number, OrderedDict())[network] = None

    def _take_back(self, network: str) -> None:
        number = self._aside.pop(network)
        shelf = self._shelves[number]
        del shelf[network]
        if not shelf:
            del self._shelves[number]

    def _forget(self, network: str) -> None:
        super()._forget(network)
        if network in self._aside:
            self._take_back(network)


class RequestBytes:
    """The pool of a proxy's commands; `limit_bytes` is above 0."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_bytes: int, budget: LoopBudget) -> None:
        self._loop = loop
        self._budget = budget
        self._books = _Books(limit_bytes, loop.time)
        # Clients with few requests outstanding, who have the next turns, and all others.
        self._few, self._many = _FewTurns(self._books), _Turns(self._books)
        self._scheduled = False

    def __len__(self) -> int:
        """Count the networks that hold memory, and those whose clients wait."""
        return len(self._books.networks) + len(self._few) + len(self._many)

    @property
    def scarce(self) -> bool:
        """Return whether nothing is free without the reserve, or somebody waits."""
        return self._books.pool_scarce()

    def record(self) -> PoolRecord:
        """Return the numbers of the pool."""
        return PoolRecord._make(self._books.pool())

    def admits(self, sender: CommandSender) -> bool:
        """Return whether the next command of a client is served at once."""
        if not self.scarce:
            return True
        few = sender.outstanding < MANY_OUTSTANDING
        return few and not self._few and self._books.has_room(sender.network)

    def hold(self, network: str, size: int) -> None:
        """Charge a command of `network` that is served."""
        self._books.change(network, size)
        self._few.changed(network)

    def release(self, network: str, size: int) -> None:
        """End the charge of a command whose request is over."""
        self._books.change(network, -size)
        self._few.changed(network)
        self._look()

    def wait(self, sender: CommandSender) -> None:
        """Join the line; a second time does nothing."""
        (self._few if sender.outstanding < MANY_OUTSTANDING else self._many).enter(sender)
        self._look()

    def answered(self, sender: CommandSender) -> None:
        """Called when a client that waits has fewer requests outstanding than before."""
        if sender.outstanding < MANY_OUTSTANDING and self._many.leave(sender):
            self.wait(sender)

    def leave(self, sender: CommandSender) -> None:
        """Leave the line, if `sender` is in it: the client is gone."""
        if self._few.leave(sender) or self._many.leave(sender):
            self._look()

    def _look(self) -> None:
        books = self._books
        if not self._scheduled and ((self._few and books.left > 0) or (self._many and books.below_limit)):
            self._scheduled = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Begin turns, as many as there is memory for, until the time of this iteration of the loop is spent."""
        self._scheduled = False
        turns, others = 0, True
        try:
            while not self._budget.spent() or turns < LEAST_TURNS:
                sender = self._take()
                if sender is None:
                    # Networks that have not been judged yet may have room.
                    others = self._few.pending
                    break
                turns += 1
                sender.begin_command_turn()
        finally:
            # The loop reports what a client's turn raises; the others have theirs.
            if others:
                self._look()

    def _take(self) -> CommandSender | None:
        books = self._books
        if books.left <= 0:
            return None
        sender = self._few.next()
        if sender is None and books.below_limit:
            sender = self._many.next()
        return sender
