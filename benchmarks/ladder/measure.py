"""Owns how a scenario is run: which process when, in which order. Judges nothing and writes no file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from benchmarks.ladder.certificates import make_certificates
from benchmarks.ladder.processes import LadderError
from benchmarks.ladder.processor import per_unit
from benchmarks.ladder.rows import ROWS, Scenario
from benchmarks.ladder.secured import Secured
from benchmarks.ladder.servers import LOADGEN, RUN, Running, start, start_broker
from benchmarks.ladder.tokens import Tokens, make_tokens

Report = dict[str, float | str]

LOADGEN_LIMIT_SECONDS = 180


@dataclass(frozen=True)
class Effort:
    """How long to look: the full figures, or a quick look that nothing may be concluded from."""

    pairs: int = 7
    seconds: float = 4.0
    java_warmup_seconds: float = 30.0
    starts: int = 10
    repeat: bool = True  # as often as the scenario says; once if not
    flood_seconds: float = 10.0  # for a row of its own (memory)


@dataclass
class Measured:
    """The results of a row: a report per run, and what its process held."""

    reports: list[Report] = field(default_factory=list)
    peak_rss_bytes: int = 0
    threads: int = 0

    def series(self, quantity: str) -> list[float]:
        return [float(report[quantity]) for report in self.reports]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Stage:
    """The brokers of a run: that behind the server, and the second of scenarios that have two. And TLS and tokens."""

    broker: Running
    second: Running | None
    secured: Secured | None = None
    tokens: Tokens | None = None

    def target(self, running: Running) -> list[str]:
        """Return the load generator's options that say whom to connect to, and how."""
        tokens = self.tokens.load_options() if self.tokens else []
        if self.secured is None:
            return ["--address", f"127.0.0.1:{running.port}", *tokens]
        return ["--address", f"127.0.0.1:{running.tls_port}", *self.secured.load_options(), *tokens]

    def server(self, row_name: str, scenario: Scenario) -> Running:
        """Start the server of a row in front of the broker."""
        return start(row_name, self.broker, scenario.settings, self.secured, self.tokens)

    def addresses(self, running: Running) -> dict[str, str]:
        """Return what may stand in a scenario's options in braces."""
        second = self.second.port if self.second else 0
        ports = {"broker": self.broker.port, "second": second, "web": running.web_port}
        return {name: f"127.0.0.1:{port}" for name, port in ports.items()}


@contextmanager
def staged(scenario: Scenario) -> Iterator[Stage]:
    """Start the scenario's brokers and end them with the block."""
    with ExitStack() as stack:
        secured = _secured(scenario)
        second = None
        if scenario.second is not None:
            second = start_broker("none", topics=scenario.topics, name="second", options=scenario.second)
            stack.enter_context(second.child)
        known = {"second": f"127.0.0.1:{second.port if second else 0}"}
        options = tuple(option.format_map(known) for option in scenario.broker)
        broker = start_broker(scenario.data, topics=scenario.topics, options=options, secured=secured)
        stack.enter_context(broker.child)
        tokens = make_tokens(RUN, scenario.tokens) if scenario.tokens else None
        yield Stage(broker, second, secured, tokens)


def _secured(scenario: Scenario) -> Secured | None:
    if not scenario.tls:
        return None
    return Secured(make_certificates(RUN / "certificates"))


def load(scenario: Scenario, row_name: str, running: Running, stage: Stage, seconds: float | None) -> Report:
    """Run the load generator once and return what it printed."""
    options = [option.format_map(stage.addresses(running)) for option in scenario.options]
    command = [str(LOADGEN), scenario.command, *stage.target(running), *options]
    command += ["--topics", str(scenario.topics)]
    row = ROWS[row_name]
    if row.relayed or (scenario.relayed and row.server == "java"):
        command += ["--via", f"127.0.0.1:{stage.broker.port}"]
    if scenario.kind == "memory":
        command += ["--pid", str(running.child.pid)]
    if scenario.timed and seconds is not None:
        command += ["--seconds", f"{seconds:.2f}".rstrip("0").rstrip(".")]
    if scenario.kind == "paired":
        command += ["--watch", _watched(running, stage)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOADGEN_LIMIT_SECONDS, check=False)
    if done.returncode != 0:
        raise LadderError(f"row {row_name}: {done.stderr.strip()}\n{running.child.tail()}")
    report: Report = json.loads(done.stdout)
    return report


def _watched(running: Running, stage: Stage) -> str:
    """Return whose processor time the load generator looks at beside its own; without a proxy there is none."""
    children = {"broker": stage.broker.child, "proxy": running.child}
    if running is stage.broker:
        del children["proxy"]
    return ",".join(f"{name}={child.pid}" for name, child in children.items())


def paired(scenario: Scenario, rows: tuple[str, ...], effort: Effort) -> dict[str, Measured]:
    """Run all rows next to each other, round by round, every other round backwards: the runs of one round make
    the pairs of every ratio, and no row is always the one that comes after a certain other."""
    measured = {name: Measured() for name in rows}
    with ExitStack() as stack:
        stage = stack.enter_context(staged(scenario))
        servers: dict[str, Running] = {}
        for name in rows:
            servers[name] = stage.server(name, scenario)
            stack.enter_context(servers[name].child)
        for name in servers:
            if ROWS[name].server == "java":
                say(f"  warming row {name} for {effort.java_warmup_seconds:.0f} s")
                load(scenario, name, servers[name], stage, effort.java_warmup_seconds)
        for turn in range(effort.pairs * scenario.repeats):
            for name in rows if turn % 2 == 0 else reversed(rows):
                report = load(scenario, name, servers[name], stage, effort.seconds)
                report |= per_unit(report, scenario.quantity)
                measured[name].reports.append(report)
                say(f"  {turn + 1}/{effort.pairs * scenario.repeats} row {name}: {_brief(scenario, report)}")
        for name in rows:
            child = servers[name].child
            measured[name].peak_rss_bytes, measured[name].threads = child.peak_rss_bytes(), child.threads()
    return measured


def memory(scenario: Scenario, rows: tuple[str, ...], effort: Effort) -> dict[str, Measured]:
    """Run each row on a fresh server with a fresh broker behind it: once, or as often as the scenario says,
    the rows in turns."""
    measured = {name: Measured() for name in rows}
    repeats = scenario.repeats if effort.repeat else 1
    for turn in range(repeats):
        for name in rows if turn % 2 == 0 else reversed(rows):
            with staged(scenario) as stage, ExitStack() as stack:
                running = stage.server(name, scenario)
                stack.enter_context(running.child)
                report = load(scenario, name, running, stage, effort.flood_seconds)
                say(f"  {turn + 1}/{repeats} row {name}: {_brief(scenario, report)}")
                row, peak = measured[name], float(report.get("peak_rss_bytes", running.child.peak_rss_bytes()))
                row.reports.append(report)
                row.peak_rss_bytes, row.threads = max(row.peak_rss_bytes, int(peak)), running.child.threads()
    return measured


def starts(scenario: Scenario, rows: tuple[str, ...], effort: Effort) -> dict[str, Measured]:
    """Start each row's server again and again; the first start, which reads files from disk, is not counted."""
    measured = {name: Measured() for name in rows}
    broker = start_broker(scenario.data)
    with broker.child:
        for turn in range(effort.starts + 1):
            for name in rows:
                running = start(name, broker)
                with running.child:
                    measured[name].peak_rss_bytes = running.child.peak_rss_bytes()
                    measured[name].threads = running.child.threads()
                if turn > 0:
                    measured[name].reports.append({"seconds": running.ready_seconds})
                    say(f"  {turn}/{effort.starts} row {name}: {running.ready_seconds:.3f} s")
    return measured


RUNNERS: dict[str, Callable[[Scenario, tuple[str, ...], Effort], dict[str, Measured]]] = {
    "paired": paired,
    "memory": memory,
    "start": starts,
}


def _brief(scenario: Scenario, report: Report) -> str:
    shown = ["per_second", "mb_per_second", "cpu_us", "proxy_thread", "p99_ms", "answered", "refused", "lost", "wrong"]
    shown += ["idle_rss_bytes", "peak_rss_bytes", "bytes_per_connection"]
    shown += [*scenario.shown, *(bound.quantity for bound in scenario.bounds)]
    return ", ".join(f"{name} {report[name]}" for name in dict.fromkeys(shown) if name in report)
