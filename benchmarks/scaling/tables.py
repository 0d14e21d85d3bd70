"""The storms of docs/scaling.md: what is played, how large a fleet has to be, and the rows that say so."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

from benchmarks.scaling import costs
from benchmarks.scaling.model import LATE_SECONDS, Costs, Fleet, Outcome, Storm
from benchmarks.scaling.play import Simulation, least_proxies

# docs/capacity.md has 25 s for a storm: a fleet is large enough if it needs half of them.
ENOUGH_SECONDS: Final = LATE_SECONDS / 2
# The clients' connectionTimeoutMs.
CONNECT_SECONDS: Final = 10.0
# maxConcurrentInboundConnections
MOST_CLIENTS: Final = 10_000
SEARCH_STEP: Final = 0.05
STEP: Final = 0.02
# Nobody waits as long: a storm that takes longer is cut off.
MOST_SECONDS: Final = 60.0
COMPARED_STORM: Final = Storm(50_000)
COMPARED_FLEETS: Final = (5, 20, 80)
KINDS: Final = ((1, "one list"), (100, "100 lists"), (0, "a list each, 1,000 names"))


@dataclass(frozen=True, slots=True)
class Asked:
    """A row of the advice: a storm, whether clients speak TLS, and what the lists are called."""

    storm: Storm
    tls: bool
    lists: str


ADVICE: Final = (
    *(
        Asked(Storm(clients, names, namespaces=namespaces), tls, lists)
        for clients in (100_000, 1_000_000)
        for names, namespaces, tls, lists in (
            (1_000, 1, False, "one of 100 KB"),
            (10_000, 1, False, "one of 1 MB"),
            (10_000, 1, True, "one of 1 MB, TLS"),
            (1_000, 100, False, "100 of 100 KB"),
            (1_000, 0, False, "100 KB each"),
        )
    ),
)


def play(storm: Storm, fleet: Fleet, paid: Costs, *, step: float = STEP, most_seconds: float = MOST_SECONDS) -> Outcome:
    """Return what becomes of a storm."""
    return Simulation(storm, fleet, paid, step=step).play(most_seconds)


def holds(outcome: Outcome, storm: Storm) -> bool:
    """Return whether a fleet is large enough: all are served in half of the time, and no proxy has too many clients."""
    return (
        outcome.late == 0
        and outcome.served_seconds <= storm.window + ENOUGH_SECONDS
        and outcome.connected_seconds <= CONNECT_SECONDS
        and outcome.fullest <= MOST_CLIENTS
    )


def brokers_for(storm: Storm, paid: Costs) -> Fleet:
    """Return a fleet whose brokers can list what nobody shares, as one broker with the cores and links of all."""
    if storm.namespaces:
        return Fleet(1)
    # A tenth more, for the time until the first questions are there.
    needed = ceil(1.1 * storm.clients * storm.names * paid.name / ENOUGH_SECONDS)
    return Fleet(1, brokers=1, broker_cores=float(needed), broker_link=needed * Fleet(1).broker_link)


@dataclass(frozen=True, slots=True)
class Advised:
    """How many proxies a storm needs, and what becomes of it with them; None: no number of proxies is enough."""

    asked: Asked
    proxies: int | None
    broker_cores: int
    outcome: Outcome


def advised(asked: Asked) -> Advised:
    """Return the smallest fleet for a storm, or the best of those tried."""
    storm, paid = asked.storm, costs.sheet(tls=asked.tls).costs
    fleet = brokers_for(storm, paid)
    first = _at_least(storm, paid)
    limit = storm.window + ENOUGH_SECONDS + 1

    def tried(proxies: int) -> Outcome:
        return play(storm, replace(fleet, proxies=proxies), paid, step=SEARCH_STEP, most_seconds=limit)

    found = least_proxies(tried, lambda outcome: holds(outcome, storm), first, 2 * first)
    outcome = play(storm, replace(fleet, proxies=found or first), paid)
    return Advised(asked, found, round(fleet.brokers * fleet.broker_cores), outcome)


def _at_least(storm: Storm, paid: Costs) -> int:
    """Return the number of proxies below which no fleet can be enough: their processors, their links, their clients."""
    each = paid.connect + paid.request + paid.write_byte * storm.list_bytes
    each += 0 if storm.namespaces else paid.read_byte * storm.list_bytes
    seconds = storm.window + ENOUGH_SECONDS
    sent = storm.clients * storm.list_bytes / Fleet(1).out_rate(storm)
    return max(1, ceil(max(storm.clients * each / seconds, sent / seconds, storm.clients / MOST_CLIENTS)))


def advice() -> Iterator[str]:
    """Yield the table of fleets for 10^5 and 10^6 clients."""
    yield "| clients | lists | proxies | brokers' cores | questions | from brokers | connected | served | what limits |"
    yield "|--:|---|--:|--:|--:|--:|--:|--:|---|"
    for asked in ADVICE:
        found = advised(asked)
        outcome = found.outcome
        proxies = f"{found.proxies:,}" if found.proxies else "none is enough"
        yield (
            f"| {asked.storm.clients:,} | {asked.lists} | {proxies} | {found.broker_cores:,} | {outcome.questions:,} "
            f"| {_bytes(outcome.broker_bytes)} | {_seconds(outcome.connected_seconds)} "
            f"| {_served(outcome)} | {outcome.bottleneck} |"
        )


def compared() -> Iterator[str]:
    """Yield the table of one storm over fleets of several sizes."""
    yield "| lists | proxies | questions | from brokers | a client waits, p50 | p99 | all served | late | what limits |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|---|"
    paid = costs.sheet().costs
    for namespaces, lists in KINDS:
        storm = replace(COMPARED_STORM, namespaces=namespaces, names=COMPARED_STORM.names if namespaces else 1_000)
        for proxies in COMPARED_FLEETS:
            outcome = play(storm, Fleet(proxies), paid)
            yield (
                f"| {lists} | {proxies} | {outcome.questions:,} | {_bytes(outcome.broker_bytes)} "
                f"| {_seconds(outcome.wait_p50)} | {_seconds(outcome.wait_p99)} | {_served(outcome)} "
                f"| {outcome.late:.0%} | {outcome.bottleneck} |"
            )


def paid() -> Iterator[str]:
    """Yield the table of costs, each with its source."""
    yield "| what | processor time | source in benchmarks/results |"
    yield "|---|--:|---|"
    seen = {}
    for row in (*costs.sheet().rows, *costs.sheet(tls=True).rows):
        seen[row.what] = row
    for row in seen.values():
        amount = (
            f"{row.seconds * 1e6:,.0f} us a {row.per}" if row.per != "byte" else f"{row.seconds * 1e9:.3f} ns a byte"
        )
        yield f"| {row.what} | {amount} | {row.source} |"


def real_storm(run: dict[str, Any], found: dict[str, Any], cores: int) -> Outcome:
    """Return what the simulation says of a real run: the same clients, on the cores that others had left."""
    storm = Storm(run["clients"], run["names"], namespaces=1 if run["shared"] else 0, window=0.0)
    left = max(0.1, cores - run["others_cores"])
    fleet = Fleet(
        run["proxies"], brokers=1, broker_cores=1.0, link=1e12, broker_link=1e12, round_trip=0.0001,
        machine_cores=left, connected=True,
    )  # fmt: skip
    return play(storm, fleet, costs.of_the_real_run(found), step=0.001)


def _served(outcome: Outcome) -> str:
    cut = len(outcome.served) * outcome.step >= MOST_SECONDS
    return f"> {MOST_SECONDS:.0f} s" if cut else _seconds(outcome.served_seconds)


def _seconds(value: float) -> str:
    return f"{value:.1f} s"


def _bytes(value: float) -> str:
    return f"{value / 1e9:,.1f} GB" if value >= 1e9 else f"{value / 1e6:,.0f} MB"
