"""Name the faults of a TCP connection, which end has them, and the point of a flow at which they begin."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LATENCY_SECONDS: Final = 0.05
BYTES_PER_SECOND: Final = 1024


class Kind(StrEnum):
    """What happens to a connection."""

    LATENCY = "latency"
    RATE = "rate"
    SLICE = "slice"
    RESET = "reset"
    DROP = "drop"
    HALF_OPEN = "half-open"
    STOP = "stop"
    HALF_CLOSE = "half-close"


class End(StrEnum):
    """An end of a carried connection: the end that connected, or the end that was connected to."""

    CLIENT = "client"
    TARGET = "target"

    @property
    def other(self) -> "End":
        return End.TARGET if self is End.CLIENT else End.CLIENT


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of both directions of a connection; `LATENCY`, `RATE` and `SLICE` may be of what `only` one end sends.

    - `LATENCY`: each piece waits `seconds` before it is passed on.
    - `RATE`: `bytes_per_second` in each direction.
    - `SLICE`: one byte a segment.
    - `RESET`: both ends get an RST.
    - `DROP`: what either end sends is taken and vanishes, an end of the stream, too.
    - `HALF_OPEN`: the end `at` is reset; the other end hears nothing, and is not read.
    - `STOP`: neither end is read; a piece of the kernel's buffers may still be taken.
    - `HALF_CLOSE`: the end `at` seems to have sent a FIN; the other direction goes on.
    """

    kind: Kind
    at: End = End.CLIENT
    seconds: float = LATENCY_SECONDS
    bytes_per_second: int = BYTES_PER_SECOND
    only: End | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a flow: when `sender` has sent `after_bytes` more."""

    sender: End
    after_bytes: int
