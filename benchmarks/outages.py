"""Outages of brokers and proxies: what kills, standstills and restarts cost real clients, with and without a proxy.

    python -m benchmarks.outages [--only WORDS] [--askers N] [--quick]

Rule: each row is one outage in one way: `direct` is the same clients at the broker itself, which is what Pulsar does
without any proxy. Rows that were not run now stay in the file of results as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.ladder import machine, results
from tests.pulsar import java_consumers
from tests.pulsar.harness import check
from tests.pulsar.outages import DURABLE, Clients, OutageFailed, Run, Size
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.proxy_process import Proxy, start_proxy, stop_proxy
from tests.pulsar.rolling import Fleet, fleet
from tests.pulsar.standalone import PULSAR_VERSION, MissingToolError, Standalone

NAME: Final = "outages"
FROZEN_SECONDS: Final = 20.0
AWAY_SECONDS: Final = 5.0
WAYS: Final = ("direct", "native", "asyncio")

Place = tuple[str, str]


class Scene:
    """A broker, what stands before it, and the clients."""

    def __init__(self, directory: Path, broker: Standalone, before: Proxy | Fleet | None) -> None:
        self.directory = directory
        self.broker = broker
        self.before = before

    @property
    def service_url(self) -> str:
        """Return where the clients connect."""
        return self.broker.broker.service_url if self.before is None else self.before.service_url


def broker_killed(scene: Scene, clients: Clients) -> None:
    """Kill the broker, and start it again."""
    scene.broker.kill()
    scene.broker.start()
    clients.go_on("broker killed")


def broker_frozen(scene: Scene, clients: Clients) -> None:
    """Stop the broker's process, and let it go on."""
    with scene.broker.frozen():
        time.sleep(FROZEN_SECONDS)
    clients.go_on("broker stands still")


def broker_restarted(scene: Scene, clients: Clients) -> None:
    """End the broker, and start it again."""
    scene.broker.stop()
    scene.broker.start()
    clients.go_on("broker restarted")


def proxy_killed(scene: Scene, clients: Clients) -> None:
    """Kill the proxy three times: at once there again, and after a while."""
    for away in (0.0, AWAY_SECONDS, 0.0):
        assert isinstance(scene.before, Proxy)
        scene.before.process.kill()
        time.sleep(away)
        scene.before = start_proxy(scene.directory, scene.broker.broker, scene.before.keys)
        clients.go_on("proxy killed")


def rolling(scene: Scene, clients: Clients) -> None:
    """Restart three proxies, one after the other, twice."""
    assert isinstance(scene.before, Fleet)
    for number in (*range(3), *range(3)):
        scene.before.restart(number)
        clients.go_on("one of three proxies restarted")


OUTAGES: Final[dict[str, Callable[[Scene, Clients], None]]] = {
    "broker killed": broker_killed,
    "broker stands still": broker_frozen,
    "broker restarted": broker_restarted,
    "proxy killed": proxy_killed,
    "three proxies restarted in turn": rolling,
}


def places() -> Iterator[Place]:
    """Yield each outage and way that makes sense."""
    for outage, act in OUTAGES.items():
        yield from ((outage, way) for way in WAYS if way != "direct" or act not in (proxy_killed, rolling))


@contextmanager
def staged(directory: Path, broker: Standalone, place: Place) -> Iterator[Scene]:
    """Start what stands before the broker until the block ends; raises ProcessFailedError."""
    outage, way = place
    if way == "direct":
        yield Scene(directory, broker, None)
        return
    keys = {"relayEngine": way, "numIOThreads": "1"} if way == "native" else {"relayEngine": way}
    if OUTAGES[outage] is rolling:
        with fleet(directory, broker.broker, keys) as proxies:
            yield Scene(directory, broker, proxies)
        return
    scene = Scene(directory, broker, start_proxy(directory, broker.broker, keys))
    try:
        yield scene
    finally:
        assert isinstance(scene.before, Proxy)
        stop_proxy(scene.before)


def run(directory: Path, broker: Standalone, place: Place, size: Size) -> dict[str, Any]:
    """Run one outage in one way, and return its row."""
    outage, way = place
    own = directory / f"{outage}-{way}".replace(" ", "-")
    own.mkdir()
    name = f"{own.name}-{int(time.time())}"
    with staged(own, broker, place) as scene:
        trial = Run(own, broker.broker, name, size)
        with trial.clients(scene.service_url) as clients:
            OUTAGES[outage](scene, clients)
            report = trial.report(clients)
    # Without a proxy attempts and errors are the broker's own.
    asked = [] if way == "direct" else report.asked.broken(failures=OUTAGES[outage] is rolling)
    row = {"outage": outage, "way": way, "measured_on": machine.today()}
    return {**row, "broken": report.broken() + asked, **report.shown()}


def main() -> int:
    """Run and keep the rows; 1 if a promise was broken or something could not run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outages", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="rows whose name has this, such as 'broker killed' or native")
    parser.add_argument("--askers", type=int, default=300, help="clients that ask all the time (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="the rows go to .cache/ only")
    options = parser.parse_args()
    size = Size(producers=2, askers=options.askers)
    rows: list[dict[str, Any]] = []
    failed = False
    try:
        java_consumers.prepare()
        with tempfile.TemporaryDirectory(prefix="outages-") as name:
            directory = Path(name)
            broker = Standalone(directory, by_docker=check({}) == "docker", kind=DURABLE)
            try:
                broker.start()
                for place in places():
                    if options.only not in " ".join(place):
                        continue
                    try:
                        rows.append(run(directory, broker, place, size))
                    except OutageFailed as error:
                        # The other rows are still worth their time.
                        failed = True
                        print(f"{NAME}: {' '.join(place)}: {error}", file=sys.stderr, flush=True)
                        continue
                    print(json.dumps(rows[-1]), flush=True)
                    # Half an hour of rows must not be lost with the last of them.
                    _keep(rows, size, kept=not options.quick)
            finally:
                broker.stop()
    except (MissingToolError, ProcessFailedError) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1
    return int(failed or any(row["broken"] for row in rows))


def _keep(rows: list[dict[str, Any]], size: Size, *, kept: bool) -> None:
    known = {(row["outage"], row["way"]): row for each in results.load([NAME]) for row in each["rows"]}
    known |= {(row["outage"], row["way"]): row for row in rows}
    document = {
        "scenario": NAME,
        "pulsar": PULSAR_VERSION,
        "askers": size.askers,
        "frozen_seconds": FROZEN_SECONDS,
        "machine": machine.facts(),
        "rows": [known[place] for place in places() if place in known],
    }
    results.write(NAME, document, kept=kept)


if __name__ == "__main__":
    sys.exit(main())
