"""The promise of the pipeline: advice from a recorded storm, applied to the proxy and the same storm, holds.

A third of the clients begin to read late, so that how long memory is held is the storm's doing and not the machine's.
A busy machine has the same storm in slow motion: lateness, the waits that the proxy allows and the promised wait are
longer by one factor.
"""

import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from pipeline.advise import AdviseSettings, advise
from pipeline.choice import Target
from pipeline.ingest import ingest
from pipeline.ingest.settings import IngestSettings
from pipeline.options import CommonSettings
from pipeline.replay.buckets import count_waits, quantile
from pipeline.replay.grid import Grid
from pipeline.replay.model import MIB
from pipeline.whatif import WhatifSettings, whatif
from tests.support.patience import factor, patient

ROOT = Path(__file__).resolve().parents[2]
# No more: the demo ends a storm after 40 s.
MOST_SLOWNESS = 4.0
SLOWNESS = min(factor(), MOST_SLOWNESS)
# Lists of 300 KB. The late third holds 6 MB of direct memory until it begins to read; nobody waits as long as that.
STORM = {
    "connections": 60, "requests": 1, "topics": 3000, "heap-mb": 32, "direct-mb": 5, "slow-share": 0.34,
    "late-seconds": 6 * SLOWNESS,
}  # fmt: skip
SETTINGS = [
    # The kernel would keep whole lists for clients that do not read.
    "clientSocketSendBufferBytes=16384",
    f"maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis={4000 * SLOWNESS:.0f}",
    f"maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis={4000 * SLOWNESS:.0f}",
    # The clock of a request and those of slow readers are not what is judged here.
    "topicListRequestTimeoutMillis=110000",
    "topicListWriteStallTimeoutMillis=0",
    "topicListWriteMinBytesPerSecond=0",
    # The replay has neither a disk for slow readers' lists nor a share for clients that have not read yet.
    "topicListSpillDirectory=",
    "topicListUnprovenReadersMemoryPercent=100",
    "eventLogProxyId=demo-proxy",
]
LIMITS = {
    "heap-mb": "maxTopicListInFlightHeapMemSizeMB",
    "direct-mb": "maxTopicListInFlightDirectMemSizeMB",
}
# The p99 of so few is the longest wait of all, and some 100 ms of it are the machine's whenever it is busy: the replay
# was seen to have 250 ms too many. That is a tenth of this promise, and an error that advice may have.
TARGET = Target(load=1, max_refused=0.0, p99_wait_us=round(2_500_000 * SLOWNESS))
# Advice is given even if the recorded waits and those of the replay are three promises apart: how fast the machine was
# in the storm is not what is tested. Whether the advice is right, the second storm decides; when a calibration is to be
# trusted has tests of its own.
MAX_ERROR = 3.0


def stormed(events: Path, settings: Sequence[str]) -> list[dict[str, Any]]:
    """Run the storm against a proxy with these settings, and give what it recorded."""
    told = dict(setting.split("=", 1) for setting in settings)
    # The demo judges the proxy's memory by its own options.
    limits = {option: told.pop(key) for option, key in LIMITS.items() if key in told}
    options = [word for name, value in (STORM | limits).items() for word in (f"--{name}", str(value))]
    keys = [word for setting in (*SETTINGS, *map("=".join, told.items())) for word in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, "-m", "proxy", "demo", *options, *keys, "--event-log", str(events), "--accept-refusals"],
        cwd=ROOT, capture_output=True, text=True, timeout=patient(120), check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    texts = [gzip.decompress(path.read_bytes()) for path in events.glob("*.jsonl.gz")]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def refused(events: list[dict[str, Any]]) -> int:
    return sum(event["outcome"] in {"timeout", "queue_full", "oversize"} for event in events)


def p99_us(events: list[dict[str, Any]]) -> float:
    """Give the p99 of all waits of answered requests, as the calibration makes it of what was recorded.

    It is their life without the broker, reading and writing: waits for memory are only a part of what is promised.
    """
    work = ("upstream_us", "read_us", "write_us")
    lives = [
        max(0, event["total_us"] - sum(event[part] or 0 for part in work))
        for event in events
        if event["outcome"] == "ok"
    ]
    return quantile(count_waits(np.array(lives, np.int64)), 0.99)


@pytest.mark.timeout(600)
def test_advice_applied_to_the_same_storm_holds_what_it_promised(spark: SparkSession, tmp_path: Path) -> None:
    before = stormed(tmp_path / "before", [])
    assert len(before) == STORM["connections"]
    assert refused(before) > 0
    # Nobody left and nothing failed: what the advice has to mend is refusals.
    assert {event["outcome"] for event in before} <= {"ok", "timeout", "queue_full"}

    common = CommonSettings(str(tmp_path / "tables"), "parquet", None, {})
    ingest(spark, IngestSettings(common, str(tmp_path / "before")))
    sizes = tuple(number * MIB for number in (2, 4, 8, 16, 32))
    grid = Grid({"heap_bytes": sizes, "direct_bytes": sizes}, (1,), (1,))
    whatif(spark, WhatifSettings(common, grid, TARGET.p99_wait_us))
    summary = advise(spark, AdviseSettings(common, TARGET, max_error=MAX_ERROR, min_requests=len(before)))
    promised = summary.advice.final
    assert promised.refused == 0
    assert promised.wait_p99_us <= TARGET.p99_wait_us

    lines = [line for line in summary.conf.splitlines() if line and not line.startswith("#")]
    after = stormed(tmp_path / "after", lines)
    assert len(after) == STORM["connections"]
    assert {event["direct_limit_bytes"] for event in after} == {summary.advice.limits.direct_bytes}
    assert refused(after) == 0
    assert Counter(event["outcome"] for event in after) == {"ok": len(after)}
    assert p99_us(after) <= TARGET.p99_wait_us
