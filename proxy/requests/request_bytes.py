"""The bytes of commands that are held for brokers, beside their number (KIP-72, `maxConcurrentLookupRequestMB`).

Rule: a soft limit (`limiter.soft_pool`). A command is served while anything is free and nobody waits. Else its client
is not read, and has its turn: one command, in the order of coming, from a random place of the line on. Handshakes and
PINGs never wait.
"""

import asyncio
import random
from collections.abc import Hashable
from typing import Protocol

from limiter.soft_pool import LocalBooks, PoolLine, PoolRecord


class CommandSender(Hashable, Protocol):
    """A client that waits (`clients.connection.ClientConnection`)."""

    def begin_command_turn(self) -> None:
        """Serve one command, and be read on."""


class RequestBytes:
    """The pool of a proxy's commands; `limit_bytes` is above 0."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_bytes: int) -> None:
        self._loop = loop
        self._books = LocalBooks(limit_bytes, loop.time)
        self._line: PoolLine[CommandSender] = PoolLine(self._books, random.randrange)
        self._scheduled = False

    @property
    def scarce(self) -> bool:
        """Return whether nothing is free, or somebody waits."""
        return self._books.pool_scarce()

    def record(self) -> PoolRecord:
        """Return the numbers of the pool."""
        return PoolRecord._make(self._books.pool())

    def hold(self, size: int) -> None:
        """Charge a command that is served."""
        self._books.pool_change(0, size)

    def release(self, size: int) -> None:
        """End the charge of a command whose request is over."""
        self._books.pool_change(size, 0)
        self._look()

    def wait(self, sender: CommandSender) -> None:
        """Join the line; a second time does nothing."""
        self._line.enter(sender)

    def leave(self, sender: CommandSender) -> None:
        """Leave the line, if `sender` is in it: the client is gone."""
        if self._line.leave(sender):
            self._look()

    def _look(self) -> None:
        if self._line and not self._scheduled and self._books.pool_free():
            self._scheduled = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        """Begin one turn in an iteration of the loop."""
        self._scheduled = False
        sender = self._line.admit()
        if sender is not None:
            sender.begin_command_turn()
            self._look()
