"""Owns the scenarios under TLS as data: those in plain text that are worth it once more, and storms of handshakes.
Requirements are held against the Java proxy under TLS. Runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from benchmarks.ladder.rows import CONNECTION_BYTES, TLS_CONNECTION_BYTES, Bound, Column, Ratio, Scenario

PING_P99_MILLIS = 20.0

# The load generator and the fake broker seal and open as much as a proxy does, so they are not as far ahead of it as in
# plain text. HAProxy is shown beside, and not judged: nothing is required of it.
LEAD = Ratio("01", ("06",), 1.5, validity=True)
BULK_LEAD = replace(LEAD, required=1.25)
# Nothing that is under TLS can be spliced. The bare relay opens and seals on the clients' side only.
RELAY_ROWS = ("00t", "00t-2", "01", "02", "06", "07")

SIDES = {"in": "TLS to the proxy", "both": "TLS on both sides"}


def under_tls(plain: Mapping[str, Scenario]) -> dict[str, Scenario]:
    """Return the scenarios under TLS by name; `plain` are those they are made from."""
    return {
        "tls-relay-echo": _relay(plain["relay-echo"]),
        "tls-relay-64k": _relay(plain["relay-64k"]),
        "tls-relay-128k": _relay(plain["relay-128k"], lead=BULK_LEAD),
        "tls-both-relay-echo": replace(_relay(plain["relay-echo"], SIDES["both"]), tls="both"),
        "tls-both-relay-64k": replace(_relay(plain["relay-64k"], SIDES["both"]), tls="both"),
        "tls-both-relay-128k": replace(_relay(plain["relay-128k"], SIDES["both"], BULK_LEAD), tls="both"),
        "tls-lists": replace(
            plain["lists"],
            title=f"{plain['lists'].title}, {SIDES['in']}", tls="in", rows=("01", "04", "06"),
            ratios=(LEAD, Ratio("04", ("06",), 1.0), Ratio("04", ("06",), None, quantity="cpu_us", at_most=True)),
            optional=(),
        ),
        "tls-lists-equal": replace(
            plain["lists-equal"], title=f"{plain['lists-equal'].title}, {SIDES['in']}", tls="in", rows=("04",),
            optional=(),
        ),
        "tls-late-readers": _late_readers(plain["late-readers"]),
        "tls-connects": _connects(plain["ping-storm"]),
        "tls-idle": replace(
            plain["idle"], title=f"{plain['idle'].title}, {SIDES['in']}", tls="in",
            rows=("04", "06", "07"), optional=(),
            bounds=(replace(plain["idle"].bounds[0], required=CONNECTION_BYTES + TLS_CONNECTION_BYTES),),
        ),
    }  # fmt: skip


def _relay(plain: Scenario, sides: str = SIDES["in"], lead: Ratio = LEAD) -> Scenario:
    throughput = (lead, Ratio("02", ("06",), 1.0), Ratio("02", ("07",), None))
    peers = ("00t", "06", "07") if sides == SIDES["in"] else ("06", "07")
    processor = tuple(Ratio("02", (peer,), None, quantity="cpu_us", at_most=True) for peer in peers)
    rows = RELAY_ROWS if "00t" in peers else tuple(row for row in RELAY_ROWS if not row.startswith("00t"))
    return replace(
        plain, title=f"{plain.title}, {sides}", tls="in", rows=rows, ratios=throughput + processor, optional=()
    )


def _late_readers(plain: Scenario) -> Scenario:
    """Receive buffers are twice those in plain text: small segments of a handshake make the kernel halve the window."""
    assert plain.budget is not None
    return replace(
        plain,
        title=f"1,000 lists of 1 MB, a namespace each, 8 KiB receive buffers, reading begins 8 s late, {SIDES['in']}",
        tls="in", rows=("04",), optional=(),
        options=("--connections", "1000", "--depth", "1", "--receive-buffer", "8192"),
        budget=replace(plain.budget, connections=1000),
        bounds=(Bound("answers", "answered", 1000, at_most=False),),
    )  # fmt: skip


def _connects(pinged: Scenario) -> Scenario:
    """Build the scenario in which nobody is refused, and a client that is connected already does not notice.

    `pinged` has the figures of PINGs.
    """
    return Scenario(
        f"5,000 clients connect at once, {SIDES['in']}, while a client that is connected PINGs",
        "memory", ("04",), "connects",
        ("--connections", "5000", "--pings", "--broker", "{broker}", "--control", "{second}"),
        timed=False, repeats=3, second=(), topics=100, tls="in",
        columns=(
            Column("answered", "connected"), Column("refused", "refused"), Column("lost", "lost"),
            Column("seconds_to_end", "seconds", 1), Column("per_second", "per second"),
            *(column for column in pinged.columns if "p50" in column.quantity or column.quantity.endswith("_ms")),
            Column("peak_rss_bytes", "peak RSS", mib=True),
        ),
        bounds=(
            Bound("connected", "answered", 5000, at_most=False),
            Bound("PING to PONG meanwhile, p99, ms", "ping_p99_ms", PING_P99_MILLIS),
            Bound("PING to PONG meanwhile, max, ms", "ping_max_ms", None),
        ),
    )  # fmt: skip
