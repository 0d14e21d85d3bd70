"""Settings of synthetic events, and how these are cut into chunks that anybody can make alone."""

from dataclasses import dataclass, field

from pipeline.core.errors import PipelineError
from pipeline.core.model import Limits

__all__ = ["CHUNK_EVENTS", "START_US", "Chunk", "GenerateSettings"]

# Thursday, 2026-01-01 00:00 UTC: the same command gives the same events on any day.
START_US = 1_767_225_600_000_000
CHUNK_EVENTS = 250_000
MOST_EVENTS = 10_000_000_000
MOST_RATE = 1e9
# A hundred years.
MOST_SECONDS = 3_155_760_000
# With more, the first has all.
MOST_ZIPF = 100.0


@dataclass(frozen=True, slots=True)
class GenerateSettings:
    """How many events, of whom, how fast; `rate` is events a second of the whole fleet, shares are of all events."""

    events: int
    seed: int = 1
    proxies: int = 4
    clients: int = 20_000
    tenants: int = 40
    namespaces: int = 600
    rate: float = 500.0
    zipf: float = 1.1
    storm_share: float = 0.3
    watch_share: float = 0.02
    start_us: int = START_US
    simulate: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Raise PipelineError for numbers that make no trace."""
        for name in ("events", "proxies", "clients", "tenants", "namespaces"):
            if getattr(self, name) < 1:
                raise PipelineError(f"--{name}: got {getattr(self, name)}, expected at least 1")
        if self.events > MOST_EVENTS:
            raise PipelineError(f"--events: got {self.events}, expected at most {MOST_EVENTS}")
        if self.seed < 0:
            raise PipelineError(f"--seed: got {self.seed}, expected 0 or more")
        # Written so that nan is refused, too.
        if not 0 < self.rate <= MOST_RATE:
            raise PipelineError(f"--rate: got {self.rate}, expected more than 0 and at most {MOST_RATE:g} a second")
        if self.events / self.rate > MOST_SECONDS:
            raise PipelineError(
                f"--rate: got {self.rate}, expected {self.events / MOST_SECONDS:g} or more for {self.events} events"
            )
        if not 0 <= self.zipf <= MOST_ZIPF:
            raise PipelineError(f"--zipf: got {self.zipf}, expected 0 to {MOST_ZIPF:g}")
        if not (self.storm_share >= 0 and self.watch_share >= 0 and self.storm_share + self.watch_share <= 1):
            raise PipelineError("--storm-share and --watch-share: expected at least 0 each and at most 1 together")
        if self.clients < self.proxies:
            raise PipelineError(f"--clients: got {self.clients}, expected at least one for each of {self.proxies}")

    def chunks(self) -> list["Chunk"]:
        """Cut the whole into chunks: one for each slice of time and each proxy."""
        a_slice = CHUNK_EVENTS * self.proxies
        found = []
        for number, first in enumerate(range(0, self.events, a_slice)):
            here = min(a_slice, self.events - first)
            begin_us = self.start_us + int(first / self.rate * 1e6)
            span_us = max(int(here / self.rate * 1e6), 1)
            for proxy in range(self.proxies):
                events = here // self.proxies + (proxy < here % self.proxies)
                found.append(Chunk(number, proxy, events, begin_us, span_us))
        return [chunk for chunk in found if chunk.events]


@dataclass(frozen=True, slots=True)
class Chunk:
    """The events of one proxy in one slice of time."""

    slice: int
    proxy: int
    events: int
    begin_us: int
    span_us: int
