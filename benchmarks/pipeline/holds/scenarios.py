"""Scenarios: the recorded storm, the load and fleet that advice is for, and the other storm that it must hold in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.pipeline.holds.storms import Event as Recorded
from benchmarks.pipeline.holds.storms import Storm, stormed
from pipeline.core.choice import Target
from pipeline.core.model import MIB
from pipeline.core.options import CommonSettings
from pipeline.ingest.settings import IngestSettings
from pipeline.ingest.stream import follow
from pipeline.jobs.advise import AdviseSettings, AdviseSummary, advise
from pipeline.jobs.whatif import WhatifSettings, whatif
from pipeline.replay.grid import Grid

__all__ = ["SCENARIOS", "Scenario", "Tried", "tried"]

PROMISED_US: Final = 2_500_000
SIZES: Final = tuple(number * MIB for number in (2, 4, 8, 16, 32, 64))


@dataclass(frozen=True, slots=True)
class Scenario:
    """A storm to record; `load` and `fleet` of the target; the storm that each proxy of that fleet meets then."""

    title: str
    recorded: Storm
    judged: Storm
    load: int = 1
    fleet: int = 1

    def sized(self, part: float) -> Scenario:
        """Return the same scenario with a part of the clients, and as much less memory to record with."""
        return replace(self, recorded=_sized(self.recorded, part), judged=_sized(self.judged, part))


def _sized(storm: Storm, part: float) -> Storm:
    return replace(
        storm,
        connections=round(storm.connections * part),
        direct_mb=max(2, round(storm.direct_mb * part)),
        heap_mb=max(4, round(storm.heap_mb * part)),
    )


FAIR: Final = {"topicListFairness": "namespace"}
SCENARIOS: Final[dict[str, Scenario]] = {
    "load": Scenario("three times the clients", Storm(60), Storm(180), load=3),
    # Lists take all of heap memory while they are read: what comes behind them waits.
    "tight": Scenario(
        "recorded with tight heap memory", Storm(90, heap_mb=6, direct_mb=16), Storm(90, heap_mb=6, direct_mb=16)
    ),
    "fair": Scenario(
        "shared lists, fair between namespaces",
        Storm(90, namespaces=9, keys=FAIR),
        Storm(270, namespaces=27, keys=FAIR),
        load=3,
    ),
    "fleet": Scenario("a fleet of two for one", Storm(120, direct_mb=10), Storm(60), fleet=2),
    # Other lists, others that are late: what was recorded is not what is judged.
    "hold-out": Scenario(
        "one recording advises, another is judged",
        Storm(60, topics=3200, slow_share=0.34),
        Storm(150, topics=2800, slow_share=0.3),
        load=3,
    ),
}


@dataclass(frozen=True, slots=True)
class Tried:
    """The events recorded, the advice, and the events that the judged storm recorded under the advice."""

    before: list[Recorded]
    summary: AdviseSummary
    after: list[Recorded]


def tried(
    spark: SparkSession,
    scenario: Scenario,
    place: Path,
    slowness: float = 1.0,
    max_error: float = 0.2,
    max_imputed: float = 0.5,
) -> Tried:
    """Record, advise, and have the other storm meet what is advised; raises PipelineError if there is no advice."""
    before = stormed(scenario.recorded, place / "before", slowness=slowness)
    common = CommonSettings(str(place / "tables"), None, {})
    follow(spark, IngestSettings(common, str(place / "before"), str(place / "checkpoint")), lambda _: None, Event())
    promised_us = PROMISED_US * slowness
    grid = Grid({"heap_bytes": SIZES, "direct_bytes": SIZES}, (scenario.load,), (scenario.fleet,))
    whatif(spark, WhatifSettings(common, grid, promised_us))
    target = Target(scenario.load, 0.0, promised_us)
    least = min(100, len(before))
    settings = AdviseSettings(common, target, max_error=max_error, min_requests=least, max_imputed=max_imputed)
    summary = advise(spark, settings)
    after = stormed(scenario.judged, place / "after", lines_of(summary.conf), scenario.fleet, slowness)
    return Tried(before, summary, after)


def lines_of(conf: str) -> Sequence[str]:
    """Return the settings of a fragment of proxy.conf."""
    return [line for line in conf.splitlines() if line and not line.startswith("#")]
