"""Owns the two runs: a neighbour's delays with and without pressure in turns, and lasting pressure. Judges nothing."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.ladder import machine
from benchmarks.overload_real.samples import BusyCores, Sample
from benchmarks.overload_real.scene import LANGUAGES, MIB, NEIGHBOUR, Scene, Size, scene
from proxy.config.config import Config
from proxy.overload.bounds import RECEIVED_BYTES
from proxy.overload.settings import SAMPLE_SECONDS
from tests.pulsar.standalone import Broker

Json = dict[str, Any]

# 12 MB of a producer: the kernel keeps up to 6 MB of each for a broker that was slow before, so that with 8 MB the
# second press filled no container. Not for ten minutes of pressure: in those the broker ended with 12 MB a producer.
_NEIGHBOUR_PENDING: Final = 600
_PRESSED_SECONDS: Final = 180.0
_FREE_SECONDS: Final = 300.0
_SETTLE_SECONDS: Final = 5.0
SEND_TIMEOUT_MS: Final = 30_000


def run_neighbour(directory: Path, broker: Broker, size: Size) -> Json:
    """Measure the delays of a topic that nobody pauses, without and with pressure in turns."""
    with scene(directory, broker, replace(size, most_pending=_NEIGHBOUR_PENDING)) as running:
        pairs = []
        for _ in range(size.pairs):
            running.until_caught_up(_FREE_SECONDS)
            free = _phase(running)
            running.press()
            running.until(lambda: running.paused() > 0, _PRESSED_SECONDS)
            pressed = _phase(running)
            running.free()
            pairs.append({"free": free, "pressed": pressed, "ratio": round(pressed["p99_ms"] / free["p99_ms"], 3)})
            print(f"  neighbour: {pairs[-1]}", flush=True)
    return {"title": "a topic of 1,000 messages a second that is not paused", "pairs": pairs, **_summary(pairs)}


def _phase(running: Scene) -> Json:
    """Look at the neighbour for a while."""
    time.sleep(_SETTLE_SECONDS)
    first, busy = len(running.neighbour.delays), BusyCores()
    time.sleep(running.size.phase_seconds)
    cores = busy.so_far(machine.cores())
    delays = sorted(running.neighbour.delays[first:])
    return {
        "p50_ms": round(delays[len(delays) // 2], 2),
        "p99_ms": round(delays[int(len(delays) * 0.99)], 2),
        "messages": len(delays),
        "cores_busy": round(cores, 2),
        "paused": running.sampler.samples[-1].paused,
    }


def _summary(pairs: list[Json]) -> Json:
    phases = [pair[name] for pair in pairs for name in ("free", "pressed")]
    return {
        "ratio": round(median(pair["ratio"] for pair in pairs), 3),
        "most_cores_busy": max(phase["cores_busy"] for phase in phases),
    }


def run_pressure(directory: Path, broker: Broker, size: Size) -> Json:
    """Keep the broker slow for `seconds`, then free it, and count."""
    with scene(directory, broker, size) as running:
        running.until_caught_up(_FREE_SECONDS)
        connections = running.shown()("new_connections_total")
        before = running.tallies("")
        rates = {name: tally.sent + tally.withheld for name, tally in before.items()}
        acked_before = {name: tally.acked for name, tally in before.items()}
        began = time.monotonic()
        running.press()
        running.until(lambda: running.paused() > 0, _PRESSED_SECONDS)
        time.sleep(max(0.0, size.seconds - (time.monotonic() - began)))
        pressed_seconds = time.monotonic() - began
        page = running.shown()
        pressed = running.sampler.since(began)
        now = {name: tally for name, tally in running.tallies("").items() if not name.startswith(NEIGHBOUR)}
        offered = sum(tally.sent + tally.withheld - rates[name] for name, tally in now.items()) * size.message_bytes
        # To see who was slowed more than others: messages of each producer that were acknowledged under pressure.
        acked = {name: tally.acked - acked_before[name] for name, tally in now.items()}
        running.free()
        running.until(lambda: not running.paused(), _FREE_SECONDS)
        running.until_caught_up(_FREE_SECONDS)
        # Connections are looked at before the producers leave.
        lost = running.shown()("new_connections_total") - connections
        running.stop()
        tallies = {own: tally for name in LANGUAGES for own, tally in running.tallies(name).items()}
        running.until(lambda: not running.arrived.missing(tallies), _FREE_SECONDS)
        faults = running.arrived.faults(tallies)
        result = {
            "title": f"{size.producers} producers, a broker that takes half, for {pressed_seconds:.0f} s",
            "seconds": round(pressed_seconds),
            "connections_made_again": int(lost),
            "sent": sum(tally.sent for tally in tallies.values()),
            "acked": sum(tally.acked for tally in tallies.values()),
            # The clients' default for sendTimeout; here none is set, for the reason of `Size.most_pending`.
            "later_than_30_s": sum(delay > SEND_TIMEOUT_MS for delay in running.arrived.delays),
            "withheld": sum(tally.withheld for tally in tallies.values()),
            "least_and_most_acked": [min(acked.values()), max(acked.values())],
            "faults": faults,
            "pauses": int(page("overload_pauses_total")),
            "drips": int(page("overload_drips_total")),
            "longest_pauses_ended": int(page("overload_pause_overshoots_total")),
            "limit_hits": running.group.failures(),
            "memory": memory_of(pressed, size, offered / pressed_seconds),
        }
        made = running.decisions()
    return {**result, **cycles_of(made)}


def memory_of(samples: list[Sample], size: Size, rate: float) -> Json:
    """Return the peak beside the line of Q10: high mark + rates x interval + paused x receive buffer."""
    high = Config.overload_memory_high_watermark.default
    # Linux doubles the buffer size that a program sets.
    received = 2 * RECEIVED_BYTES
    most_paused = max(sample.paused for sample in samples)
    peak = max(samples, key=lambda sample: sample.used_bytes)
    parts = {
        "high_mark": int(high * size.limit_mib * MIB),
        "rates_x_interval": int(rate * SAMPLE_SECONDS),
        "paused_x_receive_buffer": most_paused * received,
    }
    return {
        "limit_bytes": size.limit_mib * MIB,
        "peak_bytes": peak.used_bytes,
        "peak_process_bytes": peak.process_bytes,
        "peak_socket_bytes": peak.socket_bytes,
        "peak_told_by_proxy_bytes": max(sample.told_bytes for sample in samples),
        "line_bytes": sum(parts.values()),
        **parts,
        "most_paused": most_paused,
        "samples": len(samples),
        "paused_part_of_time": round(sum(sample.paused > 0 for sample in samples) / len(samples), 3),
    }


def cycles_of(made: list[Json]) -> Json:
    """Return the cycles of each release: decisions from the first after a pause to the last before the next."""
    runs, last = [], 0
    for event in made:
        if event["throttle_action"] == "pause" and last:
            runs.append(last)
            last = 0
        elif event["throttle_action"] == "resume" and event["throttle_connections"]:
            last += 1
    if last:
        runs.append(last)
    return {"releases": len(runs), "cycles_of_last_release": last, "decisions": len(made)}
