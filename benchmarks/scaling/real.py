"""Run the storm on real proxies: processes of their own, the ladder's fake broker and load generator, event logs.

    python -m benchmarks.scaling.real [--quick | --pipeline]

Each storm runs through one proxy and through three, in turns. All processes share this machine, so that processor
time is what is compared, and seconds with the cores that others have left. At the end the event logs of all proxies are
read, as files or (--pipeline) by the pipeline. Writes benchmarks/results/scaling-real.json; --quick to .cache/ only.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.ladder import servers
from benchmarks.ladder.machine import facts
from benchmarks.ladder.processes import CACHE, CHECKOUT, Child, LadderError, end_on_signals, free_ports
from benchmarks.ladder.results import Json, write
from benchmarks.scaling.events import found_by_the_pipeline, storms_in

NAMES: Final = 10_000
FLEETS: Final = (1, 3)
ROUNDS: Final = 3
CONNECTIONS: Final = 3000
LOOK_SECONDS: Final = 0.02
TICKS: Final = os.sysconf("SC_CLK_TCK")
# Longer than a storm of the pipeline may have calm seconds within it.
APART_SECONDS: Final = 6.0
DIRECTORY: Final = CACHE / "scaling"


@dataclass(frozen=True, slots=True)
class Load:
    """A storm: how many clients, and whether they share one list."""

    name: str
    clients: int
    shared: bool


LOADS: Final = (Load("equal", 3000, True), Load("distinct", 600, False))


class Machine:
    """Looks at processor time: of processes by their names, and of the whole machine."""

    def __init__(self, pids: Mapping[str, Sequence[int]]) -> None:
        self._pids = pids
        self.looks: list[tuple[float, dict[str, float], float]] = []

    def look(self) -> None:
        """Take a look; a process that has ended keeps what it had at the look before."""
        spent = {name: sum(map(_spent, pids)) for name, pids in self._pids.items()}
        if self.looks:
            spent = {name: max(value, self.looks[-1][1][name]) for name, value in spent.items()}
        words = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        # All but idle and waiting for a disk.
        self.looks.append((time.monotonic(), spent, (sum(words) - words[3] - words[4]) / TICKS))

    def since(self, seconds: float) -> Json:
        """Return what the last `seconds` before the last look took, and the cores that others kept busy meanwhile."""
        at, spent, busy = self.looks[-1]
        then = next(look for look in reversed(self.looks) if look[0] <= at - seconds or look is self.looks[0])
        found = {f"{name}_seconds": value - then[1][name] for name, value in spent.items()}
        others = busy - then[2] - sum(found.values())
        return {**found, "others_cores": max(0.0, others) / (at - then[0])}


def _spent(pid: int) -> float:
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(words[11]) + int(words[12])) / TICKS


@contextmanager
def running(proxies: int) -> Iterator[tuple[servers.Running, list[servers.Running]]]:
    """Run a broker and proxies until the block ends; each proxy writes its event log to a directory of its own."""
    with ExitStack() as stack:
        broker = servers.start_broker("none", topics=NAMES, name="scaling-broker")
        stack.enter_context(broker.child)
        found = []
        for number in range(1, proxies + 1):
            proxy = _start(number, broker)
            stack.enter_context(proxy.child)
            found.append(proxy)
        yield broker, found


def _start(number: int, broker: servers.Running) -> servers.Running:
    port, web_port = free_ports(2)
    events = DIRECTORY / "events" / f"proxy-{number}"
    events.mkdir(parents=True, exist_ok=True)
    keys = {
        "servicePort": port,
        "webServicePort": web_port,
        "bindAddress": "127.0.0.1",
        "clusterName": "scaling",
        "brokerServiceURL": f"pulsar://127.0.0.1:{broker.port}",
        "shutdownPreDrainMillis": 0,
        "eventLogDirectory": events,
        "eventLogProxyId": f"proxy-{number}",
        "eventLogSalt": "the same salt for all of the fleet",
    }
    config = DIRECTORY / f"proxy-{number}.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-P", "-m", "proxy", "serve", "--config", str(config)]
    child = Child(f"scaling-proxy-{number}", command, inherited | {"PYTHONPATH": str(CHECKOUT)})
    try:
        return servers.Running(child, port, child.wait_ready(port, 120.0), web_port)
    except BaseException:
        child.end()
        raise


def _loadgen(
    command: str, broker: servers.Running, proxies: list[servers.Running], *options: str
) -> tuple[Json, Machine]:
    """Run the load generator against all proxies, its connections in turns; return its figures and looks meanwhile."""
    also = ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies[1:])
    arguments = [str(servers.LOADGEN), command, "--address", f"127.0.0.1:{proxies[0].port}", *options]
    arguments += ["--pid", str(proxies[0].child.pid), *(["--also", also] if also else [])]
    arguments += ["--broker", f"127.0.0.1:{broker.port}"]
    with Child("scaling-load", arguments) as child:
        pids = [proxy.child.pid for proxy in proxies]
        machine = Machine({"proxy": pids, "broker": [broker.child.pid], "load": [child.pid]})
        while child.process.poll() is None:
            machine.look()
            time.sleep(LOOK_SECONDS)
        machine.look()
        if child.process.returncode:
            raise LadderError(f"load generator: {child.tail()}")
    found: Json = json.loads(child.log.read_text())
    return found, machine


def connect(clients: int) -> Json:
    """Return what connecting costs a proxy."""
    with running(1) as (broker, proxies):
        options = ("--first", "1", "--connections", str(clients))
        _loadgen("idle", broker, proxies, *options)
        _, machine = _loadgen("idle", broker, proxies, *options)
    return {"clients": clients, **machine.since(1e9)}


def storm(load: Load, fleet: int, scale: int) -> Json:
    """Return what one storm did: figures of its clients, of the broker, of the proxies together."""
    clients = load.clients // scale
    with running(fleet) as (broker, proxies):
        options = ["--connections", str(clients), "--depth", "1", "--late", "0", "--receive-buffer", "0"]
        options += ["--topics", str(NAMES), "--topic-bytes", "100", *(["--one-namespace"] if load.shared else [])]
        found, machine = _loadgen("late-readers", broker, proxies, *options)
    kept = ("answered", "refused", "lost", "wrong", "questions", "bytes", "seconds_to_end", "p50_ms", "p99_ms")
    return {
        **asdict(load), "clients": clients, "proxies": fleet, "names": NAMES,
        **{name: found[name] for name in kept}, **machine.since(found["seconds_to_end"]),
    }  # fmt: skip


def fakes(runs: list[Json]) -> Json:
    """Return what the fake broker and the clients cost, of the runs with one proxy."""
    alone = [run for run in runs if run["proxies"] == 1]
    distinct = [run for run in alone if not run["shared"]]
    name = median(run["broker_seconds"] / run["questions"] / run["names"] for run in distinct)
    byte = median(run["load_seconds"] / run["bytes"] for run in alone)
    return {"name": name, "client_byte": byte}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling.real", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the clients, one round; not kept")
    parser.add_argument("--pipeline", action="store_true", help="only run the pipeline on the logs of the last run")
    options = parser.parse_args()
    scale, rounds = (10, 1) if options.quick else (1, ROUNDS)
    end_on_signals()
    try:
        if options.pipeline:
            print(found_by_the_pipeline(DIRECTORY))
            return 0
        shutil.rmtree(DIRECTORY, ignore_errors=True)
        DIRECTORY.mkdir(parents=True)
        servers.build_loadgen()
        connecting = connect(CONNECTIONS // scale)
        print(f"connect: {connecting}", flush=True)
        runs = []
        for number in range(rounds):
            for load in LOADS:
                for fleet in FLEETS:
                    time.sleep(APART_SECONDS)
                    runs.append({"round": number, **storm(load, fleet, scale)})
                    print(f"  {runs[-1]}", flush=True)
        result = {
        "scenario": "scaling-real", "title": "a storm over one proxy and over three, with event logs",
        "measured_on": date.today().isoformat(), "machine": facts(), "effort": {"rounds": rounds, "scale": scale},
        "connect": connecting, "fakes": fakes(runs), "runs": runs, "logs": storms_in(DIRECTORY / "events"),
        }  # fmt: skip
        write("scaling-real", result, kept=not options.quick)
    except LadderError as error:
        print(f"scaling: {error}", file=sys.stderr)
        return 1
    return int(any(run["answered"] != run["clients"] or run["refused"] or run["wrong"] for run in runs))


if __name__ == "__main__":
    raise SystemExit(main())
