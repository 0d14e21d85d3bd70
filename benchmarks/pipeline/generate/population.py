"""The askers: tenants, namespaces by Zipf's law, principals, client versions, and the connections of clients.

Rule: all of it follows from the settings, so that each worker makes the same population.
"""

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.pipeline.generate.settings import GenerateSettings

__all__ = ["MODES", "Population", "population"]

Ints = NDArray[np.int64]

VERSIONS: Final = (
    "Pulsar-Java-v4.0.8",
    "Pulsar-Java-v4.2.4",
    "Pulsar-Java-v3.3.7",
    "Pulsar-CPP-v3.7.2",
    "pulsar-client-go-0.17.0",
    "Pulsar-Java-v2.11.4",
)
MODES: Final = ("PERSISTENT", "NON_PERSISTENT", "ALL")
QUESTIONS_EACH: Final = 3  # questions of a namespace: its principals, with and without a pattern
BROKERS: Final = 6
NO_PATTERN: Final = -1
MOST_TOPICS: Final = 50_000


@dataclass(frozen=True, eq=False)
class Population:
    """Names as Arrow texts, and numbers that point at them; a client asks one question all its life."""

    tenants: pa.Array
    namespaces: pa.Array
    principals: pa.Array
    patterns: pa.Array
    brokers: pa.Array
    question_names: pa.Array
    client_names: pa.Array
    tenant_of: Ints  # by namespace
    topics_of: Ints
    name_length_of: Ints
    upstream_us_of: Ints
    broker_of: Ints
    namespace_of: Ints  # by question
    principal_of: Ints
    pattern_of: Ints
    mode_of: Ints
    question_of: Ints  # by client
    version_of: Ints


@lru_cache(maxsize=2)
def population(settings: GenerateSettings) -> Population:
    """Draw the population; the same settings give the same."""
    rng = np.random.default_rng([settings.seed, 0])
    spaces, questions = settings.namespaces, settings.namespaces * QUESTIONS_EACH
    tenant_of = _zipf(rng, settings.tenants, spaces, settings.zipf)
    namespace_of = np.repeat(np.arange(spaces, dtype=np.int64), QUESTIONS_EACH)
    principal_of = tenant_of[namespace_of] * 5 + rng.integers(0, 5, questions)
    asked = _zipf(rng, spaces, settings.clients, settings.zipf) * QUESTIONS_EACH
    question_of = asked + rng.choice(QUESTIONS_EACH, settings.clients, p=(0.6, 0.3, 0.1))
    topics = np.minimum(rng.lognormal(5.3, 1.4, spaces).astype(np.int64) + 1, MOST_TOPICS)
    return Population(
        tenants=pa.array([f"tenant-{n:03}" for n in range(settings.tenants)]),
        namespaces=pa.array([f"tenant-{tenant_of[n]:03}/ns-{n:04}" for n in range(spaces)]),
        principals=_hashes("role", settings.tenants * 5),
        patterns=_hashes("pattern", 64),
        brokers=pa.array([f"broker-{n}:6650" for n in range(BROKERS)]),
        question_names=_hashes("question", questions),
        client_names=_hashes("client", settings.clients),
        tenant_of=tenant_of,
        topics_of=topics,
        name_length_of=rng.integers(40, 140, spaces),
        upstream_us_of=2_000 + topics * 3,
        broker_of=rng.integers(0, BROKERS, spaces),
        namespace_of=namespace_of,
        principal_of=principal_of,
        pattern_of=np.where(rng.random(questions) < 0.4, rng.integers(0, 64, questions), NO_PATTERN),
        mode_of=rng.choice(3, questions, p=(0.7, 0.05, 0.25)),
        question_of=question_of,
        version_of=(principal_of[question_of] + (rng.random(settings.clients) < 0.3)) % len(VERSIONS),
    )


def _zipf(rng: np.random.Generator, kinds: int, draws: int, power: float) -> Ints:
    """Draw kinds of which the first is the most frequent, the n-th n**power times less so."""
    weights = np.arange(1, kinds + 1, dtype=np.float64) ** -power
    return rng.choice(kinds, draws, p=weights / weights.sum()).astype(np.int64)


def _hashes(what: str, count: int) -> pa.Array:
    return pa.array([blake2b(f"{what}-{n}".encode(), digest_size=8).hexdigest() for n in range(count)])
