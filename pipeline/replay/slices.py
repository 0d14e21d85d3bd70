"""Read a slice of `replay_input` without Spark, and make traces of it: what a task on a work item does first.

The traces of a load and a fleet are made here, too (`times`, `of_replica`).
Rule: memory is that of one window and its warm-up. Names become small numbers here, once for each slice.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from pipeline.core.model import Fairness, Int32s, Int64s, Trace

_NUMBERS: Final = tuple(field.name for field in fields(Trace) if field.type is Int64s)
_NAMES: Final = ("question", "client", "broker", "principal", "tenant", "namespace")
_RECORDED: Final = ("recorded_outcome", "recorded_wait_us", "recorded_memory_wait_us")
COLUMNS: Final = (*_NUMBERS, *_NAMES, *_RECORDED)


@dataclass(frozen=True, slots=True)
class Slice:
    """Requests of one proxy in the order of arrival; the first `warm_up` of them are history, and not counted."""

    numbers: dict[str, Int64s]
    names: dict[str, Int64s]
    recorded_outcome: Int64s
    recorded_wait_us: Int64s
    recorded_memory_wait_us: Int64s
    warm_up: int

    def __len__(self) -> int:
        return len(self.recorded_outcome)

    @property
    def counted(self) -> int:
        return len(self) - self.warm_up

    def trace(self, fairness: Fairness) -> Trace:
        """Make the trace for that fairness; arrivals count from the first."""
        arrival = self.numbers["arrival_us"]
        start = arrival[0] if len(arrival) else 0
        by = "client" if fairness == "connection" else fairness
        share = np.zeros(len(self), np.int32) if by == "fifo" else _codes(self.names[by])
        others = {name: self.numbers[name] for name in _NUMBERS if name != "arrival_us"}
        return Trace(
            arrival_us=arrival - start,
            question=_codes(self.names["question"]),
            share=share,
            client=_codes(self.names["client"]),
            broker=_codes(self.names["broker"]),
            **others,
        )

    def times(self, load: int) -> "Slice":
        """Return so many times the clients: each asks what a recorded one asked, when it asked.

        The clients of a copy share answers among themselves as the recorded ones did, and with no other copy: they are
        taken to ask for namespaces of their own, which takes more memory than to share.
        """
        if load == 1:
            return self
        repeated = self._each(lambda values: np.repeat(values, load), self.warm_up * load)
        # Hashes again, and those of the first copy as they are.
        copy = np.tile(np.arange(load, dtype=np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15), len(self))
        others = {name: (repeated.names[name].view(np.uint64) ^ copy).view(np.int64) for name in ("client", "question")}
        return replace(repeated, names=repeated.names | others)

    def of_replica(self, replica: int, fleet: int) -> "Slice":
        """Return what one of `fleet` proxies sees of it: a connection is on one of them, for good."""
        if fleet == 1:
            return self
        # The upper bits of the hashes: their remainders are fair for any fleet.
        mine = (self.names["client"].view(np.uint64) >> np.uint64(17)) % np.uint64(fleet) == replica
        return self._each(lambda values: values[mine], int(np.count_nonzero(mine[: self.warm_up])))

    def _each(self, change: Callable[[Int64s], Int64s], warm_up: int) -> "Slice":
        """Return the slice with all its columns changed alike."""
        return Slice(
            {name: change(values) for name, values in self.numbers.items()},
            {name: change(values) for name, values in self.names.items()},
            change(self.recorded_outcome),
            change(self.recorded_wait_us),
            change(self.recorded_memory_wait_us),
            warm_up,
        )


def read_slice(path: str, proxy_id: str, warm_us: int, start_us: int, end_us: int) -> Slice:
    """Read the requests of a proxy that came from `warm_us` to before `end_us`; those before `start_us` warm up."""
    arrival = ds.field("arrival_us")
    wanted = (ds.field("proxy_id") == proxy_id) & (arrival >= warm_us) & (arrival < end_us)
    return slice_of(_dataset(path).to_table(columns=list(COLUMNS), filter=wanted), warm_us, start_us, end_us)


def slice_of(table: pa.Table, warm_us: int, start_us: int, end_us: int) -> Slice:
    """Make a slice of rows of `replay_input` that are sorted by arrival."""
    arrival = table.column("arrival_us").to_numpy()
    first, counted, last = (int(each) for each in np.searchsorted(arrival, [warm_us, start_us, end_us]))
    columns = {name: table.column(name).to_numpy()[first:last] for name in COLUMNS}
    return Slice(
        {name: columns[name] for name in _NUMBERS},
        {name: columns[name] for name in _NAMES},
        columns["recorded_outcome"].astype(np.int64),
        columns["recorded_wait_us"],
        columns["recorded_memory_wait_us"],
        counted - first,
    )


def batches_of(path: str, proxy_id: str) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield the arrivals of a proxy, and which limits were in force, batch by batch in their order."""
    wanted = ds.field("proxy_id") == proxy_id
    scanner = _dataset(path).scanner(columns=["arrival_us", "limits_id"], filter=wanted, use_threads=False)
    for batch in scanner.to_batches():
        yield batch.column(0).to_numpy(), batch.column(1).to_numpy()


def _dataset(path: str) -> ds.Dataset:
    # Left to guess, it would take a proxy whose name has digits only for a number.
    named = ds.partitioning(pa.schema([("proxy_id", pa.string())]), flavor="hive")
    return ds.dataset(path, format="parquet", partitioning=named)


def _codes(names: Int64s) -> Int32s:
    """Replace names by numbers, in the order of their first appearance."""
    codes, _ = pd.factorize(names)
    return codes.astype(np.int32)
