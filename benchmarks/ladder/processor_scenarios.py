"""Owns the scenarios whose question is what a unit costs when one thing changes, as data: the form of topic names, the
number of threads, a busy neighbour, the counting of messages. Runs nothing."""

from __future__ import annotations

from benchmarks.ladder.rows import NAMES, Ratio, Scenario

# Lists of equal bytes, whatever names they are made of.
NAMES_APART = 2.0
FORMS = ("04", *(f"04-{name}" for name in NAMES))


def processor_time(echo: tuple[str, ...], echo_64k: tuple[str, ...]) -> dict[str, Scenario]:
    """Return the scenarios by name, given the options of the echoes of 1 KiB and of 64 KiB."""
    return {
        "lists-names": _names(),
        "relay-threads-echo": _threads("echo of 1 KiB, 50 connections", echo, "00c", "per_second"),
        "relay-threads-64k": _threads(
            "echo of 64 KiB, 4 connections, 16 outstanding each", echo_64k, "00s", "mb_per_second"
        ),
        "lists-busy": Scenario(
            "topic lists of 10,000 names of 100 B, 16 connections, with and without a busy neighbour",
            "paired", _beside("00c", "04", "06"), "lists", ("--connections", "16"),
            ratios=_slowed("00c", "04", "06"),
        ),
        "relay-echo-busy": Scenario(
            "relay, echo of 1 KiB, 50 connections, with and without a busy neighbour",
            "paired", _beside("00c", "02", "06", "07"), "relay", echo, "echo", relayed=True,
            ratios=_slowed("00c", "02", "06", "07"),
        ),
        "count-price-echo": _counted("echo of 1 KiB, 50 connections", echo, "per_second", 1.15),
        "count-price-64k": _counted(
            "echo of 64 KiB, 4 connections, 16 outstanding each", echo_64k, "mb_per_second", 1.10
        ),
    }  # fmt: skip


def _counted(title: str, options: tuple[str, ...], quantity: str, most: float) -> Scenario:
    """Build the scenario of what it costs to count the messages of producers, which only a throttle needs."""
    return Scenario(
        f"price of counting messages by topic, {title}",
        "paired", ("02", "02c"), "relay", options, "echo", quantity=quantity, relayed=True, repeats=2,
        ratios=(Ratio("02c", ("02",), most, quantity="cpu_us", at_most=True), Ratio("02c", ("02",), None)),
    )  # fmt: skip


def _names() -> Scenario:
    """Build the scenario in which no form of names may cost more than twice as much as the cheapest of the others."""
    others = {form: tuple(other for other in FORMS if other != form) for form in FORMS}
    return Scenario(
        "topic lists of 1 MB made of short, long and other names, 16 connections, a namespace each",
        "paired", ("00c", *FORMS), "lists", ("--connections", "16"),
        ratios=(
            *(Ratio(form, others[form], NAMES_APART, quantity="cpu_us", at_most=True) for form in FORMS),
            *(Ratio(form, ("00c",), None, quantity="cpu_us", at_most=True) for form in FORMS),
        ),
    )  # fmt: skip


def _threads(title: str, options: tuple[str, ...], bare: str, quantity: str) -> Scenario:
    """Build the scenario of what a second thread brings to a relay, and what a unit costs more with two."""
    pairs = ((f"{bare}-2", bare), ("02-2", "02-1"), ("07-2", "07-1"))
    return Scenario(
        f"relays with 1 and 2 threads, {title}",
        "paired", tuple(row for pair in pairs for row in reversed(pair)), "relay", options, "echo", quantity=quantity,
        relayed=True,
        ratios=(
            *(Ratio(two, (one,), None) for two, one in pairs),
            *(Ratio(two, (one,), None, quantity="cpu_us", at_most=True) for two, one in pairs),
        ),
    )  # fmt: skip


def _beside(*rows: str) -> tuple[str, ...]:
    return tuple(name for row in rows for name in (row, f"{row}-busy"))


def _slowed(*rows: str) -> tuple[Ratio, ...]:
    """Return ratios of a unit's cost, and of the throughput left, beside a neighbour that keeps a core busy."""
    return tuple(
        Ratio(f"{row}-busy", (row,), None, quantity=quantity, at_most=quantity == "cpu_us")
        for quantity in ("cpu_us", "per_second")
        for row in rows
    )
