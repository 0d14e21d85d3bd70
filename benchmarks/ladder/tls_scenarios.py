"""Owns the scenarios under TLS as data: those in plain text that are worth it once more, and storms of handshakes.
Requirements are held against the Java proxy under TLS. Runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from benchmarks.ladder.rows import CONNECTION_BYTES, TLS_CONNECTION_BYTES, Bound, Ratio, Scenario

PING_P99_MILLIS = 20.0

# The load generator and the fake broker seal and open as much as a proxy does, so they are not as far ahead of it as in
# plain text. HAProxy is shown beside, and not judged: nothing is required of it.
LEAD = Ratio("01", ("06",), 1.5, validity=True)
SIDE = "TLS to the proxy"


def under_tls(plain: Mapping[str, Scenario]) -> dict[str, Scenario]:
    """Return the scenarios under TLS by name; `plain` are those they are made from."""
    idle = plain["idle"]
    return {
        "tls-relay-echo": _relay(plain["relay-echo"]),
        "tls-relay-64k": _relay(plain["relay-64k"]),
        "tls-lists-equal": _secured(plain["lists-equal"]),
        "tls-late-readers": _late_readers(plain["late-readers"]),
        "tls-connects": _connects(plain["ping-storm"]),
        "tls-idle": replace(
            _secured(idle),
            rows=idle.rows,
            bounds=(replace(idle.bounds[0], required=CONNECTION_BYTES + TLS_CONNECTION_BYTES),),
        ),
    }


def _secured(plain: Scenario) -> Scenario:
    return replace(plain, title=f"{plain.title}, {SIDE}", tls=True, rows=("04", "04b"), optional=("04b",))


def _relay(plain: Scenario) -> Scenario:
    """Build the relay under TLS, where nothing can be spliced; the bare relay opens and seals on the clients' side."""
    throughput = (LEAD, Ratio("02", ("06",), 1.0), Ratio("02", ("02b",), 0.97), Ratio("02", ("07",), None))
    processor = tuple(Ratio("02", (peer,), None, quantity="cpu_us", at_most=True) for peer in ("00t", "06", "07"))
    return replace(
        _secured(plain), rows=("00t", "01", "02", "02b", "06", "07"), ratios=throughput + processor, optional=("02b",)
    )


def _late_readers(plain: Scenario) -> Scenario:
    """Receive buffers are twice those in plain text: small segments of a handshake make the kernel halve the window."""
    assert plain.budget is not None
    return replace(
        _secured(plain),
        title=f"1,000 lists of 1 MB, a namespace each, 8 KiB receive buffers, reading begins 8 s late, {SIDE}",
        options=("--connections", "1000", "--depth", "1", "--receive-buffer", "8192"),
        bounds=(Bound("answers", "answered", 1000, at_most=False),),
    )


def _connects(pinged: Scenario) -> Scenario:
    """Build the scenario in which nobody is refused, and a client that is connected already does not notice.

    `pinged` has the figures of PINGs.
    """
    return Scenario(
        f"5,000 clients connect at once, {SIDE}, while a client that is connected PINGs",
        "memory", ("04", "04b"), "connects",
        ("--connections", "5000", "--pings", "--broker", "{broker}", "--control", "{second}"),
        timed=False, repeats=3, second=(), topics=100, tls=True, optional=("04b",), ratios=pinged.ratios,
        shown=("seconds_to_end", "per_second", *pinged.shown),
        bounds=(
            Bound("connected", "answered", 5000, at_most=False),
            Bound("PING to PONG meanwhile, p99, ms", "ping_p99_ms", PING_P99_MILLIS),
            Bound("PING to PONG meanwhile, max, ms", "ping_max_ms", None),
        ),
    )  # fmt: skip
