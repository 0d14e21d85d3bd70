"""`python -m tests.load`: run scenarios with Locust against a proxy, or against the demo when no URL is given.

Rule: exit code 0 if every promise held, 1 if one broke or something did not start, 2 for options that make no sense.
Load goes to the given URL and nowhere else. Imports no Locust: it lives in the children.
"""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from tests.load.programs import ENDING_SIGNALS, ROOT, DidNotStart, Target, demo, run_locust

SCENARIOS: Final = ("reconnect_storm", "slow_readers", "mixed_tenants")
USERS: Final = {"reconnect_storm": 120, "slow_readers": 20, "mixed_tenants": 24}
# The demo's namespaces are of one tenant; weights make them as unequal as tenants are.
DEMO_WEIGHTS: Final = ",".join(f"demo/ns-{number}@{weight}" for number, weight in enumerate((8, 4, 2, 1)))
BROKEN: Final = 1
ANSWER_SECONDS: Final = 45
STOP_SECONDS: Final = ANSWER_SECONDS + 5
# Locust's start, the writing of its files, and patience with a busy machine.
OTHER_SECONDS: Final = 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scenarios and give the exit code."""
    options, more = _options(arguments)
    for number in ENDING_SIGNALS:
        signal.signal(number, _leave)
    options.out.mkdir(parents=True, exist_ok=True)
    target = nullcontext(Target(options.url, "", 0)) if options.url else demo(options.proxy_set)
    try:
        with target as at:
            print(f"load on {at.url}, results in {options.out}", flush=True)
            codes = [_run(name, at, options, more) for name in options.scenario or SCENARIOS]
    except DidNotStart as error:
        print(f"load test: {error}", file=sys.stderr)
        return BROKEN
    return max(codes)


def _options(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = _parser()
    options, more = parser.parse_known_args(arguments)
    if options.url and options.proxy_set:
        parser.error("--proxy-set: got it beside --url, expected one of them: it is for the demo's own proxy")
    if wrong := next((setting for setting in options.proxy_set if "=" not in setting), None):
        parser.error(f"--proxy-set: got {wrong!r}, expected KEY=VALUE")
    if options.seconds < 1:
        parser.error(f"--seconds: got {options.seconds}, expected 1 or more")
    return options, more


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.load",
        allow_abbrev=False,
        description="load a Pulsar proxy and judge it; other options go to Locust (`locust --help -f SCENARIO`)",
    )
    parser.add_argument("--url", default="", help="pulsar://host:port; without it the demo is started")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="may be repeated (default: all)")
    parser.add_argument("--seconds", type=int, default=12, metavar="N", help="of each scenario (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "load-results", help="directory for CSV, JSON and HTML")
    parser.add_argument(
        "--proxy-set", action="append", default=[], metavar="KEY=VALUE", help="a key of the demo's proxy"
    )
    return parser


def _leave(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _run(name: str, at: Target, options: argparse.Namespace, more: Sequence[str]) -> int:
    verdict = options.out / f"{name}.promises.json"
    # A verdict of an earlier run must not stand for a run that wrote none.
    verdict.unlink(missing_ok=True)
    code = run_locust(
        [*_locust_arguments(name, at, options), f"--promises-file={verdict}", *more],
        options.seconds + STOP_SECONDS + OTHER_SECONDS,
    )
    print(_line(name, code, verdict), flush=True)
    return code if verdict.exists() else code or BROKEN


def _locust_arguments(name: str, at: Target, options: argparse.Namespace) -> list[str]:
    seconds, out = options.seconds, options.out
    given = {
        "locustfile": ROOT / "tests" / "load" / f"{name}.py",
        "host": at.url,
        "users": USERS[name],
        "spawn-rate": USERS[name],
        "run-time": f"{seconds}s",
        "ramp-seconds": seconds / 4,
        "hold-seconds": seconds / 2,
        "calm-seconds": seconds / 4,
        "answer-seconds": ANSWER_SECONDS,
        "stop-timeout": STOP_SECONDS,
        "csv": out / name,
        "html": out / f"{name}.html",
        "json-file": out / name,  # Locust adds the suffix to this one
        "loglevel": "WARNING",
    }
    if at.topics:
        given["namespaces"] = DEMO_WEIGHTS if name == "mixed_tenants" else at.namespaces
        given["topics"] = at.topics
    return ["--headless", "--only-summary", *(f"--{option}={value}" for option, value in given.items())]


def _line(name: str, code: int, verdict: Path) -> str:
    if not verdict.exists():
        return f"{name:16}  exit code {code}, no verdict"
    seen: dict[str, Any] = json.loads(verdict.read_text())
    ends = ", ".join(
        f"{seen[end]} {end}" for end in ("answered", "dropped", "refused", "failed", "wrong", "closed", "lost")
    )
    ping = f"PING p99 {seen['ping_p99_ms']:g} ms (generator's lag {seen['generator_lag_p99_ms']:g} ms)"
    return f"{name:16}  {'kept' if code == 0 else 'BROKEN'}: {seen['asked']} asked, {ends}; {ping}"


if __name__ == "__main__":
    sys.exit(main())
