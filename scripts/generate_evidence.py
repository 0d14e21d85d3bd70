"""Write what README.md and docs/ say of measurements, out of benchmarks/results: no figure there is written by hand.

A page has what its marks ask for; its prose is written by hand, and names no figure of a result.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from textwrap import wrap
from typing import Any, Final

from benchmarks.ladder.neighbours import missed
from benchmarks.ladder.results import FLOODS, load
from benchmarks.ladder.rows import MIB, Scenario
from benchmarks.ladder.scenarios import LIST_BYTES, SCENARIOS
from benchmarks.ladder.verdict import FAULTS, GROWN
from proxy.app.memory.budget import CRYPTOGRAPHY_BYTES, IDLE_PROCESS_BYTES, REQUEST_BYTES
from scripts.generated import ROOT, placed

Json = Mapping[str, Any]

OURS, JAVA = "04", "06"
# Which of the two is asked of most rows is said by no word.
ROWS: Final = {
    "00c": "a bare relay", "00s": "a bare relay", "01": "no proxy", "06": "the Java proxy", "07": "HAProxy",
    "07s": "HAProxy that splices", "04s": "with a disk", "02b": "the version before", "04b": "the version before",
}  # fmt: skip
QUANTITIES: Final = {
    "per_second": "a second", "mb_per_second": "MB/s", "cpu_us": "processor time of a {unit}",
    "peak_rss_bytes": "peak memory", "seconds_to_end": "until the last answer",
    "seconds": "until a client is connected",
}  # fmt: skip
# The scenarios of docs/performance.md, in words of readers.
WORDS: Final = {
    "late-readers": "4,000 lists of 1 MB, clients begin to read 8 s late",
    "lists-equal": "5,000 equal requests for 1 MB at once",
    "lists": "lists of 1 MB, a namespace each, 16 connections",
    "lists-storm": "lists of 1 MB, one namespace, 16 connections",
    "lists-storm-200": "lists of 1 MB, one namespace, 200 connections",
    "own-token-storm": "2,000 clients of one role with a token each",
    "own-token-storm-warm": "2,000 clients of one role with a token each, after four such storms",
    "mixed-storm": "quick clients beside 20 % that do not read",
    "mixed-storm-again": "quick clients that have had a list before, beside 20 % that do not read",
    "ping-storm": "a small client beside 4,000 lists of 1 MB, read 2 s late",
    "relay-echo": "relay, echo of 1 KiB",
    "relay-64k": "relay, echo of 64 KiB",
    "relay-128k": "relay, 128 KiB into a sink",
    "stopped-consumers": "500 consumers that stop reading",
    "idle": "a connection at rest",
    "start": "start",
    "tls-relay-echo": "TLS: relay, echo of 1 KiB",
    "tls-relay-64k": "TLS: relay, echo of 64 KiB",
    "tls-lists-equal": "TLS: 5,000 equal requests for 1 MB at once",
    "tls-late-readers": "TLS: 1,000 lists of 1 MB, clients begin to read 8 s late",
    "tls-connects": "TLS: 5,000 clients connect at once",
    "tls-idle": "TLS: a connection at rest",
}
# The lines of README.md: words, scenario, quantity.
HEADLINES: Final = (
    ("4,000 lists of 1 MB, clients begin to read 8 s late: answered", "late-readers", "answered"),
    ("the same: peak memory", "late-readers", "peak_rss_bytes"),
    ("5,000 equal requests for 1 MB at once: answered", "lists-equal", "answered"),
    ("the same: questions to the broker", "lists-equal", "questions"),
    ("the same: memory above that at rest", "lists-equal", GROWN),
    ("memory without clients", "idle", "idle_rss_bytes"),
    ("start until the first client is connected", "start", "seconds"),
)
OVERLOAD: Final = "overload-real"
LATE_SECONDS: Final = 8
NOT_MEASURED: Final = "not measured"


def kept(name: str) -> Json | None:
    """Return the result of a scenario; None if it has not been run."""
    try:
        return load(name)
    except FileNotFoundError:
        return None


# --- figures -------------------------------------------------------------------------------------


def figure(result: Json, row: str, quantity: str) -> float | None:
    """Return a row's median; of what its memory grew by the largest. None: not measured."""
    if row not in result["rows"]:
        return None
    found = result["rows"][row]
    if quantity in found:
        return float(found[quantity]["median"] if isinstance(found[quantity], dict) else found[quantity])
    runs = found["runs"]
    if quantity == GROWN:
        return max(float(run["peak_rss_bytes"]) - float(run["idle_rss_bytes"]) for run in runs)
    return median(float(run[quantity]) for run in runs) if all(quantity in run for run in runs) else None


def amount(value: float | None, quantity: str) -> str:
    if value is None:
        return "-"
    if "bytes" in quantity:
        return in_bytes(value)
    if quantity == "cpu_us":
        return f"{value:,.{1 if value < 100 else 0}f} µs"
    if quantity.endswith("_ms"):
        return f"{value:,.1f} ms"
    if quantity.startswith("seconds"):
        return f"{value:.3g} s"
    return f"{value:,.2f}" if quantity.endswith("ratio") else f"{value:,.0f}"


def in_bytes(value: float) -> str:
    if value >= 10 * MIB:
        return f"{value / MIB:,.0f} MiB"
    return f"{value / 1024:,.0f} KiB" if value >= 10 * 1024 else f"{value:,.0f} B"


def bound(judged: Json, shown: str) -> str:
    return f"{'≤' if judged['at_most'] else '≥'} {shown}"


def verdict(judged: Json) -> str:
    word = "reached" if judged["reached"] else "**missed**"
    return f"{word}, does not count" if judged.get("uncounted_because") else word


# --- docs/performance.md -------------------------------------------------------------------------


def ladder() -> Iterator[str]:
    """Yield when and on what was measured, and a row for each thing that was asked of a scenario."""
    found = {name: kept(name) for name in WORDS}
    results = [result for result in found.values() if result]
    days = sorted(result["measured_on"] for result in results)
    machine = load("relay-echo")["machine"]
    processors = " or ".join(sorted({result["machine"]["cpu"] for result in results}))
    where = f"{processors}, {machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}"
    peers = f"Java {machine['java']}, Java proxy {machine['java_proxy']}, HAProxy {machine['haproxy']}"
    yield from wrap(f"Measured from {days[0]} to {days[-1]}: {where}, {peers}, {machine['rustc']}.", 120)
    yield ""
    yield "| what | this proxy | Java proxy | asked | got | |"
    yield "|---|--:|--:|---|--:|---|"
    for name, result in found.items():
        words, scenario = WORDS[name], SCENARIOS[name]
        if result is None:
            yield f"| {words} | - | - | | | {NOT_MEASURED} |"
            continue
        for row in (*ratios(result), *unmeasured(scenario, result), *checks(scenario, result)):
            yield f"| {words}{row}"
            words = "the same"
    yield from floods()


def ratios(result: Json) -> Iterator[str]:
    for ratio in result["ratios"]:
        if ratio["required"] is None or ratio["validity"] or ratio.get("note"):
            continue
        quantity = ratio["quantity"]
        what = QUANTITIES[quantity].format(unit=result["unit"])
        ours, java = (amount(figure(result, row, quantity), quantity) for row in (ratio["over"], JAVA))
        asked = bound(ratio, f"{ratio['required']:g} x {ROWS[ratio['under']]}")
        yield f": {what} | {ours} | {java} | {asked} | {ratio['median']:.3f} x | {verdict(ratio)} |"


def unmeasured(scenario: Scenario, result: Json) -> Iterator[str]:
    """Yield a row for each ratio that is asked of a scenario and has no figure, for one of its rows was not run."""
    measured = {(ratio["over"], ratio["under"], ratio["quantity"]) for ratio in result["ratios"]}
    for ratio in scenario.ratios:
        quantity = scenario.quantity if ratio.quantity == "per_second" else ratio.quantity
        found = any((ratio.over, under, quantity) in measured for under in ratio.under)
        if found or ratio.required is None or ratio.validity:
            continue
        what = QUANTITIES[quantity].format(unit=scenario.unit)
        ours, java = (amount(figure(result, row, quantity), quantity) for row in (ratio.over, JAVA))
        asked = bound(vars(ratio), f"{ratio.required:g} x {ROWS[ratio.under[0]]}")
        yield f": {what} | {ours} | {java} | {asked} | | {NOT_MEASURED} |"


def checks(scenario: Scenario, result: Json) -> Iterator[str]:
    rows = ROWS | ({OURS: "without a disk"} if "04s" in result["rows"] else {})
    for check in result["checks"]:
        fault = check["what"] in FAULTS
        if check["required"] is None or (fault and check["reached"]):
            continue
        quantity = "" if fault else quantities(scenario)[check["what"]]
        what = re.sub(", (ms|bytes)$", "", check["what"])
        row = rows.get(check["row"], "")
        java = amount(figure(result, JAVA, quantity), quantity) if quantity else "-"
        got, asked = amount(check["got"], quantity), bound(check, amount(check["required"], quantity))
        where = f", {row}" if row else ""
        yield f"{where}: {what} | {got} | {java} | {asked} | | {verdict(check)} |"


def quantities(scenario: Scenario) -> dict[str, str]:
    """Return the figure of a run that each check of a scenario is about."""
    return {GROWN: GROWN, **{each.what: each.quantity for each in scenario.bounds}}


def floods() -> Iterator[str]:
    """Yield a row for all floods together: the longest PING, and how many of them kept everything."""
    results = load(FLOODS).values()
    asked_for = sum(name.startswith(f"{FLOODS}-") for name in SCENARIOS)
    longest = max((result["checks"][0] for result in results), key=lambda check: float(check["got"]))
    whole = sum(not any(missed(result, row) for row in result["rows"]) for result in results)
    got, asked = (amount(longest[name], "ping_p99_ms") for name in ("got", "required"))
    words = f"a neighbour of any of {asked_for} floods: the longest p99 of its PING"
    yield f"| {words} | {got} | - | {bound(longest, asked)} | | {verdict(longest)} |"
    kept_all = "reached" if whole == asked_for else "**missed**"
    yield f"| the same: floods in which nothing was missed | {whole} | - | ≥ {asked_for} | | {kept_all} |"


def pipeline() -> Iterator[str]:
    yield "| job | what | got | asked | |"
    yield "|---|---|--:|---|---|"
    for name in ("usage", "ingest"):
        for check in load(f"pipeline-{name}")["checks"]:
            # Nothing lost, and no difference.
            if check["required"] or not check["reached"]:
                asked = bound(check, f"{check['required']:g}")
                got = f"{check['got']:,.2f}"
                yield f"| `{name}`, {check['row']} | {check['what']} | {got} | {asked} | {verdict(check)} |"
    held = load("pipeline-holds")["checks"]
    whole = sum(check["reached"] for check in held)
    word = "reached" if whole == len(held) else "**missed**"
    yield f"| `holds`, advice | promises that were kept on real proxies | {whole} | ≥ {len(held)} | {word} |"


# --- other pages ---------------------------------------------------------------------------------


def headlines() -> Iterator[str]:
    yield "| [measured](docs/performance.md) | this proxy | Java proxy |"
    yield "|---|--:|--:|"
    for words, name, quantity in HEADLINES:
        ours, java = (amount(figure(load(name), row, quantity), quantity) for row in (OURS, JAVA))
        yield f"| {words} | {ours} | {java} |"


def paces() -> Iterator[str]:
    """Yield how many lists a second one pod sends in storms."""
    yield "| storm | lists/s | MB/s | from |"
    yield "|---|--:|--:|---|"
    for name, late in (("lists-equal", 0), ("late-readers", LATE_SECONDS)):
        runs = load(name)["rows"][OURS]["runs"]
        lists, size = (
            median(run[what] / (run["seconds_to_end"] - late) for run in runs) for what in ("answered", "bytes")
        )
        yield f"| {WORDS[name]} | {lists:,.0f} | {size / 1e6:,.0f} | `{name}`{', without these 8 s' if late else ''} |"
    for name in ("lists-storm-200", "lists"):
        lists = figure(load(name), OURS, "per_second") or 0
        yield f"| {WORDS[name]} | {lists:,.0f} | {lists * LIST_BYTES / 1e6:,.0f} | `{name}` |"
    for row, found in load("real-broker")["rows"].items():
        if "answered" in found:
            pace = f"{found['answered'] / found['seconds']:,.0f} | {found['mb_per_second']:,.0f}"
            words = f"{found['title']}, {found['frame_bytes'] / 1e6:.1f} MB, a real broker on the same cores"
            yield f"| {words} | {pace} | `real-broker`, {row} |"


def growth() -> Iterator[str]:
    """Yield the allowance of docs/memory.md for one storm, part by part, and what was measured."""
    (check,) = (check for check in load("late-readers")["checks"] if check["what"] == GROWN)
    limits, connections = int(1.15 * 200 * MIB), 1_000
    yield "| | bytes |"
    yield "|---|--:|"
    yield f"| 1.15 x 200 MiB | {limits:,} |"
    yield f"| 8 KiB x {connections:,} | {8 * 1024 * connections:,} |"
    yield f"| 2 x {LIST_BYTES:,} | {2 * LIST_BYTES:,} |"
    yield f"| **allowed growth** | **{check['required']:,}** |"
    yield f"| measured growth (`late-readers`) | {check['got']:,.0f} |"


def weights() -> Iterator[str]:
    """Yield what single things weigh, beside what the budget allows them."""
    yield "| budget | situation | measured | allowed |"
    yield "|---|---|--:|--:|"
    waiter = load("limiter")["bytes_a_waiter"]
    waiting = f"{waiter['waiter']:,.0f} B; {waiter['waiter_and_suspended_acquire']:,.0f} B"
    for name, words, most in (
        ("idle", "without clients", IDLE_PROCESS_BYTES),
        ("own-token-storm", "without clients, which come with tokens", IDLE_PROCESS_BYTES + CRYPTOGRAPHY_BYTES),
    ):
        resting = amount(figure(load(name), OURS, "idle_rss_bytes"), "idle_rss_bytes")
        yield f"| process at rest | {words} (`{name}`) | {resting} | {in_bytes(most)} |"
    for name, budget, words in (
        ("idle", "at rest", "3,000 more lookup-mode clients"),
        ("stopped-consumers", "relays", "500 consumers that stop reading, with the kernel's sockets"),
    ):
        check = load(name)["checks"][0]
        got, allowed = in_bytes(check["got"]), in_bytes(check["required"])
        yield f"| {budget} | {words} (`{name}`) | {got} each | {allowed} |"
    request = in_bytes(REQUEST_BYTES)
    yield f"| part of a request | a waiter; with its suspended `acquire` (`limiter`) | {waiting} | {request} |"
    for row, found in load("real-broker")["rows"].items():
        if "grown_bytes" in found:
            grown, promised = (in_bytes(found[name]) for name in ("grown_bytes", "promised_bytes"))
            yield f"| {row} lists | {found['title']}, 4.3 MB each (`real-broker`) | {grown} more | {promised} |"


def overload() -> Iterator[str]:
    found = load(OVERLOAD)
    pressure, beside = found["rows"]["pressure"], found["rows"]["neighbour"]
    memory = pressure["memory"]
    least, most = pressure["least_and_most_acked"]
    yield "| figure | measured |"
    yield "|---|--:|"
    yield f"| part of the time in which producers were paused | {memory['paused_part_of_time']:.0%} |"
    yield f"| memory in the proxy's own words, at most | {memory['peak_told_by_proxy_bytes'] / 1e6:.1f} MB |"
    yield f"| messages acknowledged | {pressure['acked']:,} |"
    yield f"| of these later than 30 s, the clients' `sendTimeout` | {pressure['later_than_30_s']:,} |"
    yield f"| messages that a producer got rid of, least and most | {least:,} and {most:,} |"
    pairs = " and ".join(f"{each['ratio']:.2f}" for each in beside["pairs"])
    yield f"| p99 of a neighbour that is not paused, with pressure by without | {pairs} |"
    yield ""
    yield "| asked | got | at most | |"
    yield "|---|--:|--:|---|"
    for check in found["checks"]:
        yield f"| {check['row']}: {check['what']} | {check['got']:,} | {check['required']:,} | {verdict(check)} |"


PAGES: Final[Mapping[str, Mapping[str, Callable[[], Iterator[str]]]]] = {
    "README.md": {"headlines": headlines},
    "docs/performance.md": {"ladder": ladder, "pipeline": pipeline},
    "docs/capacity.md": {"paces": paces},
    "docs/memory.md": {"weights": weights, "growth": growth},
    "docs/overload.md": {"overload": overload},
}


def marks(name: str) -> tuple[str, str]:
    return f"<!-- evidence: {name}; written by scripts/generate_evidence.py, do not edit -->", "<!-- evidence: end -->"


def files() -> Mapping[Path, str]:
    return {
        ROOT / page: placed(
            ROOT / page, {marks(name): "\n\n" + "\n".join(lines()) + "\n\n" for name, lines in parts.items()}
        )
        for page, parts in PAGES.items()
    }
