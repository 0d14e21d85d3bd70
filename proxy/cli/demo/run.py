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
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from proxy.app.memory.budget import event_log, lists_on_disk
from proxy.cli.demo.broker import LOOPBACK, raise_file_limit
from proxy.cli.demo.children import Child, ChildFailed
from proxy.cli.demo.names import GeneratedTopics
from proxy.cli.demo.spill import directory_for_lists, lists_moved
from proxy.cli.demo.storm import Storm, StormPlan
from proxy.cli.demo.table import MIB, Outcome, broken_promises, render
from proxy.cli.demo.watch import Watch
from proxy.config.config import Config
from proxy.core.native import DO_WITHOUT, INSTALL, native
from proxy.relay.threads import missing_engine

BROKEN: Final = 1
BAD_OPTIONS: Final = 2
INTERRUPTED: Final = 130
CONNECT_SECONDS: Final = 8.0
STORM_SECONDS: Final = 40.0
# Time for the proxy's memory to settle after the start, before it is measured.
SETTLE_SECONDS: Final = 0.3


class Processes(NamedTuple):
    """The two child processes and their addresses."""

    broker: Child
    proxy: Child
    broker_url: str
    proxy_port: int
    tls: ssl.SSLContext | None
    web_port: int
    event_log_bytes: int
    disk_bytes: int
    spills: bool


def run_demo(options: argparse.Namespace) -> int:
    """Run the demo and return its exit code."""
    try:
        topics = _checked(options)
    except ValueError as error:
        print(f"pulsar-proxy demo: {error}", file=sys.stderr)
        return BAD_OPTIONS
    raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(_until_interrupted(options, topics))
        except asyncio.CancelledError:
            print("\ninterrupted", file=sys.stderr)
            return INTERRUPTED
        except ChildFailed as error:
            print(f"pulsar-proxy demo: {error}", file=sys.stderr)
            return BROKEN


def _checked(options: argparse.Namespace) -> GeneratedTopics:
    for name in ("connections", "requests", "topics", "heap_mb", "direct_mb"):
        if getattr(options, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')}: got {getattr(options, name)}, expected 1 or more")
    if options.namespaces < 0:
        raise ValueError(f"--namespaces: got {options.namespaces}, expected 0 or more")
    if options.overload and (missing := missing_engine(native())):
        raise ValueError(f"--overload: {missing}, expected the native extension for the throttle: {INSTALL}")
    if not 1 <= options.overload_seconds <= 3600:
        raise ValueError(f"--overload-seconds: got {options.overload_seconds}, expected 1 to 3600")
    if not 0 <= options.slow_share <= 1:
        raise ValueError(f"--slow-share: got {options.slow_share}, expected 0 to 1")
    if not 0 <= options.late_seconds <= STORM_SECONDS:
        raise ValueError(f"--late-seconds: got {options.late_seconds}, expected 0 to {STORM_SECONDS:g}")
    try:
        return GeneratedTopics(options.namespaces or options.connections, options.topics, options.name_bytes)
    except ValueError as error:
        raise ValueError(f"--name-bytes: {error}") from error


async def _until_interrupted(options: argparse.Namespace, topics: GeneratedTopics) -> int:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    if options.overload:
        from proxy.cli.demo.overload import run_overload

        return await run_overload(options)
    with tempfile.TemporaryDirectory(prefix="pulsar-proxy-demo-") as directory:
        async with _processes(options, topics, Path(directory)) as processes:
            if options.broker_only:
                return await _serve_by_hand(processes, topics)
            outcome = await _storm(options, topics, processes)
        accepts = options.accept_refusals
        print(f"\n{render(outcome, accept_refusals=accepts)}")
    return BROKEN if broken_promises(outcome, accept_refusals=accepts) else 0


@asynccontextmanager
async def _processes(options: argparse.Namespace, topics: GeneratedTopics, directory: Path) -> AsyncIterator[Processes]:
    sizes = {"namespaces": topics.namespaces, "topics": options.topics, "name-bytes": options.name_bytes}
    arguments = [text for name, value in sizes.items() for text in (f"--{name}", str(value))]
    with Child("proxy.cli.demo.broker", ["--port", "0", *arguments], directory) as broker:
        broker_url = (await broker.said("listening"))["listening"]
        config = directory / "proxy.conf"
        config.write_text(_proxy_conf(options, broker_url, directory))
        given = [word for setting in options.set for word in ("--set", setting)]
        if missing := missing_engine(native()):
            print(f"{missing}: the proxy runs {DO_WITHOUT}", file=sys.stderr)
            given.append(DO_WITHOUT)
        with Child("proxy", ["serve", "--config", str(config), *given], directory) as proxy:
            web_port = (await proxy.said("web_port"))["web_port"]
            started = configuration(options, config)
            tls = _trust(started) if started.service_port_tls is not None else None
            port_key = "port" if tls is None else "tls_port"
            port = (await proxy.said(port_key))[port_key]
            spills, log = bool(started.topic_list_spill_directory), event_log_bytes(started)
            yield Processes(broker, proxy, broker_url, port, tls, web_port, log, lists_on_disk(started), spills)


def configuration(options: argparse.Namespace, path: Path) -> Config:
    """Return the configuration with which the proxy started."""
    given = (word.partition("=") for word in options.set)
    settings = {key.strip(): value.strip() for key, _, value in given}
    return Config.load(path, os.environ, settings, without_extension=bool(missing_engine(native())))


def _trust(config: Config) -> ssl.SSLContext:
    """Return what clients of the TLS port use: they trust the very certificate that the proxy was given."""
    context = ssl.create_default_context(cafile=config.tls_certificate_file_path)
    # It need not be its own authority, and may be for another name than this machine's.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


def event_log_bytes(config: Config) -> int:
    """Return the memory budget of the event log."""
    return sum(line.limit_bytes for line in event_log(config))


def _proxy_conf(options: argparse.Namespace, broker_url: str, directory: Path) -> str:
    keys = {
        "servicePort": 0,
        "webServicePort": 0,
        "bindAddress": LOOPBACK,
        "clusterName": "demo",
        "brokerServiceURL": broker_url,
        "brokerProxyAllowedTargetPorts": "*",
        "maxConcurrentInboundConnections": max(10_000, options.connections),
        "maxTopicListInFlightHeapMemSizeMB": options.heap_mb,
        "maxTopicListInFlightDirectMemSizeMB": options.direct_mb,
        "shutdownPreDrainMillis": 0,
        "shutdownDrainMillis": 2000,
    }
    if options.event_log is not None:
        keys["eventLogDirectory"] = Path(options.event_log).resolve()
    spill = directory_for_lists([directory])
    if spill is not None:
        keys["topicListSpillDirectory"] = spill
    return "".join(f"{key}={value}\n" for key, value in keys.items())


async def _serve_by_hand(processes: Processes, topics: GeneratedTopics) -> int:
    print(f"broker  {processes.broker_url}  (process {processes.broker.pid})")
    scheme = "pulsar" if processes.tls is None else "pulsar+ssl"
    print(f"proxy   {scheme}://{LOOPBACK}:{processes.proxy_port}  (process {processes.proxy.pid})")
    print(f"web     http://{LOOPBACK}:{processes.web_port}/metrics")
    last = topics.namespace(topics.namespaces - 1)
    print(f"topics  in {topics.namespace(0)}" + (f" to {last}" if topics.namespaces > 1 else ""))
    print("Press Ctrl-C to end both.", flush=True)
    async with asyncio.TaskGroup() as group:
        ends = [group.create_task(child.ended()) for child in (processes.broker, processes.proxy)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
    ended = processes.proxy if processes.broker.running else processes.broker
    raise ChildFailed(f"{ended.module} ended\n{ended.tail()}")


async def _storm(options: argparse.Namespace, topics: GeneratedTopics, processes: Processes) -> Outcome:
    plan = StormPlan(options.connections, options.requests, options.topics, options.slow_share, options.late_seconds)
    storm = Storm(plan, [topics.namespace(number) for number in range(topics.namespaces)], processes.tls)
    await asyncio.sleep(SETTLE_SECONDS)
    watch = Watch(storm, processes.proxy)
    print(f"{plan.connections:,} clients connect and request {plan.requests} topic lists each", flush=True)
    await storm.connect(LOOPBACK, processes.proxy_port, CONNECT_SECONDS)
    await watch.during(storm.ask(STORM_SECONDS))
    storm.close()
    moved = await lists_moved(LOOPBACK, processes.web_port) if processes.spills else None
    processes.proxy.stop()
    processes.broker.stop()
    seen = await processes.broker.said("topic_questions")
    return Outcome(
        plan=plan,
        tally=storm.tally,
        heap_bytes=options.heap_mb * MIB,
        direct_bytes=options.direct_mb * MIB,
        idle_bytes=watch.idle_bytes,
        peak_bytes=watch.peak_bytes,
        storm_seconds=watch.storm_seconds,
        broker_questions=seen["topic_questions"],
        broker_most_outstanding=seen["max_open_questions"],
        event_log_bytes=processes.event_log_bytes,
        disk_bytes=processes.disk_bytes,
        lists_on_disk=moved,
    )
