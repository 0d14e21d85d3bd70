"""Numbers that count, each declared by the module that counts, and the numbers of one proxy by declaration.

Rule: a module declares its counters as constants (`SPILLED = counter("spill_lists", "Lists that ...")`) and counts with
`counters[SPILLED].value += 1`, or `counters[KEPT][reason] += 1` by label. On a hot path the part keeps the number in an
attribute, so that counting costs an attribute assignment: no call and no lock, because everything runs on one event
loop. Whoever knows a number anyway shows it (`counters.show`), and what is made of several is derived
(`counters.derive`). The table of `proxy.app.metrics` lists the declarations.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from proxy.core.errors import DisconnectCause
from proxy.core.instrument import Instrument, Kind, Readings, Unit

PREFIX: Final = "pulsar_proxy_"


class Number:
    """A number of a metric without labels."""

    __slots__ = ("value",)

    def __init__(self, value: float = 0) -> None:
        self.value = value


class Numbers(dict[Any, float]):
    """Numbers by label, or by a tuple of labels; one that was not counted yet is 0."""

    def __missing__(self, label: object) -> float:
        return 0


N = TypeVar("N", Number, Numbers)


@dataclass(frozen=True, slots=True, eq=False)
class Declared(Instrument, Generic[N]):
    """A metric that is counted; `start` makes its numbers for a proxy."""

    start: Callable[[], N]


P = TypeVar("P")


@dataclass(frozen=True, slots=True, eq=False)
class Derived(Instrument, Generic[P]):
    """A metric that is made of what a part keeps anyway, as the part says (`Counters.derive`).

    `read` returns a number, numbers by label, or the durations of a summary; None: not known now. `optional`: without
    the part there is no such metric; others have no samples then.
    """

    read: Callable[[P], Any]
    optional: bool = False


def counter(name: str, text: str, unit: Unit = "") -> Declared[Number]:
    """Declare a counter without labels; `name` is without prefix and `_total`."""
    # Exporters tell whole numbers from others: a sum of seconds has a fraction from the start.
    start = partial(Number, 0.0) if unit == "seconds" else Number
    return Declared(PREFIX + name, "counter", text, start, unit=unit)


def gauge(name: str, text: str, unit: Unit = "") -> Declared[Number]:
    """Declare a gauge without labels."""
    return Declared(PREFIX + name, "gauge", text, Number, unit=unit)


def counter_by(
    labels: str | tuple[str, ...], name: str, text: str, values: Iterable[Any] = (), unit: Unit = ""
) -> Declared[Numbers]:
    """Declare a counter with labels; `values` are exported as 0 until they happen.

    So a rate over them starts at the first event.
    """
    return Declared(PREFIX + name, "counter", text, _numbers(values), labels=_tuple(labels), unit=unit)


def gauge_by(labels: str | tuple[str, ...], name: str, text: str, unit: Unit = "") -> Declared[Numbers]:
    """Declare a gauge with labels; a label without a number is absent."""
    return Declared(PREFIX + name, "gauge", text, Numbers, labels=_tuple(labels), unit=unit)


def _numbers(values: Iterable[Any]) -> Callable[[], Numbers]:
    start = {value if isinstance(value, tuple) else str(value): 0 for value in values}
    return lambda: Numbers(start)


def _tuple(labels: str | tuple[str, ...]) -> tuple[str, ...]:
    return (labels,) if isinstance(labels, str) else labels


def upstream(name: str, text: str, kind: Kind = "counter", better: str = "") -> Declared[Number]:
    """Declare a metric that upstream's proxy has too, exactly under its name."""
    unit: Unit = "bytes" if name.endswith("_bytes") else ""
    created = kind == "counter"
    return Declared(PREFIX + name, kind, text, Number, unit=unit, created=created, better=better, origin="pulsar")


# What several rooms count.
BINARY_BYTES: Final = upstream(
    "binary_bytes",
    "Bytes read from clients, and from brokers for relayed clients.",
    better="always current; upstream's counter moves in steps of a GiB while it splices",
)
ACCEPT_PAUSES: Final = counter("accept_pauses", "Pauses in accepting clients for lack of file descriptors or memory.")
DISCONNECTS: Final = counter_by(
    "cause", "disconnects", "Connections of clients and brokers that ended, by cause.", DisconnectCause
)
INTERNAL_ERRORS: Final = counter_by(
    "where", "internal_errors", "Unexpected exceptions, by part of the proxy; each is in the log."
)


class Counters:
    """The numbers of a proxy since its start; `report` is called with each internal error, to log it.

    `created` is the Unix time at which counting began, None: now.
    """

    __slots__ = ("_numbers", "_parts", "_report", "_shown", "created")

    def __init__(
        self, report: Callable[[BaseException, str], None] | None = None, created: float | None = None
    ) -> None:
        self.created = time.time() if created is None else created
        self._report = report
        self._parts: dict[Derived[Any], Callable[[], Any]] = {}
        self._numbers: dict[Instrument, Any] = {}
        self._shown: dict[Instrument, Callable[[], float | Mapping[str, float]]] = {}

    def __getitem__(self, declared: Declared[N]) -> N:
        found: N | None = self._numbers.get(declared)
        if found is None:
            found = self._numbers[declared] = declared.start()
        return found

    def show(self, declared: Declared[N], read: Callable[[], float | Mapping[str, float]]) -> None:
        """Read a number from now on where its owner keeps it; numbers by label as a mapping."""
        self._shown[declared] = read

    def reading(self, declared: Declared[N]) -> Readings:
        """Return a number for each tuple of label values."""
        shown = self._shown.get(declared)
        return readings(self[declared] if shown is None else shown())

    def derive(self, metrics: Iterable[Derived[P]], part: Callable[[], P | None]) -> None:
        """Read metrics from now on of a part, which is looked at once in a reading of all; None: it is not there."""
        self._parts.update(dict.fromkeys(metrics, part))

    def derived(self, metric: Derived[Any], looked: dict[Callable[[], Any], Any]) -> Any:
        """Return what a metric reads, None without its part; `looked` has the parts that this reading looked at."""
        part = self._parts.get(metric)
        if part is None:
            return None
        if part not in looked:
            looked[part] = part()
        return None if looked[part] is None else metric.read(looked[part])

    def disconnected(self, cause: str) -> None:
        """Count the end of a connection of a client or broker."""
        self[DISCONNECTS][cause] += 1

    def internal_error(self, error: BaseException, where: str) -> None:
        """Count an unexpected exception, and report it."""
        self[INTERNAL_ERRORS][word(where)] += 1
        if self._report is not None:
            self._report(error, where)


def readings(found: "Number | float | Mapping[Any, float]") -> Readings:
    """Return a copy of a number, or of numbers by label, for each tuple of label values."""
    if isinstance(found, Mapping):
        return {label if isinstance(label, tuple) else (label,): number for label, number in found.items()}
    return {(): found.value if isinstance(found, Number) else found}


def word(text: str) -> str:
    """Return a text as one word, for a label."""
    return "_".join("".join(char if char.isalnum() else " " for char in text).lower().split())
