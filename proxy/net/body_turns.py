"""The bodies on their way to one client: the body in progress, and the bodies that wait for their turn behind it."""

from proxy.net.spill.body import SpillableBody


class BodyTurn:
    """A body's turn; `spillable` is the body if it may move to disk, `begun` is set when its write begins."""

    __slots__ = ("begun", "spillable")

    def __init__(self, spillable: SpillableBody | None) -> None:
        self.spillable = spillable
        self.begun = False

    @property
    def holds_memory(self) -> bool:
        """Return whether the body holds direct memory that only its client can give back.

        A list that waits behind another one is about to move to disk if that is needed: its client is not to blame for
        the list's memory, unless the spill has found no place for it.
        """
        body = self.spillable
        return body is None or (body.file is None and (self.begun or body.kept))
