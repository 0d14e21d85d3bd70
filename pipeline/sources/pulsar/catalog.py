"""The state of a topic: its partitions, their ledgers and ends, from the admin interface, or else from a reader.

Rule: nothing here leaves a trace in the cluster: no subscription, and no topic that was not there before, as far as the
cluster lets us tell (a client that asks a broker about a topic may create it; the admin interface does not).

Without the admin interface only the last entry of a partition is known, from a reader at its end: ranges go always to
that end (no bound by events), and trimmed ledgers go unnoticed.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import pulsar

from pipeline.sources.pulsar.admin import Admin, NotFoundError, topic_path
from pipeline.sources.pulsar.client import connected, reading
from pipeline.sources.pulsar.errors import TopicError
from pipeline.sources.pulsar.offsets import NOWHERE, Ledger, PartitionState, Position, States
from pipeline.sources.pulsar.options import PulsarSettings

_Answer = TypeVar("_Answer")

_THREADS: Final = 8
# Partitions whose entries are looked at to tell how many events one holds; the others are taken to be like them.
_SAMPLED: Final = 16
_SAMPLES: Final = 8
_ROWS: Final = "X-Pulsar-num-batch-message"


class Catalog:
    """Ask a broker about a topic, by readers, whose cursors end with them; each call raises TopicError."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._settings = settings

    def states(self) -> dict[str, PartitionState]:
        """Return the state of every partition that exists now."""
        found = {}
        with connected(self._settings) as client:
            for name in client.get_topic_partitions(self._settings.topic):
                index = -1 if name == self._settings.topic else int(name.rpartition("-partition-")[2])
                # At its end: what it reads first is the last message there is.
                last = self._first(reading(client, name, pulsar.MessageId.latest, self._settings))
                found[name] = PartitionState(name, index, None, last or NOWHERE)
        return found

    def since(self, states: States, millis: int) -> dict[str, Position]:
        """Return, for each partition, the position before the first message published at `millis` or later."""
        found = {}
        with connected(self._settings) as client:
            for name, state in states.items():
                reader = reading(client, name, pulsar.MessageId.earliest, self._settings)
                reader.seek(millis)
                first = self._first(reader)
                found[name] = state.end if first is None else Position(first.ledger, first.entry - 1)
        return found

    def rows_per_entry(self, states: States, starts: Mapping[str, Position], max_rows: int) -> dict[str, float]:
        """Estimate how many messages an entry holds of those that come next, up to `max_rows`, for each partition.

        Every one of `starts`, of which there is one at least, has unread entries.
        """
        # Without the admin interface there is no bound that this would serve.
        return dict.fromkeys(starts, 1.0)

    def _first(self, reader: pulsar.Reader) -> Position | None:
        if not reader.has_message_available():
            return None
        try:
            place = reader.read_next(self._settings.read_timeout_seconds * 1000).message_id()
        except pulsar.Timeout:
            # The last entry is none of a producer's, or was trimmed: there is nothing to read.
            return None
        return Position(place.ledger_id(), place.entry_id())


class AdminCatalog(Catalog):
    """Ask the admin interface."""

    def __init__(self, settings: PulsarSettings) -> None:
        super().__init__(settings)
        self._admin = Admin(settings)

    def states(self) -> dict[str, PartitionState]:
        """Return the state of every partition that the cluster has statistics of; raises TopicError without a topic."""
        topic = self._settings.topic
        try:
            count = self._admin.get(f"{topic_path(topic)}/partitions")["partitions"]
            if not count:
                return {topic: state_of(topic, -1, self._admin.get(f"{topic_path(topic)}/internalStats"))}
            every = self._admin.get(f"{topic_path(topic)}/partitioned-internalStats")["partitions"]
        except NotFoundError as error:
            raise TopicError(
                f"{topic} does not exist: {error}; create it with `pulsar-proxy-pipeline init-topic`"
            ) from None
        names = {f"{topic}-partition-{index}": index for index in range(count)}
        return {name: state_of(name, index, every[name]) for name, index in names.items() if name in every}

    def since(self, states: States, millis: int) -> dict[str, Position]:
        def find(name: str) -> Position:
            try:
                got = self._admin.get(f"{topic_path(name)}/messageid/{millis}")
            except NotFoundError:
                return states[name].end
            return states[name].before(Position(got["ledgerId"], got["entryId"]))

        return _in_parallel(find, states)

    def rows_per_entry(self, states: States, starts: Mapping[str, Position], max_rows: int) -> dict[str, float]:
        sampled = sorted(starts, key=lambda name: -states[name].entries_after(starts[name]))[:_SAMPLED]
        seen = _in_parallel(lambda name: self._mean_rows(states[name], starts[name], max_rows), sampled)
        mean = sum(seen.values()) / len(seen)
        return {name: seen.get(name, mean) for name in starts}

    def _mean_rows(self, state: PartitionState, start: Position, max_rows: int) -> float:
        rows = [self._rows(state.name, state.unread_entry(start, 1))]
        # Entries far behind say nothing of this batch: proxies send full entries under load, and single events else.
        reach = max(1, min(state.entries_after(start), max_rows // rows[0]))
        places = {1 + (reach - 1) * step // (_SAMPLES - 1) for step in range(1, _SAMPLES)} - {1}
        rows += [self._rows(state.name, state.unread_entry(start, place)) for place in places]
        return sum(rows) / len(rows)

    def _rows(self, name: str, at: Position) -> int:
        try:
            headers = self._admin.headers(f"{topic_path(name)}/ledger/{at.ledger}/entry/{at.entry}")
        except (NotFoundError, TopicError):
            # Trimmed meanwhile, or a role that may not look at messages: then the bound is on entries.
            return 1
        return max(1, int(headers.get(_ROWS, "1")))


def _in_parallel(do: Callable[[str], _Answer], names: Iterable[str]) -> dict[str, _Answer]:
    names = list(names)
    with ThreadPoolExecutor(_THREADS) as pool:
        return dict(zip(names, pool.map(do, names), strict=True))


def state_of(name: str, index: int, stats: Mapping[str, Any]) -> PartitionState:
    """Read what the admin interface says of a partition (`internalStats`)."""
    last = Position(*map(int, stats["lastConfirmedEntry"].split(":")))
    ledgers = []
    for ledger in stats["ledgers"]:
        # The one that is written to says 0 until it is closed.
        entries = last.entry + 1 if ledger["ledgerId"] == last.ledger else ledger["entries"]
        ledgers.append(Ledger(ledger["ledgerId"], 0 if ledger["ledgerId"] > last.ledger else entries))
    ledgers.sort()
    filled = [Position(ledger.id, ledger.entries - 1) for ledger in ledgers if ledger.entries]
    return PartitionState(name, index, tuple(ledgers), last if last.entry >= 0 else (filled or [NOWHERE])[-1])


def open_catalog(settings: PulsarSettings) -> Catalog:
    """Return the catalog that the settings allow."""
    return AdminCatalog(settings) if settings.admin_url else Catalog(settings)
