"""`python -m tests.soak`: load one proxy for so many minutes, count, and judge.

Rule: exit code 0 if every promise held, 1 if one broke, 130 if it was ended early. Load goes to
127.0.0.1 only; nothing outlives the command.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import uvloop

from proxy.cli.demo.broker import LOOPBACK
from proxy.cli.demo.children import Child, directory_for_lists
from proxy.core.descriptors import raise_descriptor_limit
from tests.soak import verdict, watched_proxy
from tests.soak.actions import Place
from tests.soak.brokers import NAMESPACES, TOPICS
from tests.soak.driver import Soak, names
from tests.support.auth.tls import PemFiles, client_context
from tests.support.patience import patient_clocks

INTERRUPTED: Final = 130
ROOT: Final = Path(__file__).resolve().parents[2]
KEPT: Final = Path(__file__).with_name("results")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a soak and return the exit code."""
    options = _options(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    raise_descriptor_limit()
    with (
        tempfile.TemporaryDirectory(prefix="pulsar-proxy-soak-") as place,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        try:
            found = runner.run(_soak(options, Path(place)))
        except asyncio.CancelledError:
            return INTERRUPTED
    _write(options, found)
    for text in found["broken"]:
        print(f"BROKEN  {text}", file=sys.stderr)
    print(_line(options, found), flush=True)
    return 0 if found["kept"] else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (default: %(default)s)")
    parser.add_argument("--pace", type=float, default=20.0, help="actions a second (default: %(default)s)")
    parser.add_argument("--moments", type=int, default=4, help="quiet moments (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the dice (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "soak-results", help="directory of results")
    parser.add_argument("--keep", action="store_true", help="keep the report for docs/reliability.md, too")
    options = parser.parse_args(arguments)
    if options.minutes <= 0 or options.pace <= 0 or options.moments < 2:
        parser.error("--minutes and --pace: expected more than 0; --moments: expected 2 or more")
    return options


async def _soak(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    census = place / "census.json"
    seconds = options.minutes * 60
    with _children(options, place, census) as (brokers, start_proxy):
        ports = await brokers.said("commands")
        with start_proxy(ports) as proxy:
            tls_port, port, web_port = [(await proxy.said(name))[name] for name in ("tls_port", "port", "web_port")]
            at = Place(
                port=port,
                tls_port=tls_port,
                web_port=web_port,
                brokers=ports,
                namespaces=NAMESPACES,
                topics=TOPICS,
                trusting=client_context(),
                dice=random.Random(options.seed),
                pause_seconds=min(3.0, seconds / 100),
            )
            soak = Soak(at, proxy, census, lambda number: _reload(place, proxy, number))
            await soak.run(seconds, options.pace, options.moments, max(0.2, min(5.0, seconds / 120)))
    found = verdict.report(soak.record, names(), options.minutes)
    day = datetime.now(UTC).date().isoformat()
    return {"measured_on": day, "pace": options.pace, **found}


@contextmanager
def _children(options: argparse.Namespace, place: Path, census: Path) -> Iterator[Any]:
    os.environ[watched_proxy.FILE] = str(census)
    with Child("tests.soak.brokers", [], place) as brokers:

        def proxy(ports: Mapping[str, int]) -> Child:
            config = place / "proxy.conf"
            config.write_text(_conf(options, place, ports))
            return Child("tests.soak.watched_proxy", ["serve", "--config", str(config)], place)

        yield brokers, proxy


def _conf(options: argparse.Namespace, place: Path, ports: Mapping[str, int]) -> str:
    keys: dict[str, Any] = {
        "servicePort": 0,
        "webServicePort": 0,
        "bindAddress": LOOPBACK,
        "clusterName": "soak",
        "controlSocketPath": "none",
        "brokerServiceURL": f"pulsar://{LOOPBACK}:{ports['commands']}",
        "brokerWebServiceURL": f"http://{LOOPBACK}:{ports['web']}",
        "brokerProxyAllowedTargetPorts": "*",
        # Few lists fit: the others wait, move to disk, or are refused.
        "maxTopicListInFlightHeapMemSizeMB": 1,
        "maxTopicListInFlightDirectMemSizeMB": 1,
        "clientSocketSendBufferBytes": 16384,
        "watchTopicListLimitEnabled": "true",
        "eventLogDirectory": place / "events",
        "eventLogFilesMaxTotalMB": 64,
        **patient_clocks(),
        "shutdownPreDrainMillis": 0,
        "shutdownDrainMillis": 500,
        **PemFiles.write(place / "tls").server_keys,
    }
    spill = directory_for_lists(place) or directory_for_lists(ROOT)
    if spill is not None:
        keys["topicListSpillDirectory"] = spill
    return "".join(f"{key}={value}\n" for key, value in keys.items())


def _reload(place: Path, proxy: Child, number: int) -> None:
    """Change a key that is live, write the certificate anew, and tell the proxy."""
    config = place / "proxy.conf"
    kept = [line for line in config.read_text().splitlines() if not line.startswith("handshakeTimeoutMillis=")]
    config.write_text("\n".join([*kept, f"handshakeTimeoutMillis={10_000 + number % 2}"]) + "\n")
    PemFiles.write(place / "tls")
    os.kill(proxy.pid, signal.SIGHUP)


def _write(options: argparse.Namespace, found: dict[str, Any]) -> None:
    for directory in [options.out, *([KEPT] if options.keep else [])]:
        (directory / "soak.json").write_text(json.dumps(found) + "\n")


def _line(options: argparse.Namespace, found: dict[str, Any]) -> str:
    most = found["bytes_an_hour_at_most"]
    steep = "no slope in so short a time" if most is None else (
        f"{found['bytes_an_hour'] / 1e6:+.2f} MB/h, at most {most / 1e6:.2f} MB/h (95 %)"
    )  # fmt: skip
    actions = sum(found["actions"].values())
    return (
        f"soak of {options.minutes:g} min: {'kept' if found['kept'] else 'BROKEN'}; "
        f"{actions:,} actions, {found['reloads']} reloads; memory {steep}; results in {options.out}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
