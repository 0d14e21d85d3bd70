"""The shapes of load: the bytes that each topic offers over time, and how fast the broker gets rid of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

MB: Final = 1e6
CALM_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Shape:
    """A load: bytes a second that each topic offers at a time, and what the broker drains of all, or of each topic.

    `quota_bytes`: drain goes by topic, and each has this backlog quota; 0: all topics share one memory.
    """

    name: str
    title: str
    offered: Callable[[float], Mapping[str, float]]
    drain: float
    seconds: int = 240
    quota_bytes: float = 0.0
    shares_by_bytes: bool = False


def _step(now: float) -> Mapping[str, float]:
    return {"a": 100 * MB if CALM_SECONDS <= now < 150 else 40 * MB}


def _burst(now: float) -> Mapping[str, float]:
    return {"a": 240 * MB if any(start <= now < start + 9 for start in (40, 110, 180)) else 40 * MB}


def _sawtooth(now: float) -> Mapping[str, float]:
    return {"a": 20 * MB + 120 * MB * ((now % 60) / 60)}


def _small_and_big(now: float) -> Mapping[str, float]:
    small = {f"small-{number}": 0.4 * MB for number in range(50)}
    return small | {"big": 100 * MB if CALM_SECONDS <= now < 150 else 20 * MB}


def _slow_backlog(now: float) -> Mapping[str, float]:
    return {"slow": 30 * MB if now < 150 else 5 * MB, "other": 30 * MB}


def _many_small(now: float) -> Mapping[str, float]:
    rate = 0.6 * MB if CALM_SECONDS <= now < 150 else 0.25 * MB
    return {f"small-{number}": rate for number in range(40)}


# Shows what is left of the throttle when each proxy sees less of a topic than the rate that nobody is held below.
MANY_SMALL: Final = Shape(
    "many-small", "40 small topics: 0.25, then 0.6, then 0.25 MB/s each; the broker takes 12 MB/s", _many_small, 12 * MB
)
SHAPES: Final = (
    Shape("step", "A step: 40, then 100, then 40 MB/s; the broker takes 60 MB/s", _step, 60 * MB),
    Shape("burst", "Bursts of 9 s at 240 MB/s on 40 MB/s; the broker takes 60 MB/s", _burst, 60 * MB),
    Shape("sawtooth", "A sawtooth from 20 to 140 MB/s; the broker takes 60 MB/s", _sawtooth, 60 * MB),
    Shape(
        "small-and-big",
        "50 small topics of 0.4 MB/s beside a big one, shares by bytes; the broker takes 60 MB/s",
        _small_and_big,
        60 * MB,
        shares_by_bytes=True,
    ),
    Shape(
        "backlog",
        "A topic whose consumers take 10 MB/s of 30, backlog quota 1 GB",
        _slow_backlog,
        10 * MB,
        quota_bytes=1e9,
    ),
)
