"""The screen of `pulsar-proxy top`, its rates, and the loop around it."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.admin.client import AdminClient, NoAnswer
from proxy.cli.top import command
from proxy.cli.top.screen import render
from proxy.web.admin.rates import READINGS, Rates

MIB = 1024 * 1024
BOOKS = {
    "held_bytes": 50 * MIB,
    "limit_bytes": 100 * MIB,
    "peak_held_bytes": 99 * MIB,
    "queue_size": 312,
    "queue_max_size": 10_000,
    "growers_waiting": 2,
    "overshoots": 1,
    "timed_out": 3,
    "queue_full": 4,
    "cancelled": 5,
    "wait_p50_ms": 12.0,
    "wait_p99_ms": None,
}


def document(**changes: object) -> dict[str, Any]:
    """Make a document as a proxy does."""
    refusal = {
        "time": 0.0, "stage": "heap", "client": "192.0.2.1:5000", "subject": "t/b", "limiter": "heap", "asked": MIB,
        "held": 100 * MIB, "limit": 100 * MIB, "queued": 7, "change": "maxTopicListInFlightHeapMemSizeMB",
        "reason": "Failed", "top_holders": [["t/a", 30 * MIB]],
    }  # fmt: skip
    usage = {"name": "t/a", "byte_seconds": 12.5 * MIB, "sent_bytes": 310.0 * MIB, "refused": 2.0}
    return {
        "proxy": {
            "version": "1.2", "pid": 47, "cluster": "c", "address": "0.0.0.0:6650", "state": "serving",
            "uptime_seconds": 90_061.0, "time": 0.0,
        },
        "memory": {
            "resident_bytes": 84 * MIB, "peak_bytes": None, "budget_bytes": 612 * MIB, "container_limit_bytes": None,
        },
        "limiters": {"heap": dict(BOOKS), "direct": {**BOOKS, "limit_bytes": 0, "queue_max_size": 0}},
        "clients": {"lookup_mode": 812, "relayed": 120, "accepted": 1000, "rejected": 6},
        "broker_connections": {"connecting": 0, "idle": 2, "asked": 4, "paused": 1},
        "lists": {"asked": 1204, "outcomes": {"answered": 1190, "failed": 0}, "per_second": {"answered": 34.21}},
        "slow_readers_closed": {"write_stalled": 3},
        "watches": {"pauses": 9.0},
        "usage": {"half_life_seconds": 60.0, "namespaces": [usage], "principals": [{**usage, "name": "alice"}]},
        "refusals": [refusal],
        "config": {"topicListFairness": "fifo", "maxTopicListInFlightHeapMemSizeMB": "100"},
        "restart_needed": ["servicePort"],
        **changes,
    }  # fmt: skip


def screen(**changes: object) -> str:
    return "\n".join(render(document(**changes), 200))


# --- the screen -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "serving  up 1d 1h 1m  pid 47  0.0.0.0:6650  cluster c",
        "memory   MiB: resident 84.0, peak ?, budget 612.0, container no limit",
        "812 in lookup mode, 120 relayed, accepted 1000, rejected 6",
        "brokers  idle 2, asked 4, paused 1",
        "heap     [##########..........] 50.0 of 100.0 MiB, peak 99.0 MiB",
        "direct   [....................] 50.0 of no limit",
        "queue 312/10000, growing 2, wait p50 12.0 ms p99 -, timed out 3, queue full 4, overshoots 1",
        "asked 1204, answered 1190 (34.2/s)",
        "closed   slow readers: write_stalled 3",
        "watches  pauses 9",
        "heap 192.0.2.1:5000 maxTopicListInFlightHeapMemSizeMB t/b: asked 1.0, held 100.0 of 100.0 MiB, queue 7;"
        " holders (MiB) t/a 30.0",
        "topicListFairness=fifo, maxTopicListInFlightHeapMemSizeMB=100",
        "restart  needed for servicePort",
    ],
)
def test_the_screen_says(text: str) -> None:
    assert text in screen()


def test_namespaces_and_principals_stand_with_what_they_used() -> None:
    rows = [line.split() for line in screen().splitlines() if line.startswith(("t/a", "alice"))]
    assert rows == [[name, "12.5", "310.0", "2"] for name in ("t/a", "alice")]


OVERLOAD = {
    "signals": {"proxy": 0.91, "brokers": None, "source": "cgroup v2"},
    "marks": {"high": 0.85, "low": 0.75, "hard": 0.95, "adaptive_high": 0.85, "adaptive_low": 0.7},
    "state": "paused", "connections": {"paused": 3, "would_pause": 0},
    "stopped_relays": {"watch": 0, "pool": 1, "threshold": 3, "rate": 2}, "longest_pause_seconds": 12.4,
    "delay_seconds": {"median": 1.25, "longest": 20.0}, "memory_pressure": 1.0, "active_topics": 2,
    "topics": [{"topic": "persistent://t/n/a", "natural": 8.0 * MIB, "allowed": 2.0 * MIB}], "age_seconds": 0.3,
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "overload paused, proxy 0.91, brokers ?, marks high 0.85 low 0.75 hard 0.95 adaptive high 0.85 adaptive low",
        "3 paused, longest 12 s, pool 1, threshold 3, rate 2",
        "delay 1.2 s, longest 20.0 s",
        "evaluated 0.3 s ago",
        "rates    pressure 1.00, 2 topics slowed, persistent://t/n/a 2.0 of 8.0 MiB/s",
    ],
)
def test_the_throttles_say_what_they_see_and_do(text: str) -> None:
    assert text in screen(overload=OVERLOAD)
    assert "overload" not in screen(overload=None)


LONGEST_KEY = "maxTopicListInFlightDirectMemSizePermitsAcquireQueueSize"


def crowded() -> dict[str, Any]:
    """Make the document of a proxy at its worst: every number large, everything that can be said to be said."""
    shown = document()
    books = {**BOOKS, "held_bytes": 99_999 * MIB, "limit_bytes": 99_999 * MIB, "peak_held_bytes": 99_999 * MIB}
    books |= {"queue_size": 10_000, "wait_p50_ms": 27_000.0, "wait_p99_ms": 27_000.0, "timed_out": 123_456}
    outcomes = ("answered", "timed_out", "refused_heap", "refused_direct", "failed", "cancelled")
    (usage,), (refusal,) = shown["usage"]["namespaces"], shown["refusals"]
    return {
        **shown,
        "limiters": {"heap": books, "direct": books},
        "lists": {
            "asked": 1_000_000,
            "outcomes": dict.fromkeys(outcomes, 123_456),
            "per_second": dict.fromkeys(outcomes, 1234.5),
        },
        "slow_readers_closed": dict.fromkeys(("write_stalled", "reads_too_slowly", "memory_limit"), 1000),
        "watches": {f"some_watches_of_kind_{number}": 10**6 for number in range(10)},
        "usage": {
            "half_life_seconds": 60.0,
            "namespaces": [{**usage, "name": f"ns-{number}-{'n' * 100}"} for number in range(20)],
            "principals": [{**usage, "name": f"role-{number}"} for number in range(20)],
        },
        "refusals": [
            {**refusal, "stage": "direct", "client": f"192.168.100.10{number}:50000", "change": LONGEST_KEY}
            for number in range(9)
        ],
        "restart_needed": ["servicePort", "webServicePort"] * 5,
    }


@pytest.mark.parametrize("made", [document, crowded])
def test_on_80_columns_and_24_lines_there_is_what_an_operator_needs_in_a_storm(
    made: Callable[[], dict[str, Any]],
) -> None:
    shown = made()
    lines = render(shown, 80, 23)
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert all(f"{name:<8} [" in text for name in ("heap", "direct"))
    assert all(f"{name} {count}" in text for name, count in shown["lists"]["outcomes"].items() if count)
    assert all(usage["name"][:20] in text for usage in shown["usage"]["namespaces"][:3])
    assert all(usage["name"] in text for usage in shown["usage"]["principals"][:2])
    for refusal in shown["refusals"][:3]:
        (line,) = (line for line in lines if f"{refusal['stage']} {refusal['client']}" in line)
        assert refusal["change"].removeprefix("maxTopicListInFlight") in line


@pytest.mark.parametrize(("asked", "limit", "numbers"), [(None, None, "-"), (1001, 1000, "asked 1001, limit 1000")])
def test_a_refusal_without_a_limiter_has_no_books(asked: int | None, limit: int | None, numbers: str) -> None:
    changes = {"stage": "lookups", "limiter": None, "asked": asked, "held": None, "limit": limit, "queued": None}
    refusal = {**document()["refusals"][0], **changes, "top_holders": []}
    assert screen(refusals=[refusal]).endswith(f"maxTopicListInFlightHeapMemSizeMB t/b: {numbers}")


def test_an_idle_proxy_has_a_screen_too() -> None:
    usage = {"half_life_seconds": 60.0, "namespaces": [], "principals": []}
    shown = screen(refusals=[], watches={}, restart_needed=[], usage=usage, future="unknown")
    assert "no refusals" in shown
    assert "watches" not in shown
    assert "restart" not in shown


# --- rates ----------------------------------------------------------------------------------------


def test_a_rate_is_that_of_the_last_ten_looks() -> None:
    rates = Rates()
    assert rates.per_second() == {}
    rates.tick(0.0, {"answered": 5})
    assert rates.per_second() == {}
    rates.tick(2.0, {"answered": 9, "failed": 3})
    assert rates.per_second() == {"answered": 2.0, "failed": 1.5}
    for look in range(READINGS):
        rates.tick(100.0 + look, {"answered": 100 + 7 * look})
    assert rates.per_second() == {"answered": 7.0}


# --- the command ----------------------------------------------------------------------------------


Outcome = Mapping[str, Any] | BaseException


def asked(monkeypatch: pytest.MonkeyPatch, *outcomes: Outcome) -> None:
    """Have the proxy answer so, one after the other."""
    left = iter(outcomes)

    def ask(_: AdminClient) -> Mapping[str, Any]:
        outcome = next(left)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    monkeypatch.setattr(AdminClient, "top", ask)
    monkeypatch.setattr(time, "sleep", lambda _: None)


def options(**given: object) -> argparse.Namespace:
    where = {"socket": "/s", "config": None, "address": None, "token_file": None}
    return argparse.Namespace(**where | {"once": False, "json": False, "plain": True, "interval": 1.0} | given)


def test_a_terminal_is_redrawn_in_place_until_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(monkeypatch, document(), document(), KeyboardInterrupt())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "8")
    assert command.run_top(options(), {}) == 0
    first, second = capsys.readouterr().out.split("\x1b[H")[1:]
    assert first.count("\n") == 7
    assert max(len(line) for line in first.replace("\x1b[K", "").split("\n")) <= 60
    assert (first.endswith("\x1b[J"), second.rstrip("\n")) == (True, first)


def test_what_is_no_terminal_gets_plain_lines_and_json_is_one_document_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(monkeypatch, document(), document(), KeyboardInterrupt())
    assert command.run_top(options(), {}) == 0
    out = capsys.readouterr().out
    assert ("\x1b" in out, out.count("in lookup mode")) == (False, 2)
    asked(monkeypatch, document(), document(), KeyboardInterrupt())
    assert command.run_top(options(json=True), {}) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines if line] == [document()] * 2


@pytest.mark.parametrize("before", [0, 1])
def test_a_proxy_that_does_not_answer_is_one_line_and_exit_code_1(
    before: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(monkeypatch, *[document()] * before, NoAnswer("no proxy answers"))
    assert command.run_top(options(), {}) == 1
    assert capsys.readouterr().err == "error: no proxy answers\n"


@pytest.mark.parametrize(
    ("given", "environ", "expected"),
    [
        ({"socket": "/no/s"}, {}, "/no/s"),
        ({"socket": None}, {"controlSocketPath": "/no/t"}, "/no/t"),
        ({"socket": None}, {"XDG_RUNTIME_DIR": "/no", "servicePort": "7001"}, "/no/pulsar-proxy-7001.sock"),
    ],
)
def test_the_socket_is_found_as_the_proxy_finds_it(
    given: dict[str, object], environ: dict[str, str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run_top(options(once=True, **given), environ) == 1
    assert f"tried: {expected}" in capsys.readouterr().err


def test_the_proxy_is_found_by_a_file_that_was_broken_since(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "proxy.conf"
    conf.write_text("controlSocketPath=/no/s\nmaxConcurrentLookupRequests=many\nservicePortTls=6651\nlogLevel=loud\n")
    assert command.run_top(options(once=True, socket=None, config=conf), {}) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"warning: {conf}:2: maxConcurrentLookupRequests: got 'many', expected ")
    assert f"warning: {conf}:4: logLevel: got 'loud'" in err
    assert "tried: /no/s" in err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("servicePortTls=x\n", "servicePortTls: got 'x'"),
        ("servicePort=\n", "servicePort: got nothing"),
        # The line of which nobody knows the key.
        ("controlSocketPath=/run/\\u00zz\n", "proxy.conf:1: got "),
        (None, "no such file or directory"),
    ],
)
def test_nobody_guesses_where_the_proxy_is(
    text: str | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "proxy.conf").write_text(text)
    assert command.run_top(options(once=True, socket=None, config=tmp_path / "proxy.conf"), {}) == 2
    assert told in capsys.readouterr().err


def test_brokers_that_are_not_up_stand_above_the_connections_with_the_reason() -> None:
    shown = document()
    up = {"broker": "a:6650", "state": "up", "seconds": 0.0, "error": ""}
    shown["brokers"] = [up, {"broker": "b:6650", "state": "down", "seconds": 65.0, "error": "refused\x1b[2J"}]
    (line,) = [line for line in render(shown, 200) if line.startswith("brokers")]
    assert "1 up, 1 down" in line
    assert "refused" in line
    assert "for 1m 5s" in line
    assert "\x1b" not in line
    shown["brokers"] = [up]
    assert "1 up" not in "".join(render(shown, 200))


def test_a_larger_terminal_shows_more_until_it_shows_all() -> None:
    shown = crowded()
    heights = [len(render(shown, 200, lines)) for lines in range(24, 90)]
    assert heights == [min(lines, heights[-1]) for lines in range(24, 90)]
    assert [line for line in render(shown, 200, 89) if line] == [line for line in render(shown, 200) if line]
    assert LONGEST_KEY in "\n".join(render(shown, 200, 24))
