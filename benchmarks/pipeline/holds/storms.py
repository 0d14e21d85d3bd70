"""Storms of the proxy's demo, each a process of its own, and what their events say.

A part of the clients begins to read late, so that how long memory is held is the storm's doing and not the machine's.
A busy machine has the same storm in slow motion: lateness, the waits that the proxy allows and the promised wait are
longer by one factor, `slowness`.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from pipeline.core.buckets import count_waits, quantile

__all__ = ["Event", "Storm", "p99_us", "refused", "stormed"]

Event = dict[str, Any]
ROOT: Final = Path(__file__).resolve().parents[3]
# The demo ends a storm after 40 s; starting and stopping take some more.
MOST_SECONDS: Final = 120.0
LIMITS: Final = {
    "heap-mb": "maxTopicListInFlightHeapMemSizeMB",
    "direct-mb": "maxTopicListInFlightDirectMemSizeMB",
}
KEYS: Final = {
    # The kernel would keep whole lists for clients that do not read.
    "clientSocketSendBufferBytes": "16384",
    # The clock of a request and those of slow readers are not what is judged here.
    "topicListRequestTimeoutMillis": "110000",
    "topicListWriteStallTimeoutMillis": "0",
    "topicListWriteMinBytesPerSecond": "0",
    # The replay has neither a disk for slow readers' lists nor a share for clients that have not read yet.
    "topicListSpillDirectory": "",
    "topicListUnprovenReadersMemoryPercent": "100",
}
_REFUSALS: Final = {"timeout", "queue_full", "oversize"}


@dataclass(frozen=True, slots=True)
class Storm:
    """Clients that each ask for one list of `topics` names at once; `slow_share` of them read late.

    Without `namespaces` each client has one of its own. `keys` are settings of the proxy.
    """

    connections: int
    topics: int = 3000
    namespaces: int = 0
    slow_share: float = 0.34
    late_seconds: float = 6.0
    heap_mb: int = 32
    direct_mb: int = 5
    timeout_millis: int = 4000
    keys: Mapping[str, str] = field(default_factory=dict)

    def command(self, events: Path, proxy: str, settings: Sequence[str], slowness: float) -> list[str]:
        """Return the command of the demo; `settings` go before the storm's own."""
        told = dict(setting.split("=", 1) for setting in settings)
        sizes: dict[str, object] = {
            "connections": self.connections, "requests": 1, "topics": self.topics, "namespaces": self.namespaces,
            "heap-mb": self.heap_mb, "direct-mb": self.direct_mb, "slow-share": self.slow_share,
            "late-seconds": self.late_seconds * slowness,
        }  # fmt: skip
        # The demo judges the proxy's memory by its own options.
        sizes |= {option: told.pop(key) for option, key in LIMITS.items() if key in told}
        waits = {
            f"maxTopicListInFlight{kind}MemSizePermitsAcquireTimeoutMillis": f"{self.timeout_millis * slowness:.0f}"
            for kind in ("Heap", "Direct")
        }
        keys = {**KEYS, **waits, "eventLogProxyId": proxy, **self.keys, **told}
        words = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
        sets = [word for name, value in keys.items() for word in ("--set", f"{name}={value}")]
        demo = [sys.executable, "-m", "proxy", "demo", *words, *sets]
        return [*demo, "--event-log", str(events), "--accept-refusals"]


def stormed(
    storm: Storm, events: Path, settings: Sequence[str] = (), proxies: int = 1, slowness: float = 1.0
) -> list[Event]:
    """Run the storm against so many proxies at once, and give what they recorded; raises RuntimeError if one breaks."""
    running = [
        subprocess.Popen(
            storm.command(events, f"proxy-{number}", settings, slowness), cwd=ROOT, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )
        for number in range(proxies)
    ]  # fmt: skip
    said = [each.communicate(timeout=MOST_SECONDS * slowness)[0] for each in running]
    if broken := [text for each, text in zip(running, said, strict=True) if each.returncode]:
        raise RuntimeError(f"the demo broke: {broken[0][-2000:]}")
    texts = [gzip.decompress(path.read_bytes()) for path in events.glob("*.jsonl.gz")]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def refused(events: Sequence[Event]) -> int:
    """Count the requests that the proxy did not serve."""
    return sum(event["outcome"] in _REFUSALS for event in events)


def p99_us(events: Sequence[Event]) -> float:
    """Return the p99 of all waits of answered requests, as the calibration makes it of what was recorded.

    A wait is the request's life without the broker, reading and writing: waits for memory are only a part of what is
    promised.
    """
    work = ("upstream_us", "read_us", "write_us")
    lives = [
        max(0, event["total_us"] - sum(event[part] or 0 for part in work))
        for event in events
        if event["outcome"] == "ok"
    ]
    return quantile(count_waits(np.array(lives, np.int64)), 0.99)
