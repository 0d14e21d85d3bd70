"""The command `pulsar-proxy demo --overload`: producers that send more than their broker takes are held and released.

Rule: as for the other storm. The promise: no connection ends, every message arrives once and in order, producers were
held and released, and the broker's memory stayed below the high mark but for what arrives before the proxy knows.
"""

import argparse
import asyncio
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from proxy.cli.demo.broker import LOOPBACK
from proxy.cli.demo.children import Child, metrics, proxy_conf
from proxy.cli.demo.producers import OverloadPlan, OverloadTally, StoringBroker, StormProducer
from proxy.cli.demo.table import mib, table

# Producers that are still held when the storm is over are released before.
END_SECONDS: Final = 30.0
END_LOOKS: Final = 150
# A broker is asked each 3 s; then comes a sample, and the answer of the broker.
LATE_SECONDS: Final = 5.0


def allowed_bytes(plan: OverloadPlan) -> float:
    """Return the promised bound of the broker's memory."""
    late = LATE_SECONDS * (plan.bytes_per_second - plan.drained_per_second)
    return plan.high_mark * plan.limit_bytes + late + plan.under_way_bytes


def broken(plan: OverloadPlan, tally: OverloadTally) -> list[str]:
    """Return a line for each broken promise."""
    counts = (
        (tally.connections_lost, "connections ended"),
        (tally.sent - tally.arrived, "messages did not arrive"),
        (tally.out_of_order, "messages arrived twice or out of order"),
    )
    lines = [f"{count} {what}, expected 0" for count, what in counts if count]
    if not tally.most_paused:
        lines.append("no producer was held")
    elif not tally.is_released:
        lines.append("producers are held still")
    if tally.most_bytes > allowed_bytes(plan):
        lines.append(f"the broker held {mib(tally.most_bytes)}, expected {mib(allowed_bytes(plan))}")
    return lines


def render(plan: OverloadPlan, tally: OverloadTally) -> str:
    """Return the table and the verdict as text."""
    arrived = f"{tally.arrived:,} arrived, {tally.out_of_order} twice or out of order"
    rows = [
        ("producers", f"{plan.producers:,}, {mib(plan.bytes_per_second)}/s in all, twice what the broker gets rid of"),
        ("messages", f"{tally.sent:,} sent, {arrived}"),
        ("connections lost", f"{tally.connections_lost}"),
        ("held at once", f"{tally.most_paused:,} connections"),
        ("longest pause", f"{tally.longest_pause_seconds:.1f} s, of all {tally.paused_seconds:,.0f} s"),
        ("frames in pauses", f"{tally.drips:,}"),
        ("broker's limit", mib(plan.limit_bytes)),
        ("broker at most", f"{mib(tally.most_bytes)} = {tally.most_bytes / plan.limit_bytes:.2f}"),
        ("allowed", f"{mib(allowed_bytes(plan))} = {plan.high_mark} x limit + {LATE_SECONDS:g} s + under way"),
        ("duration", f"{tally.seconds:.1f} s"),
    ]
    kept = "The promise held: producers waited, nothing was lost, memory within its bound."
    return table(rows, broken(plan, tally), kept)


async def run_overload(options: argparse.Namespace, directory: Path, children: ExitStack) -> list[str]:
    """Run the storm and return the promises that broke."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    plan, tally = OverloadPlan(options.connections, options.overload_seconds), OverloadTally()
    broker = StoringBroker(plan, tally)
    port, web_port = await broker.start()
    keys = {
        "brokerWebServiceURL": f"http://{LOOPBACK}:{web_port}",
        "overloadThrottleEnabled": "true",
        "overloadSignals": "brokers",
    }
    config = proxy_conf(directory, f"pulsar://{LOOPBACK}:{port}", plan.producers, **keys)
    words = ["serve", f"--config={config}", *(f"--set={word}" for word in options.set)]
    proxy = children.enter_context(Child("proxy", words, directory))
    metrics_port, clients_port = (await proxy.said("web_port"))["web_port"], (await proxy.said("port"))["port"]
    print(f"{plan.producers:,} producers send twice what their broker gets rid of", flush=True)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_watch(plan, tally, broker, metrics_port))
        # Messages that never come are counted as such.
        with suppress(TimeoutError):
            async with asyncio.timeout(plan.most_seconds + END_SECONDS), asyncio.TaskGroup() as storm:
                for number in range(plan.producers):
                    storm.create_task(StormProducer(number, plan, tally).run(clients_port, f"{LOOPBACK}:{port}"))
        watching.cancel()
    # The last message may pass in the moment of the release, before the proxy's metrics tell of the release.
    for _ in range(END_LOOKS):
        if not await _look(tally, metrics_port):
            break
        await asyncio.sleep(END_SECONDS / END_LOOKS)
    tally.seconds = loop.time() - began
    print(f"\n{render(plan, tally)}")
    return broken(plan, tally)


async def _watch(plan: OverloadPlan, tally: OverloadTally, broker: StoringBroker, metrics_port: int) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        paused = await _look(tally, metrics_port)
        print(
            f"{loop.time() - began:5.1f} s  broker at {broker.stored_bytes / plan.limit_bytes:.2f} of its "
            f"memory, {paused} producers held, {tally.arrived:,} messages arrived",
            flush=True,
        )
        await asyncio.sleep(1.0)


async def _look(tally: OverloadTally, metrics_port: int) -> int:
    """Read the proxy's metrics; return how many connections are held."""
    found = await metrics(metrics_port)
    paused = int(found.get('overload_paused_connections{what="paused"}', 0))
    tally.is_released = tally.is_released or (tally.most_paused > 0 and not paused)
    tally.most_paused = max(tally.most_paused, paused)
    longest = found.get("overload_longest_pause_seconds", 0.0)
    tally.longest_pause_seconds = max(tally.longest_pause_seconds, longest)
    tally.paused_seconds = found.get("overload_paused_seconds_total", 0.0)
    tally.drips = int(found.get("overload_drips_total", 0))
    return paused
