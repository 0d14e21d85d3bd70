"""The bytes of commands that are held for brokers, beside their number (KIP-72, `maxConcurrentLookupRequestMB`).

Rule: a soft limit (`limiter.soft_pool`). A command is served while anything is free and nobody waits. Else its client
is not read, and has its turn: one command, in turns by network, and of a network in the order of coming. Turns come as
quickly as memory and the loop's time allow.

A client with few requests outstanding does not wait for those who filled the limit: beside the limit there is a reserve
for such clients, half of it for networks that hold less than is left. A client that waits with more outstanding joins
them when its answers have come, so nobody starves. Handshakes and PINGs never wait.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from limiter.fair_line import Entry, FairLine
from limiter.soft_pool import PoolRecord, SoftPool
from proxy.core.counters import PREFIX, Derived
from proxy.core.instrument import Kind, Unit
from proxy.core.loop_budget import LoopBudget
from proxy.requests.client import Client

# The reserve is this part of the limit.
RESERVE_OF: Final = 4
# The reserve is for clients that have fewer requests outstanding.
MANY_OUTSTANDING: Final = 2
# Turns of an iteration of the loop, also if its time is spent: behind thousands of busy clients those that have waited
# for memory would wait on.
LEAST_TURNS: Final = 6
# So many networks are judged for one turn, of those in line and of those aside: to look through tens of thousands took
# 30 ms.
MOST_LOOKS: Final = 64


def _of_commands(
    name: str, kind: Kind, text: str, read: Callable[[PoolRecord], float], unit: Unit = ""
) -> Derived[PoolRecord]:
    return Derived(f"{PREFIX}commands_{name}", kind, text, read, unit=unit)


COMMANDS: Final = (
    _of_commands("limit_bytes", "gauge",
                 "Memory for commands that are held for brokers (maxConcurrentLookupRequestMB).",
                 lambda held: held.limit_bytes, "bytes"),
    _of_commands("used_bytes", "gauge", "Bytes of commands that are held for brokers.",
                 lambda held: held.used_bytes, "bytes"),
    _of_commands("muted_connections", "gauge", "Clients that are not read because that memory is used up.",
                 lambda held: held.muted),
    _of_commands("muted_seconds", "counter", "Time that clients have waited for that memory, all added up.",
                 lambda held: held.muted_millis / 1000, "seconds"),
    _of_commands("overshoots", "counter", "Commands that took that memory above its limit.",
                 lambda held: held.overshoots),
    _of_commands("depleted_seconds", "counter", "Time in which nothing of that memory was free.",
                 lambda held: held.depleted_millis / 1000, "seconds"),
)  # fmt: skip


class _Books(SoftPool):
    """The books of a pool with a reserve."""

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

    @property
    def below_limit(self) -> bool:
        """Return whether anything is free without the reserve."""
        return self._used < self._limit

    def has_room(self, network: str) -> bool:
        """Return whether a client of `network` that has few requests outstanding may go on."""
        left = self.left
        return left > self.reserve // 2 or self.networks.get(network, 0) < left

    def change(self, network: str, size: int) -> None:
        """Record that a network holds `size` bytes more."""
        self.book(size)
        held = self.networks.get(network, 0) + size
        if held:
            self.networks[network] = held
        else:
            self.networks.pop(network, None)


class RequestBytes:
    """The pool of a proxy's commands; `limit_bytes` is above 0."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_bytes: int, budget: LoopBudget) -> None:
        self._loop = loop
        self._budget = budget
        self._books = _Books(limit_bytes, loop.time)
        # Clients with few requests outstanding, who have the next turns, and all others; and where each of them waits.
        self._few: FairLine[Entry[Client]] = FairLine()
        self._many: FairLine[Entry[Client]] = FairLine()
        self._waiting: dict[Client, tuple[FairLine[Entry[Client]], Entry[Client]]] = {}
        # Networks that had no room in their turn, which are parked, and how many of them are to be judged again.
        self._aside: OrderedDict[str, None] = OrderedDict()
        self._unjudged = 0
        self._scheduled = False

    def __len__(self) -> int:
        """Count the networks that hold memory, those aside, and the clients that wait."""
        return len(self._books.networks) + len(self._aside) + len(self._waiting)

    @property
    def scarce(self) -> bool:
        """Return whether nothing is free without the reserve, or somebody waits."""
        return self._books.scarce

    def record(self) -> PoolRecord:
        """Return the numbers of the pool."""
        return self._books.record()

    def admits(self, sender: Client) -> bool:
        """Return whether the next command of a client is served at once."""
        if not self.scarce:
            return True
        few = sender.outstanding < MANY_OUTSTANDING
        return few and not self._few and self._books.has_room(sender.network)

    def hold(self, network: str, size: int) -> None:
        """Charge a command of `network` that is served."""
        self._books.change(network, size)

    def release(self, network: str, size: int) -> None:
        """End the charge of a command whose request is over."""
        self._books.change(network, -size)
        if not self._few:
            self._aside.clear()
        if network in self._aside and self._books.has_room(network):
            del self._aside[network]
            self._few.set_parked((network,), parked=False)
        self._unjudged = len(self._aside)
        self._look()

    def wait(self, sender: Client) -> None:
        """Join the line; a second time does nothing."""
        if sender not in self._waiting:
            line = self._few if sender.outstanding < MANY_OUTSTANDING else self._many
            self._waiting[sender] = line, line.push((sender.network,), Entry(sender))
            self._books.wait(1)
            self._look()

    def answered(self, sender: Client) -> None:
        """Called when a client that waits has fewer requests outstanding than before."""
        if sender.outstanding < MANY_OUTSTANDING and sender in self._waiting and self._waiting[sender][0] is self._many:
            self._forget(sender)
            self.wait(sender)

    def leave(self, sender: Client) -> None:
        """Leave the line, if `sender` is in it: the client is gone."""
        if sender in self._waiting:
            self._forget(sender)
            self._look()

    def _forget(self, sender: Client) -> None:
        line, entry = self._waiting.pop(sender)
        line.remove(entry)
        self._books.wait(-1)

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
                    others = self._few.head() is not None or self._unjudged > 0
                    break
                turns += 1
                sender.begin_command_turn()
        finally:
            # The loop reports what a client's turn raises; the others have theirs.
            if others:
                self._look()

    def _take(self) -> Client | None:
        """Take the client whose turn it is out of its line; None if there is none for whom there is room."""
        books = self._books
        if books.left <= 0:
            return None
        self._bring_back()
        line = self._few
        for _ in range(MOST_LOOKS):
            head = line.head()
            if head is None:
                break
            network = head.item.network
            if books.has_room(network):
                return self._admit(line)
            line.set_parked((network,), parked=True)
            self._aside[network] = None
        return self._admit(self._many) if books.below_limit and self._many else None

    def _admit(self, line: FairLine[Entry[Client]]) -> Client:
        sender = line.pop().item
        del self._waiting[sender]
        self._books.wait(-1)
        return sender

    def _bring_back(self) -> None:
        """Judge networks aside again, until one has room: more than one would stand before newcomers in vain."""
        for _ in range(min(MOST_LOOKS, self._unjudged)):
            self._unjudged -= 1
            network, _ = self._aside.popitem(last=False)
            if self._books.has_room(network):
                self._few.set_parked((network,), parked=False)
                return
            self._aside[network] = None
