"""The slots whose rate the adaptive throttle limits: a slot may get another topic, and has to lose its rate then."""

from collections.abc import Iterator


class RatedSlots:
    """The slots that have a rate, by the topic that it was meant for; `topics` counts each topic once.

    A slot whose rate began between two passes is `begun`, until a pass shows that its topic still has the slot.
    """

    __slots__ = ("_begun", "_due", "_names", "_slots")

    def __init__(self) -> None:
        self._slots: dict[int, str] = {}
        self._names: dict[str, int] = {}
        self._begun: dict[int, str] = {}
        # The slots that began before the pass that goes on, and that the pass has not shown yet.
        self._due: dict[int, str] = {}

    def __contains__(self, slot: int) -> bool:
        return slot in self._slots

    @property
    def topics(self) -> int:
        """Return how many topics have a rate."""
        return len(self._names)

    def get(self, slot: int) -> str | None:
        """Return the topic of a slot."""
        return self._slots.get(slot)

    def put(self, slot: int, name: str) -> None:
        """Record the rate of a slot."""
        if self._slots.get(slot) == name:
            return
        self.pop(slot)
        self._slots[slot] = name
        self._names[name] = self._names.get(name, 0) + 1

    def begin(self, slot: int, name: str) -> None:
        """Record the rate of a slot that no pass has shown since the topic got the slot."""
        self.put(slot, name)
        self._begun[slot] = name

    def begin_pass(self) -> None:
        """Begin a pass over all slots that have a topic."""
        # A pass that ended early left slots of its own.
        self._due = self._due | self._begun if self._due else self._begun
        self._begun = {}

    def shown(self, slot: int, name: str) -> bool:
        """Record that a topic has a slot in this pass; return whether the rate began with the slot, since the last."""
        return self._due.pop(slot, None) == name == self._slots.get(slot)

    def not_shown(self) -> Iterator[tuple[int, str]]:
        """Forget the rates of slots that were freed before a pass came to them; yield the slots and their topics."""
        while self._due:
            slot, name = self._due.popitem()
            if self._slots.get(slot) == name and slot not in self._begun:
                self.pop(slot)
                yield slot, name

    def pop(self, slot: int) -> None:
        """Forget the rate of a slot."""
        name = self._slots.pop(slot, None)
        if name is not None:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]

    def popitem(self) -> tuple[int, str]:
        """Forget the rate of any slot; return the slot and its topic."""
        slot, name = self._slots.popitem()
        self._slots[slot] = name
        self.pop(slot)
        return slot, name

    def __len__(self) -> int:
        return len(self._slots)
