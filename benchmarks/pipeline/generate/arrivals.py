"""When who asks: a steady stream of all clients, and storms, in which the clients of some tenants come back at once.

Times are microseconds since the chunk's slice began. Rule: a slice's storms follow from the seed and the slice alone,
so that all proxies see the same ones; everything else is drawn for the chunk.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.pipeline.generate.population import Population
from benchmarks.pipeline.generate.settings import Chunk, GenerateSettings

__all__ = ["Arrivals", "arrivals", "random_of"]

Ints = NDArray[np.int64]

EACH_IN_STORM: Final = 2  # requests of a client in a storm, about
STORM_FADES_US: Final = 700_000
HEAVY_SHARE: Final = 0.25  # share of storms so large that requests wait for memory for seconds


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Requests in no particular order; `pressure` is 0 outside storms, 1 in a storm, more in a heavy one."""

    at_us: Ints
    client: Ints
    pressure: NDArray[np.float64]


def random_of(settings: GenerateSettings, chunk: Chunk, purpose: int) -> np.random.Generator:
    """Return the random numbers of a chunk for one purpose."""
    return np.random.default_rng([settings.seed, 1 + purpose, chunk.slice, chunk.proxy])


def arrivals(settings: GenerateSettings, chunk: Chunk, people: Population, count: int) -> Arrivals:
    """Draw `count` requests of the chunk."""
    rng = random_of(settings, chunk, 0)
    clients = np.arange(chunk.proxy, settings.clients, settings.proxies, dtype=np.int64)
    in_storms = int(count * settings.storm_share)
    steady = count - in_storms
    parts = [
        Arrivals(
            rng.integers(0, chunk.span_us, steady),
            rng.choice(clients, steady),
            np.zeros(steady),
        ),
        *_storms(settings, chunk, people, clients, in_storms),
    ]
    return Arrivals(*(np.concatenate([getattr(part, name) for part in parts]) for name in Arrivals.__annotations__))


def _storms(settings: GenerateSettings, chunk: Chunk, people: Population, clients: Ints, count: int) -> list[Arrivals]:
    plan = np.random.default_rng([settings.seed, 9, chunk.slice])
    storms = max(1, count // (EACH_IN_STORM * len(clients)))
    begins = np.sort(plan.integers(0, max(int(chunk.span_us * 0.9), 1), storms))
    heavy = plan.random(storms) < HEAVY_SHARE
    everybody = plan.random(storms) < 0.5
    tenants = plan.integers(0, settings.tenants, storms)
    rng = random_of(settings, chunk, 1)
    own_tenant = people.tenant_of[people.namespace_of[people.question_of[clients]]]
    found = []
    for number in range(storms):
        here = count // storms + (number < count % storms)
        those = clients if everybody[number] else clients[own_tenant == tenants[number]]
        those = those if len(those) else clients
        at = begins[number] + rng.exponential(STORM_FADES_US, here).astype(np.int64)
        pressure = np.full(here, 12.0 if heavy[number] else 1.0)
        found.append(Arrivals(at, rng.choice(those, here), pressure))
    return found
