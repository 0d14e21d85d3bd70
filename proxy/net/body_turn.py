"""A body on its way to one client, and the share of memory of a client that has not shown that it reads."""

from typing import Protocol

from proxy.net.spill.body import SpillableBody


class ReaderShare(Protocol):
    """The share of memory of an answer whose reader was not proven when the answer got its memory."""

    @property
    def held(self) -> bool:
        """Return whether the answer has a share now."""

    def proven(self) -> None:
        """Called when the client has shown that it reads."""

    def stands(self) -> None:
        """Called each second while the client stands still with the answer unsent."""


class BodyTurn:
    """A body on its way to the client, in progress (`begun`) or behind another; `spillable` if it may move to disk."""

    __slots__ = ("_turns", "begun", "spillable")

    def __init__(self, turns: dict["BodyTurn", None], spillable: SpillableBody | None) -> None:
        self._turns = turns
        self.spillable = spillable
        self.begun = False

    def __enter__(self) -> "BodyTurn":
        self._turns[self] = None
        return self

    def __exit__(self, *_: object) -> None:
        del self._turns[self]

    @property
    def holds_memory(self) -> bool:
        """Return whether the body holds direct memory that only its client can give back.

        A list that waits behind another one is about to move to disk if that is needed: its client is not to blame for
        the list's memory, unless the spill has found no place for it.
        """
        body = self.spillable
        return body is None or (body.file is None and (self.begun or body.kept))
