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
from proxy.cli.demo.broker import LOOPBACK
from proxy.cli.demo.children import Child, ChildFailed, directory_for_lists, metrics, proxy_conf
from proxy.cli.demo.names import GeneratedTopics
from proxy.cli.demo.storm import Storm, StormPlan
from proxy.cli.demo.table import MIB, Outcome, broken_promises, mib, render
from proxy.config.config import Config
from proxy.core.descriptors import raise_descriptor_limit
from proxy.core.native import DO_WITHOUT, INSTALL, native
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
            from proxy.cli.demo.overload import run_overload

            return await run_overload(options, Path(directory), children)
        demo = Demo(options, topics, Path(directory))
        await demo.start(children)
        if options.broker_only:
            await demo.serve_by_hand()
        outcome = await demo.storm()
    accepts = options.accept_refusals
    print(f"\n{render(outcome, accept_refusals=accepts)}")
    return broken_promises(outcome, accept_refusals=accepts)


class Demo:
    """The broker, the proxy and what they listen at: call `start` first."""

    def __init__(self, options: argparse.Namespace, topics: GeneratedTopics, directory: Path) -> None:
        self._options = options
        self._topics = topics
        self._directory = directory
        self._event_log = Path(options.event_log).resolve() if options.event_log is not None else ""
        self._tls: ssl.SSLContext | None = None
        self._port = self._web_port = 0

    async def start(self, children: ExitStack) -> None:
        """Start the broker, then the proxy; `children` ends them."""
        options, sizes = self._options, (self._topics.namespaces, self._options.topics, self._options.name_bytes)
        self._broker = children.enter_context(Child("proxy.cli.demo.broker", list(map(str, sizes)), self._directory))
        self._broker_url = (await self._broker.said("listening"))["listening"]
        keys = {
            "maxTopicListInFlightHeapMemSizeMB": options.heap_mb,
            "maxTopicListInFlightDirectMemSizeMB": options.direct_mb,
            "topicListSpillDirectory": directory_for_lists(self._directory) or "",
            "eventLogDirectory": self._event_log,
        }
        path = proxy_conf(self._directory, self._broker_url, options.connections, **keys)
        given = [f"--set={word}" for word in options.set]
        if missing := missing_engine(native()):
            print(f"{missing}: the proxy runs {DO_WITHOUT}", file=sys.stderr)
            given.append(DO_WITHOUT)
        self._proxy = children.enter_context(Child("proxy", ["serve", f"--config={path}", *given], self._directory))
        self._web_port = (await self._proxy.said("web_port"))["web_port"]
        settings = {key.strip(): value.strip() for key, _, value in (word.partition("=") for word in options.set)}
        self._config = Config.load(path, os.environ, settings, without_extension=bool(missing))
        port = "port"
        if self._config.service_port_tls is not None:
            self._tls, port = _trust(self._config), "tls_port"
        self._port = (await self._proxy.said(port))[port]

    async def serve_by_hand(self) -> None:
        """Say where everything is, and wait until a child ends; raises ChildFailed then."""
        broker, proxy, topics = self._broker, self._proxy, self._topics
        scheme = "pulsar" if self._tls is None else "pulsar+ssl"
        last = topics.namespace(topics.namespaces - 1)
        print(f"broker  {self._broker_url}  (process {broker.pid})")
        print(f"proxy   {scheme}://{LOOPBACK}:{self._port}  (process {proxy.pid})")
        print(f"web     http://{LOOPBACK}:{self._web_port}/metrics")
        print(f"topics  in {topics.namespace(0)}" + (f" to {last}" if topics.namespaces > 1 else ""))
        print("Press Ctrl-C to end both.", flush=True)
        async with asyncio.TaskGroup() as group:
            ends = [group.create_task(child.ended()) for child in (broker, proxy)]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()
        raise (proxy if broker.running else broker).failed("ended")

    async def storm(self) -> Outcome:
        """Let the clients ask, and return the figures; the children have ended then."""
        options, proxy, config, loop = self._options, self._proxy, self._config, asyncio.get_running_loop()
        sizes = (options.connections, options.requests, options.topics, options.slow_share, options.late_seconds)
        plan = StormPlan(*sizes)
        storm = Storm(plan, [self._topics.namespace(number) for number in range(self._topics.namespaces)], self._tls)
        await asyncio.sleep(SETTLE_SECONDS)
        idle, high_water = proxy.resident_bytes(), proxy.peak_resident_bytes()
        print(f"{plan.connections:,} clients connect and request {plan.requests} topic lists each", flush=True)
        await storm.connect(LOOPBACK, self._port, CONNECT_SECONDS)
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            sampled = await self._sampled(storm, group.create_task(storm.ask(STORM_SECONDS)))
        seconds = loop.time() - began
        # The kernel's mark counts as well, if the storm raised it: a peak between two samples is not missed.
        raised = proxy.peak_resident_bytes()
        storm.close()
        moved = None
        if config.topic_list_spill_directory:
            moved = int((await metrics(self._web_port)).get("spill_lists_total", 0))
        proxy.stop()
        self._broker.stop()
        seen = await self._broker.said("topic_questions")
        beside = {"event log": sum(line.limit_bytes for line in event_log(config)), "disk": lists_on_disk(config)}
        return Outcome(
            plan,
            storm.tally,
            limits=(options.heap_mb * MIB, options.direct_mb * MIB),
            idle_bytes=idle,
            peak_bytes=max(idle, sampled, raised if raised > high_water else 0),
            seconds=seconds,
            broker_questions=seen["topic_questions"],
            broker_most_outstanding=seen["max_open_questions"],
            beside={name: size for name, size in beside.items() if size},
            lists_on_disk=moved,
        )

    async def _sampled(self, storm: Storm, asking: "asyncio.Task[None]") -> int:
        """Sample the proxy's memory while the clients ask, and show how far they are; return the most."""
        most, samples, began = 0, 0, asyncio.get_running_loop().time()
        before, after = (_ERASE_LINE, "") if sys.stdout.isatty() else ("", "\n")
        while True:
            done = asking.done()
            now = self._proxy.resident_bytes()
            most, samples, tally = max(most, now), samples + 1, storm.tally
            if done or not samples % SAMPLES_A_LINE:
                seconds = asyncio.get_running_loop().time() - began
                print(
                    f"{before}{seconds:5.1f} s  {tally.answered:,} of {tally.expected:,} answered, {tally.refused:,} "
                    f"refused, {tally.lost:,} lost, {mib(tally.received_bytes)} received, proxy at {mib(now)}",
                    end="\n" if done else after, flush=True,
                )  # fmt: skip
            if done:
                return most
            await asyncio.wait([asking], timeout=SAMPLE_SECONDS)


def _trust(config: Config) -> ssl.SSLContext:
    """Return what clients of the TLS port use: they trust the very certificate that the proxy was given."""
    context = ssl.create_default_context(cafile=config.tls_certificate_file_path)
    # It need not be its own authority, and may be for another name than this machine's.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context
