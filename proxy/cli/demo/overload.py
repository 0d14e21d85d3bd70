"""The command `pulsar-proxy demo --overload`: producers that send more than their broker takes are held and released.

Rule: as for the other storm. The promise: no connection ends, every message arrives once and in order, producers were
held and released, and the broker's memory stayed below the high mark but for what arrives before the proxy knows.
"""

import argparse
import asyncio
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proxy.cli.demo.broker import LOOPBACK
from proxy.cli.demo.children import Child, metrics, proxy_conf
from proxy.cli.demo.producers import (
    MESSAGE_BYTES,
    MOST_PENDING,
    OverloadPlan,
    OverloadTally,
    StoringBroker,
    StormProducer,
)
from proxy.cli.demo.table import mib, table
from proxy.config.config import Config

BROKEN: Final = 1
# Producers that are still held when the storm is over are released before.
END_SECONDS: Final = 30.0
END_LOOKS: Final = 150
# A broker is asked each 3 s; then comes a sample, and the answer of the broker.
LATE_SECONDS: Final = 5.0


@dataclass(slots=True)
class HeldOutcome:
    """The figures of the storm."""

    plan: OverloadPlan
    tally: OverloadTally
    high_mark: float
    most_bytes: float = 0.0
    most_paused: int = 0
    longest_pause_seconds: float = 0.0
    paused_seconds: float = 0.0
    drips: int = 0
    seconds: float = 0.0

    @property
    def allowed_bytes(self) -> float:
        """The promised bound of the broker's memory."""
        under_way = self.plan.producers * MOST_PENDING * MESSAGE_BYTES
        late = LATE_SECONDS * (self.plan.bytes_per_second - self.plan.drained_per_second)
        return self.high_mark * self.plan.limit_bytes + late + under_way


def broken(outcome: HeldOutcome) -> list[str]:
    """Return a line for each broken promise."""
    tally = outcome.tally
    counts = (
        (tally.connections_lost, "connections ended"),
        (tally.sent - tally.arrived, "messages did not arrive"),
        (tally.out_of_order, "messages arrived twice or out of order"),
    )
    lines = [f"{count} {what}, expected 0" for count, what in counts if count]
    if not outcome.most_paused:
        lines.append("no producer was held")
    elif not tally.is_released:
        lines.append("producers are held still")
    if outcome.most_bytes > outcome.allowed_bytes:
        lines.append(f"the broker held {mib(outcome.most_bytes)}, expected {mib(outcome.allowed_bytes)}")
    return lines


def render(outcome: HeldOutcome) -> str:
    """Return the table and the verdict as text."""
    plan, tally = outcome.plan, outcome.tally
    arrived = f"{tally.arrived:,} arrived, {tally.out_of_order} twice or out of order"
    rows = [
        ("producers", f"{plan.producers:,}, {mib(plan.bytes_per_second)}/s in all, twice what the broker gets rid of"),
        ("messages", f"{tally.sent:,} sent, {arrived}"),
        ("connections lost", f"{tally.connections_lost}"),
        ("held at once", f"{outcome.most_paused:,} connections"),
        ("longest pause", f"{outcome.longest_pause_seconds:.1f} s, of all {outcome.paused_seconds:,.0f} s"),
        ("frames in pauses", f"{outcome.drips:,}"),
        ("broker's limit", mib(plan.limit_bytes)),
        ("broker at most", f"{mib(outcome.most_bytes)} = {outcome.most_bytes / plan.limit_bytes:.2f}"),
        ("allowed", f"{mib(outcome.allowed_bytes)} = {outcome.high_mark} x limit + {LATE_SECONDS:g} s + under way"),
        ("duration", f"{outcome.seconds:.1f} s"),
    ]
    kept = "The promise held: producers waited, nothing was lost, memory within its bound."
    return table(rows, broken(outcome), kept)


async def run_overload(options: argparse.Namespace) -> int:
    """Run the storm and return the exit code."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    high = Config.overload_memory_high_watermark.default
    plan, tally = OverloadPlan(options.connections, options.overload_seconds, high), OverloadTally()
    outcome, broker = HeldOutcome(plan, tally, high), StoringBroker(plan, tally)
    port, web_port = await broker.start()
    with tempfile.TemporaryDirectory(prefix="pulsar-proxy-demo-") as directory:
        keys = {
            "brokerWebServiceURL": f"http://{LOOPBACK}:{web_port}",
            "overloadThrottleEnabled": "true",
            "overloadSignals": "brokers",
        }
        config = proxy_conf(Path(directory), f"pulsar://{LOOPBACK}:{port}", plan.producers, **keys)
        given = [word for setting in options.set for word in ("--set", setting)]
        with Child("proxy", ["serve", "--config", str(config), *given], Path(directory)) as proxy:
            metrics_port = (await proxy.said("web_port"))["web_port"]
            clients_port = (await proxy.said("port"))["port"]
            await _storm(outcome, broker, clients_port, metrics_port, f"{LOOPBACK}:{port}")
    outcome.seconds = loop.time() - began
    print(f"\n{render(outcome)}")
    return BROKEN if broken(outcome) else 0


async def _storm(outcome: HeldOutcome, broker: StoringBroker, port: int, metrics_port: int, target: str) -> None:
    plan, tally = outcome.plan, outcome.tally
    print(f"{plan.producers:,} producers send twice what their broker gets rid of", flush=True)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_watch(outcome, broker, metrics_port))
        # Messages that never come are counted as such.
        with suppress(TimeoutError):
            async with asyncio.timeout(plan.most_seconds + END_SECONDS), asyncio.TaskGroup() as storm:
                for number in range(plan.producers):
                    storm.create_task(StormProducer(number, plan, tally).run(port, target))
        watching.cancel()
    outcome.most_bytes = broker.most_bytes
    # The last message may pass in the moment of the release, before the proxy's metrics tell of the release.
    for _ in range(END_LOOKS):
        if not await _look(outcome, metrics_port):
            break
        await asyncio.sleep(END_SECONDS / END_LOOKS)


async def _watch(outcome: HeldOutcome, broker: StoringBroker, metrics_port: int) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        paused = await _look(outcome, metrics_port)
        print(
            f"{loop.time() - began:5.1f} s  broker at {broker.stored_bytes / outcome.plan.limit_bytes:.2f} of its "
            f"memory, {paused} producers held, {outcome.tally.arrived:,} messages arrived",
            flush=True,
        )
        await asyncio.sleep(1.0)


async def _look(outcome: HeldOutcome, metrics_port: int) -> int:
    """Read the proxy's metrics; return how many connections are held."""
    found = await metrics(metrics_port)
    paused = int(found.get('overload_paused_connections{what="paused"}', 0))
    tally = outcome.tally
    tally.is_released = tally.is_released or (outcome.most_paused > 0 and not paused)
    outcome.most_paused = max(outcome.most_paused, paused)
    longest = found.get("overload_longest_pause_seconds", 0.0)
    outcome.longest_pause_seconds = max(outcome.longest_pause_seconds, longest)
    outcome.paused_seconds = found.get("overload_paused_seconds_total", 0.0)
    outcome.drips = int(found.get("overload_drips_total", 0))
    return paused
