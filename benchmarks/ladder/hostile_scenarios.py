"""Owns the scenarios of hostile neighbours as data: each flood by one attacker and by ten, and by ten from another
address than the neighbours'. Runs nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from benchmarks.ladder.rows import Bound, Budget, Scenario, beside_before

# PING p99 of a neighbour: 50 ms, or twice what a broker that nobody else uses takes beside the same flood.
PING_P99_MILLIS: Final = 50.0
FLOOR: Final = "machine_p99_ms"
# Bytes a second that each attacker may send at most; the server's own pace may be less.
RATE: Final = 4_000_000
# The neighbours' address in the scenarios that have one: attackers are 127.0.0.1, so the proxy sees two sites.
NEIGHBOURS_FROM: Final = "127.0.0.2"
APART: Final = "-apart"
# Seconds that the broker takes for a lookup of `large-lookups`: the proxy gets to hold all that it may meanwhile.
UNHURRIED: Final = "2"

FLOODS: Final = {
    "pong": "PONGs, never answered",
    "ping": "PINGs",
    "flow": "FLOWs, refused",
    "lookup": "LOOKUPs",
    "lookup-properties": "LOOKUPs of 65 properties, refused",
    "oversize-properties": "frames of 1 MiB that are empty properties",
    "announced": "34 connections each that announce 1 MiB and send 200 bytes",
    "announced-connects": "55 connections each that announce a CONNECT of 64 KiB and send 200 bytes",
    "relayed-pongs": "five relays each, whose broker sends frames of 13 bytes",
    "dripping-frames": "34 connections each that send 200 KB of a frame of 1 MiB, then four bytes each half second",
    "metrics": "requests for /metrics on five connections each",
    "tiny-requests": "pipelined requests of 40 bytes on five connections each",
    "tiny-chunks": "50 uploads of all together in chunks of one byte",
    "aborted-uploads": "uploads whose client leaves at once",
    "dripping-uploads": "eight uploads each, then four bytes each half second",
    "pipelines": "five connections each with 1,000 topic lists that are not read",
    "large-lookups": f"ten connections each with 1,000 LOOKUPs of 3.9 KiB, answered after {UNHURRIED} s",
    "standing-pairs": "50 clients each that read one list, ask for two that no other asks for, and read neither",
    "slow-readers": "60 clients each that ask for four lists, read 34 KB/s, and send PONGs; who is ended comes back",
    "leaving-clients": "120 clients each that ask for four lists, and all leave after 0.6 s, again and again",
    "schemas": "25 connections each that ask for 40 schemas of 1 MiB and read none",
    "dripping-relays": "200 relays each that send a byte of a frame of 1 MiB each half second",
    "stopped-relays": "50 relays each whose broker sends without end, and that read nothing",
}
# Floods of one attacker who has many addresses: clients, and what they do.
CROWDS: Final = {
    "silent-addresses": (1000, "1,000 addresses, each of which asks for a list of its own and reads nothing"),
    "slow-joiners": (200, "200 addresses, each of which asks for the neighbours' list and reads 34 KB/s of it"),
}
# Who comes while they are there.
NEWCOMER_P99_MILLIS: Final = 1000.0

SHOWN: Final = (
    "ping_p50_ms", "ping_max_ms", FLOOR, "lookup_p99_ms", "list_p99_ms", "flood_bytes", "grown_bytes",
)  # fmt: skip


def hostile() -> dict[str, Scenario]:
    """Return each flood by one attacker, by ten, and by ten with the neighbours elsewhere.

    The forms with one address for all stay, and are the harder ones: no turn by network tells a neighbour from an
    attacker then, as behind one NAT. To see such turns at work one form with two addresses is enough: ten attackers.
    """
    forms = ((1, False), (10, False), (10, True))
    return {
        f"hostile-{name}-{count}{APART * apart}": _beside(name, count, flood, apart=apart)
        for name, flood in FLOODS.items()
        for count, apart in forms
    } | {f"hostile-{name}": _beside_crowd(name) for name in CROWDS}


def _beside_crowd(name: str) -> Scenario:
    clients, what = CROWDS[name]
    one = _beside(name, 1, flood=what)
    newcomer = Bound("a newcomer's connection and list, p99, ms", "newcomer_p99_ms", NEWCOMER_P99_MILLIS)
    return replace(
        one,
        title=f"honest clients, old and new, beside {what}",
        options=(*one.options, "--newcomers"),
        shown=(*one.shown, "newcomer_p50_ms", "newcomer_p99_ms", "newcomer_max_ms"),
        budget=Budget(clients, 10_000 * 102),
        bounds=(*one.bounds, newcomer),
    )


def _beside(name: str, attackers: int, flood: str, *, apart: bool = False) -> Scenario:
    who = "one attacker" if attackers == 1 else f"{attackers} attackers"
    where = " at another address," if apart else ""
    return Scenario(
        f"honest clients beside {who}{where} of at most {RATE / 1e6:g} MB/s: {flood}",
        "memory", ("04", "04b"), "hostile",
        ("--flood", name, "--attackers", str(attackers), "--rate", str(RATE), "--pings",
         "--broker", "{broker}", "--control", "{second}", "--web", "{web}", "--metrics", "{web}",
         *(("--neighbours-from", NEIGHBOURS_FROM) if apart else ())),
        "flood", repeats=2, broker=("--flood-frames", "pong", "--unhurried", UNHURRIED), second=(), shown=SHOWN,
        optional=("04b",), ratios=beside_before("ping_p99_ms", "04"),
        budget=Budget(60 * attackers, 10_000 * 102),
        bounds=(
            Bound("PING to PONG, p99, ms", "ping_p99_ms", PING_P99_MILLIS, floor=FLOOR),
            Bound("permits that are left at the end, bytes", "held_at_end", 0),
        ),
    )  # fmt: skip
