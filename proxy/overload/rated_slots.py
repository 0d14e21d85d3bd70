"""The slots whose rate the adaptive throttle limits: a slot may get another topic, and has to lose its rate then."""

from collections.abc import Iterable, Mapping


class RatedSlots:
    """The slots that have a rate, by the topic that it was meant for; `topics` counts each topic once."""

    __slots__ = ("_names", "_slots")

    def __init__(self, slots: Mapping[int, str] | None = None) -> None:
        self._slots: dict[int, str] = {}
        self._names: dict[str, int] = {}
        for slot, name in (slots or {}).items():
            self.put(slot, name)

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

    def items(self) -> Iterable[tuple[int, str]]:
        """Return slots and topics."""
        return self._slots.items()
