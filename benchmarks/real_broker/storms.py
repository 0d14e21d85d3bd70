"""Owns the storms: upstream's scenario in full, equal requests and requests that share nothing. Judges nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.ladder.verdict import Json
from tests.pulsar import memory, scenario
from tests.pulsar.pages import lists_answered_by_broker
from tests.pulsar.proxy_process import run_proxy
from tests.pulsar.standalone import Broker

LIMIT_MIB: Final = 50  # each of heap and direct


@dataclass(frozen=True, slots=True)
class Storm:
    """A run of a storm; with `patient` the proxy's clocks are no reason to refuse."""

    title: str
    shared: bool
    patient: bool = False


STORMS: Final = {
    "equal": Storm("500 equal requests", shared=True),
    "distinct": Storm("500 requests of which no two are equal", shared=False, patient=True),
}
_CLOCKS: Final = (
    "topicListRequestTimeoutMillis",
    "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis",
    "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis",
)


def run_storm(directory: Path, broker: Broker, namespace: scenario.Namespace, storm: Storm) -> Json:
    """Run one storm through a fresh proxy and return what was seen, bytes and seconds."""
    keys = {
        "maxTopicListInFlightHeapMemSizeMB": str(LIMIT_MIB),
        "maxTopicListInFlightDirectMemSizeMB": str(LIMIT_MIB),
        **(dict.fromkeys(_CLOCKS, "300000") if storm.patient else {}),
    }
    with run_proxy(directory, broker, keys) as proxy:
        before = lists_answered_by_broker(broker)
        report = asyncio.run(scenario.run(proxy, scenario.Load(namespace, storm.shared, window=3)))
        questions = lists_answered_by_broker(broker) - before
    outcome = report.outcome
    return {
        "title": storm.title,
        "answered": outcome.answered,
        "errors": dict(outcome.errors),
        "lost": outcome.lost,
        "different_lists": len(outcome.lists),
        "consumers_that_read_all": report.read.count(namespace.consumed),
        "consumer_errors": [read for read in report.read if isinstance(read, str)],
        "frame_bytes": outcome.largest_frame_bytes,
        "seconds": round(outcome.seconds, 3),
        "mb_per_second": round(outcome.answered * outcome.largest_frame_bytes / outcome.seconds / 1e6, 1),
        "lists_sent_by_broker": questions,
        "idle_rss_bytes": report.idle,
        "peak_rss_bytes": report.peak,
        "grown_bytes": report.peak - report.idle,
        "promised_bytes": memory.promised_growth(2 * LIMIT_MIB, _connections(), outcome.largest_frame_bytes),
    }


def _connections() -> int:
    # A consumer has a connection for lookups and one through the proxy to the broker.
    return scenario.CONNECTIONS + 2 * scenario.CONSUMERS
