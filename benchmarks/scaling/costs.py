"""Costs of a connection, a request, a byte and a name: measured, and each cost with the file it comes from.

Three loads of the ladder give the proxy's costs. A list of 100 names and a list of 10,000, a namespace each, lie on a
line: its beginning is the fixed part of a request, its slope the bytes, read and written. A list that 5,000 clients ask
for at once is read twice and written 5,000 times: what a client costs there above the fixed part is the writing.
"""

from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from benchmarks.ladder.results import load
from benchmarks.scaling.model import BYTES_BESIDE_A_NAME, Costs

SMALL_NAMES: Final = 100
LARGE_NAMES: Final = 10_000
NAME_BYTES: Final = 100
# Without an event log and with an event log into files.
ROW: Final = "04"
ROW_WITH_EVENTS: Final = "04e"


@dataclass(frozen=True, slots=True)
class Measured:
    """A cost in seconds of a processor, what it is paid for, and where the figure comes from."""

    what: str
    seconds: float
    per: str
    source: str


@dataclass(frozen=True, slots=True)
class CostSheet:
    """All costs of a deployment, and the same as values of the model."""

    rows: tuple[Measured, ...]
    costs: Costs


def sheet(*, tls: bool = False) -> CostSheet:
    """Return what proxies and brokers cost; brokers are real ones."""
    rows = (_connect_tls() if tls else _connect(), *_lists(ROW, tls=tls), _name())
    return CostSheet(rows, Costs(*(row.seconds for row in rows)))


def of_the_real_run(found: dict[str, Any]) -> Costs:
    """Return the costs of the machine of `real.py`: its proxies write event logs, its broker and clients are fakes.

    The costs of the broker and of the clients come from its runs with one proxy; they say nothing about the product.
    """
    proxy = [row.seconds for row in _lists(ROW_WITH_EVENTS)]
    return Costs(_connect().seconds, *proxy, **found["fakes"])


def _lists(row: str, *, tls: bool = False) -> tuple[Measured, Measured, Measured]:
    small, large = _processor("event-price-small", row), _processor("event-price", row)
    bytes_of = [names * (NAME_BYTES + BYTES_BESIDE_A_NAME) for names in (SMALL_NAMES, LARGE_NAMES)]
    fixed = small - (large - small) / (bytes_of[1] - bytes_of[0]) * bytes_of[0]
    write = _write("tls-lists-equal" if tls else "lists-equal", fixed, bytes_of[1])
    read = (large - fixed) / bytes_of[1] - _write("lists-equal", fixed, bytes_of[1]).seconds
    source = f"row {row} of event-price-small, event-price"
    return (
        Measured("a request and its answer, without their bytes", fixed, "request", source),
        Measured(
            "a byte read from a broker, admitted and decoded",
            read,
            "byte",
            f"event-price, row {row}, without the writing",
        ),
        write,
    )


def _write(name: str, fixed: float, size: int) -> Measured:
    runs = _result(name)["rows"][ROW]["runs"]
    seconds = median(run["seconds_to_end"] / run["answered"] for run in runs) - fixed
    what = "a byte sealed and written to a client" if name.startswith("tls") else "a byte written to a client"
    return Measured(what, seconds / size, "byte", f"{name}, of its whole time")


def _connect() -> Measured:
    connect = _result("scaling-real")["connect"]
    seconds = connect["proxy_seconds"] / connect["clients"]
    return Measured("a connection: accept, CONNECT, CONNECTED", seconds, "client", "scaling-real, connect")


def _connect_tls() -> Measured:
    runs = _result("tls-connects")["rows"][ROW]["runs"]
    seconds = median(run["seconds_to_end"] / run["answered"] for run in runs)
    return Measured("a connection with its TLS handshake", seconds, "client", "tls-connects, of its whole time")


def _name() -> Measured:
    found = _result("real-broker")
    row = found["rows"]["distinct"]
    names = row["answered"] * found["effort"]["partitions"]
    return Measured(
        "a name that a broker lists", row["seconds"] / names, "name", "real-broker, distinct, of its whole time"
    )


def _result(name: str) -> dict[str, Any]:
    found = load([name])
    if not found:
        raise FileNotFoundError(
            f"benchmarks/results/{name}.json: got no such file, expected the costs of the simulation"
        )
    return found[0]


def _processor(name: str, row: str) -> float:
    """Return the median processor time of a list, in seconds."""
    found = _result(name)["rows"][row]
    if "cpu_us" in found:
        return float(found["cpu_us"]["median"]) / 1e6
    return float(median(run["cpu_us"] for run in found["runs"])) / 1e6
