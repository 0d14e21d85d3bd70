"""A stream over a topic that is written, rolled over, unloaded, trimmed: an entry is read once, or its loss is told."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pipeline.sources.pulsar.offsets import (
    NOWHERE,
    Ledger,
    Mark,
    PartitionState,
    Position,
    decode,
    encode,
    next_marks,
    ranges,
)

NAMES = ("a", "b", "c")


class Partition:
    """A managed ledger as brokers keep it: the last ledger is open, and is deleted if it is closed empty."""

    def __init__(self, first_ledger: int) -> None:
        self.ledgers = {first_ledger: 0}
        self.last = Position(first_ledger, -1)
        self.written: set[Position] = set()
        self.trimmed: set[Position] = set()
        self.was_in_doubt = False

    @property
    def open(self) -> int:
        return max(self.ledgers)

    def write(self, count: int) -> None:
        for _ in range(count):
            self.last = Position(self.open, self.ledgers[self.open])
            self.ledgers[self.open] += 1
            self.written.add(self.last)

    def roll(self, ledger: int) -> None:
        if not self.ledgers[self.open]:
            self.was_in_doubt |= bool(self.written) and not any(self.ledgers.values())
            del self.ledgers[self.open]
        self.ledgers[ledger] = 0

    def unload(self, ledger: int) -> None:
        self.roll(ledger)
        held = [Position(id, entries - 1) for id, entries in sorted(self.ledgers.items()) if entries]
        self.last = held[-1] if held else Position(ledger, -1)

    def trim(self, count: int) -> None:
        for ledger in sorted(self.ledgers)[:-1][:count]:
            self.trimmed |= {Position(ledger, entry) for entry in range(self.ledgers.pop(ledger))}

    def state(self, name: str) -> PartitionState:
        held = tuple(Ledger(*ledger) for ledger in sorted(self.ledgers.items()))
        return PartitionState(name, held, self.last if self.last.entry >= 0 else NOWHERE)


class TopicMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.next_ledger = 0
        self.partitions: dict[str, Partition] = {}
        self.watched = False
        self.must_tell: set[str] = set()
        self.told: set[str] = set()
        self.marks: dict[str, Mark] = {}
        self.read: dict[str, list[Position]] = {name: [] for name in NAMES}

    def ledger(self) -> int:
        self.next_ledger += 2
        return self.next_ledger

    def states(self) -> dict[str, PartitionState]:
        return {name: partition.state(name) for name, partition in self.partitions.items()}

    @initialize(watched=st.booleans())
    def begin(self, watched: bool) -> None:
        self.watched = watched
        self.add()
        self.marks = {name: Mark(state.beginning) for name, state in self.states().items()}

    @rule()
    def add(self) -> None:
        if len(self.partitions) < len(NAMES):
            self.partitions[NAMES[len(self.partitions)]] = Partition(self.ledger())

    @rule(which=st.integers(0, 2), count=st.integers(1, 5))
    def write(self, which: int, count: int) -> None:
        self.one(which).write(count)

    @rule(which=st.integers(0, 2))
    def roll(self, which: int) -> None:
        self.one(which).roll(self.ledger())
        self.look()

    @rule(which=st.integers(0, 2))
    def unload(self, which: int) -> None:
        self.one(which).unload(self.ledger())
        self.look()

    @rule(which=st.integers(0, 2), count=st.integers(1, 3))
    def trim(self, which: int, count: int) -> None:
        partition = self.one(which)
        before = set(partition.trimmed)
        partition.trim(count)
        mark = self.marks.get(NAMES[which % len(self.partitions)])
        if mark and mark.position != NOWHERE and any(entry > mark.position for entry in partition.trimmed - before):
            self.must_tell.add(NAMES[which % len(self.partitions)])
        self.look()

    @rule(limit=st.integers(1, 9))
    def batch(self, limit: int) -> None:
        states = self.states()
        # As they come back from a checkpoint.
        start = decode(encode(self.marks))
        self.told |= {name for name, mark in start.items() if states[name].lost(mark)}
        end = next_marks(states, start, limit)
        read = 0
        for part in ranges(start, end, states):
            entries = [
                Position(ledger, entry)
                for ledger, count in sorted(self.partitions[part.name].ledgers.items())
                for entry in range(count)
                if part.start < Position(ledger, entry) <= part.end
            ]
            assert {entry.ledger for entry in entries} == set(part.ledgers)
            self.read[part.name] += entries
            read += len(entries)
        assert read <= max(limit, len(states))
        self.marks = end

    def look(self) -> None:
        """Run a batch in partitions of which all was read, as a stream does all the time."""
        if self.watched:
            states = self.states()
            lost = {name for name, mark in self.marks.items() if states[name].lost(mark)}
            self.told |= lost
            done = {name for name, mark in self.marks.items() if not states[name].entries_after(mark.position)}
            self.marks = next_marks({name: states[name] for name in lost | done}, self.marks, 1)

    def one(self, which: int) -> Partition:
        return self.partitions[NAMES[which % len(self.partitions)]]

    @invariant()
    def every_entry_is_read_at_most_once_and_in_order(self) -> None:
        for positions in self.read.values():
            assert positions == sorted(set(positions))

    def teardown(self) -> None:
        """Read the rest: what was not read was trimmed, and a gap said so."""
        for _ in range(2):
            self.batch(10_000)
        for name, partition in self.partitions.items():
            missing = partition.written - set(self.read[name])
            assert missing <= partition.trimmed
            told = name in self.told
            assert told or name not in self.must_tell
            assert missing or not told or not self.watched or partition.was_in_doubt


TestTopic = TopicMachine.TestCase
