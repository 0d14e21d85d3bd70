"""The command `pulsar-proxy demo`: run a broker, the proxy and a storm of clients, and report whether the promise held.

Rule: the demo uses 127.0.0.1 only, and every process ends with the command. The exit code is 0 if the promise held, 1
if it broke or a process did not start, 2 for invalid options, 130 after Ctrl-C.
"""

import argparse
import asyncio
import os
import signal
import ssl
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import uvloop

from proxy.app.memory.budget import event_log, lists_on_disk
from proxy.cli.demo.broker import LOOPBACK, GeneratedTopics
from proxy.cli.demo.children import Child, ChildFailed, directory_for_lists, metrics, proxy_child
from proxy.cli.demo.overload import run_overload
from proxy.cli.demo.storm import Storm, StormPlan
from proxy.cli.demo.table import MIB, Outcome, broken_promises, mib, render
from proxy.config.config import Config
from proxy.core.descriptors import raise_descriptor_limit
from proxy.core.native import INSTALL, native
from proxy.relay.threads import missing_engine

BROKEN: Final = 1
BAD_OPTIONS: Final = 2
INTERRUPTED: Final = 130
CONNECT_SECONDS: Final = 8.0
STORM_SECONDS: Final = 40.0
# Time for the proxy's memory to settle after the start, before it is measured.
SETTLE_SECONDS: Final = 0.3
SAMPLE_SECONDS: Final = 0.05
SAMPLES_A_LINE: Final = 10
_ERASE_LINE: Final = "\r\x1b[K"


def run_demo(options: argparse.Namespace, _: Mapping[str, str]) -> int:
    """Run the demo and return its exit code."""
    try:
        topics = _checked(options)
    except ValueError as error:
        print(f"pulsar-proxy demo: {error}", file=sys.stderr)
        return BAD_OPTIONS
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return BROKEN if runner.run(_until_interrupted(options, topics)) else 0
        except asyncio.CancelledError:
            print("\ninterrupted", file=sys.stderr)
            return INTERRUPTED
        except ChildFailed as error:
            print(f"pulsar-proxy demo: {error}", file=sys.stderr)
            return BROKEN


def _checked(options: argparse.Namespace) -> GeneratedTopics:
    if options.overload and (missing := missing_engine(native())):
        raise ValueError(f"--overload: {missing}, expected the native extension for the throttle: {INSTALL}")
    for name, least, most in (
        *((name, 1, None) for name in ("connections", "requests", "topics", "heap_mb", "direct_mb")),
        ("namespaces", 0, None),
        ("overload_seconds", 1, 3600),
        ("slow_share", 0, 1),
        ("late_seconds", 0, int(STORM_SECONDS)),
    ):
        value = getattr(options, name)
        if value < least or (most is not None and not value <= most):
            expected = f"{least} or more" if most is None else f"{least} to {most}"
            raise ValueError(f"--{name.replace('_', '-')}: got {value}, expected {expected}")
    try:
        return GeneratedTopics(options.namespaces or options.connections, options.topics, options.name_bytes)
    except ValueError as error:
        raise ValueError(f"--name-bytes: {error}") from error


async def _until_interrupted(options: argparse.Namespace, topics: GeneratedTopics) -> list[str]:
    """Run the scenario that the options ask for, and return the promises that broke."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with tempfile.TemporaryDirectory(prefix="pulsar-proxy-demo-") as directory, ExitStack() as children:
        if options.overload:
            return await run_overload(options, Path(directory), children)
        return await _run_lists(options, topics, Path(directory), children)


async def _run_lists(
    options: argparse.Namespace, topics: GeneratedTopics, directory: Path, children: ExitStack
) -> list[str]:
    """Run broker, proxy and storm; with `--broker-only` no storm, until a child ends, which raises ChildFailed."""
    sizes = [str(size) for size in (topics.namespaces, options.topics, options.name_bytes)]
    broker = children.enter_context(Child("proxy.cli.demo.broker", sizes, directory))
    broker_url = (await broker.said("listening"))["listening"]
    keys = {
        "brokerServiceURL": broker_url,
        "maxTopicListInFlightHeapMemSizeMB": options.heap_mb,
        "maxTopicListInFlightDirectMemSizeMB": options.direct_mb,
        "topicListSpillDirectory": directory_for_lists(directory) or "",
        "eventLogDirectory": options.event_log or "",
    }
    proxy = children.enter_context(proxy_child(directory, options, keys))
    web_port = (await proxy.said("web_port"))["web_port"]
    settings = {key.strip(): value.strip() for key, _, value in (word.partition("=") for word in options.set)}
    path, without = directory / "proxy.conf", bool(missing_engine(native()))
    config = Config.load(path, os.environ, settings, without_extension=without)
    tls = None if config.service_port_tls is None else _trust(config)
    port = (await proxy.said("port"))["port"] if tls is None else (await proxy.said("tls_port"))["tls_port"]
    if options.broker_only:
        last = topics.namespace(topics.namespaces - 1)
        print(f"broker  {broker_url}  (process {broker.pid})")
        print(f"proxy   pulsar{'+ssl' * (tls is not None)}://{LOOPBACK}:{port}  (process {proxy.pid})")
        print(f"web     http://{LOOPBACK}:{web_port}/metrics")
        print(f"topics  in {topics.namespace(0)}" + (f" to {last}" if topics.namespaces > 1 else ""))
        print("Press Ctrl-C to end both.", flush=True)
        async with asyncio.TaskGroup() as group:
            ends = [group.create_task(child.ended()) for child in (broker, proxy)]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
        raise (proxy if broker.running else broker).failed("ended")
    plan = StormPlan(options.connections, options.requests, options.topics, options.slow_share, options.late_seconds)
    storm = Storm(plan, [topics.namespace(number) for number in range(topics.namespaces)], tls)
    await asyncio.sleep(SETTLE_SECONDS)
    idle = proxy.resident_bytes()
    peak = await _peak(proxy, storm, port)
    moved = int((await metrics(web_port)).get("spill_lists_total", 0)) if config.topic_list_spill_directory else None
    proxy.stop()
    broker.stop()
    seen = await broker.said("topic_questions")
    beside = {"event log": sum(line.limit_bytes for line in event_log(config)), "disk": lists_on_disk(config)}
    outcome = Outcome(
        plan,
        storm.tally,
        limits=(options.heap_mb * MIB, options.direct_mb * MIB),
        idle_bytes=idle,
        peak_bytes=max(idle, peak),
        broker_questions=seen["topic_questions"],
        broker_most_outstanding=seen["max_open_questions"],
        beside={name: size for name, size in beside.items() if size},
        lists_on_disk=moved,
    )
    print(f"\n{render(outcome, accept_refusals=options.accept_refusals)}")
    return broken_promises(outcome, accept_refusals=options.accept_refusals)


async def _peak(proxy: Child, storm: Storm, port: int) -> int:
    """Run the storm, show how far it is, and return the most memory that the proxy had."""
    plan, tally = storm.plan, storm.tally
    print(f"{plan.connections:,} clients connect and request {plan.requests} topic lists each", flush=True)
    high_water, most, samples, began = proxy.peak_resident_bytes(), 0, 0, asyncio.get_running_loop().time()
    before, after = (_ERASE_LINE, "") if sys.stdout.isatty() else ("", "\n")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(storm.run(port, CONNECT_SECONDS, STORM_SECONDS))
        while not running.done():
            await asyncio.wait([running], timeout=SAMPLE_SECONDS)
            now = proxy.resident_bytes()
            most, samples = max(most, now), samples + 1
            if running.done() or not samples % SAMPLES_A_LINE:
                seconds = asyncio.get_running_loop().time() - began
                print(
                    f"{before}{seconds:5.1f} s  {tally.answered:,} of {tally.expected:,} answered, {tally.refused:,} "
                    f"refused, {tally.lost:,} lost, {mib(tally.received_bytes)} received, proxy at {mib(now)}",
                    end="\n" if running.done() else after, flush=True,
                )  # fmt: skip
    # The kernel's mark counts as well, if the storm raised it: a peak between two samples is not missed.
    raised = proxy.peak_resident_bytes()
    return max(most, raised if raised > high_water else 0)


def _trust(config: Config) -> ssl.SSLContext:
    """Return what clients of the TLS port use: they trust the very certificate that the proxy was given."""
    context = ssl.create_default_context(cafile=config.tls_certificate_file_path)
    # It need not be its own authority, and may be for another name than this machine's.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context
