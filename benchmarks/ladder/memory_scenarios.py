"""Owns the scenarios about the memory of relays, as data: what consumers that stop reading cost, and the price of the
bounds for all others. Runs nothing."""

from __future__ import annotations

from benchmarks.ladder.rows import MIB, Bound, Column, Ratio, Scenario

ROWS = ("02", "02p", "02k", "02b", "06")
# Bounds may cost so much of a processor's time for a message or a MB.
PRICE = 1.03
# After so many bytes a consumer has shown that it reads, and the kernel has tuned its window.
TAKEN = 4 * MIB


def relay_memory(columns: tuple[Column, ...], echo_64k: tuple[str, ...]) -> dict[str, Scenario]:
    """Return the scenarios by name, given the columns of a connection's memory and the options of an echo of 64 KiB."""
    at_once = (
        Bound("process and sockets per consumer, defaults", "bytes_per_connection", 1.0 * MIB, rows=("02",)),
        Bound("process and sockets per consumer, pool", "bytes_per_connection", 0.35 * MIB, rows=("02p",)),
        Bound("process and sockets per consumer, no bounds", "bytes_per_connection", 1.0 * MIB, at_most=False,
              rows=("02k",)),
        Bound("a reader's throughput, beside over alone", "reader_ratio", 0.95, at_most=False, rows=("02", "02p")),
    )  # fmt: skip
    later = (
        # The bound in sum for 500 of them, and half a MiB in the process; those above it are ended.
        Bound("process and sockets per consumer, defaults", "bytes_per_connection", 1.5 * MIB, rows=("02",)),
        Bound("process and sockets per consumer, pool", "bytes_per_connection", 0.5 * MIB, rows=("02p",)),
    )
    wide = ("--connections", "40", "--frame-bytes", "10240", "--window", "16")
    many = ("--connections", "50", "--frame-bytes", "10240", "--window", "16", "--receipts")
    bulk = ("--connections", "4", "--frame-bytes", "131072", "--window", "8", "--receipts")
    return {
        "stopped-consumers": _stopped("stop reading", (), columns, at_once),
        "stopped-readers": _stopped("stop reading after 4 MiB", ("--taken", str(TAKEN)), columns, later),
        "memory-price-producers": _price("50 producers of 10 KiB", many, "sink"),
        "memory-price-consumers": _price("echo of 10 KiB, 40 connections", wide, "echo"),
        "memory-price-64k": _price("echo of 64 KiB, 4 connections, 16 outstanding each", echo_64k, "echo"),
        "memory-price-128k": _price("128 KiB frames into a sink, 4 connections, 8 outstanding each", bulk, "sink"),
    }


def _stopped(what: str, options: tuple[str, ...], columns: tuple[Column, ...], bounds: tuple[Bound, ...]) -> Scenario:
    return Scenario(
        f"500 relayed consumers that {what}, 15 s after that; another beside them reads",
        "memory", ROWS, "stopped-consumers", ("--connections", "500", "--seconds", "15", *options), "flood",
        relayed=True, timed=False, settings=(("tcpUserTimeoutMillis", "0"),),
        # Buffers of 500 brokers' sockets are more than the kernel gives all TCP of a machine: nobody would be fast.
        broker=("--send-buffer-bytes", "262144"),
        columns=(
            *columns, Column("socket_bytes", "in its sockets", mib=True),
            Column("alone_mb_per_second", "a reader alone, MB/s"), Column("beside_mb_per_second", "beside, MB/s"),
        ),
        bounds=bounds, optional=("02b",),
    )  # fmt: skip


def _price(title: str, options: tuple[str, ...], data: str) -> Scenario:
    """Build the scenario of what a relay costs with a pool, without, without bounds, and in the version before."""
    return Scenario(
        f"price of bounds for the memory of relays, {title}",
        "paired", ("02q", "02", "02n", "02a", "02b"), "relay", options, "echo" if data == "echo" else "sink",
        quantity="mb_per_second", relayed=True,
        ratios=(
            Ratio("02q", ("02",), PRICE, quantity="cpu_us", at_most=True),
            Ratio("02", ("02n",), PRICE, quantity="cpu_us", at_most=True),
            Ratio("02", ("02b",), PRICE, quantity="cpu_us", at_most=True),
            # The version before may have had no other engine than the event loop.
            Ratio("02a", ("02b",), PRICE, quantity="cpu_us", at_most=True),
            *(Ratio(over, (under,), None) for over, under in (("02q", "02"), ("02", "02n"), ("02", "02b"))),
        ),
        optional=("02b",),
    )  # fmt: skip
