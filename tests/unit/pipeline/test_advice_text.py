from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.core.advice_text import Advice, fragment
from pipeline.core.bounds import WatchShare
from pipeline.core.calibration import Judged
from pipeline.core.choice import Point, Target
from pipeline.core.model import MIB, Limits
from proxy.cli.main import main

FINAL = Limits(
    heap_bytes=38 * MIB, direct_bytes=9 * MIB, coalescing=False, fairness="tenant", heap_timeout_us=1_500_000
)

NO_WATCHERS = WatchShare()


def advice(final: Limits = FINAL, refused: tuple[int, int] = (5, 5), watch: WatchShare = NO_WATCHERS) -> Advice:
    held = Point(Limits(heap_bytes=30 * MIB, direct_bytes=7 * MIB), 2, 4, 1000, 0, 120_000, 29 * MIB, 6 * MIB)
    chosen = Point(final, 2, 4, 1000, 0, 90_000, 31 * MIB, 6 * MIB)
    row = {"outcome_error": 0.031, "limiter_p99_us": 5e4, "simulated_p99_us": 6e4, "recorded_ok": 9, "simulated_ok": 9}
    row |= {"recorded_refused": refused[0], "simulated_refused": refused[1]}
    off = Judged(row, 250_000)
    return Advice(
        Target(10, 0.0, 250_000), held, chosen, 0.25, Limits(), (5 * MIB // 2, MIB), off, 0.0125, watch, (3 * MIB, MIB)
    )


def test_every_value_is_what_was_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "proxy.conf"
    file.write_text(fragment(advice()) + "brokerServiceURL=pulsar://127.0.0.1:6650\n")
    assert main(["print-config", "--config", str(file)]) == 0
    printed = capsys.readouterr().out
    for line in (
        "maxTopicListInFlightHeapMemSizeMB=38",
        "maxTopicListInFlightDirectMemSizeMB=9",
        "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis=1500",
        "topicListCoalescingEnabled=false",
        "topicListFairness=tenant",
    ):
        assert line in printed


def test_fragment_gives_its_reasons() -> None:
    text = fragment(advice())
    assert "no refusals, and 99 % of the answered wait at most 250 ms, at 10 times the recorded load" in text
    assert "For 4 proxies (2 for each recorded one)" in text
    assert "heap 30 MiB, direct 7 MiB; with 25 % of headroom" in text
    assert (
        "# recorded: 100; peak in the replay 31 MiB, largest single list 2.5 MiB, not below 3 MiB, which was seen"
        in text
    )
    assert "replay of the recorded limits: 0.040; of the p99 of waits 0.040 (weighed by the promised 250 ms; " in text
    assert "1.20 times the recorded one, and both are far below the promise)" in text
    assert "1.2 %" in text
    assert "0 of 1000 refused, 99 % of the answered waited at most about 90 ms." in text


def test_advised_direct_memory_has_room_for_watchers_and_says_so() -> None:
    text = fragment(advice(watch=WatchShare(5 * MIB, MIB)))
    assert "\nmaxTopicListInFlightDirectMemSizeMB=14\n" in text
    assert "largest single list 1 MiB, 5 MiB of it for watchers\n" in text
    assert "held at most 1 MiB at one proxy, and the load is 10 times the recorded one on 2 times the proxies." in text
    assert "watchers" not in fragment(advice())


def test_values_beyond_half_to_twice_the_recorded_are_marked_with_their_risk() -> None:
    lines = fragment(advice()).splitlines()
    marked = {lines[number + 1].partition("=")[0] for number, line in enumerate(lines) if "extrapolated, rec" in line}
    assert marked == {
        "maxTopicListInFlightHeapMemSizeMB",
        "maxTopicListInFlightDirectMemSizeMB",
        "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis",
    }
    assert "# The risk of the load: brokers and clients were not seen under so many requests" in "\n".join(lines)
    said = lines[0].partition("Extrapolated, so nobody has seen it: ")[2]
    assert set(said.removesuffix(".").split(", ")) == marked | {"load"}
    assert "hold up their broker's connection" in "\n".join(lines)


def test_lists_have_what_they_need_of_the_share_of_clients_that_have_not_read_yet() -> None:
    text = fragment(replace(advice(watch=WatchShare(5 * MIB, MIB)), unproven_percent=50))
    # Half of 18 MiB are the 9 MiB that were replayed; 5 MiB are for watchers.
    assert "\nmaxTopicListInFlightDirectMemSizeMB=23\n" in text
    assert "have 50 % of direct memory (topicListUnprovenReadersMemoryPercent)" in text
    assert "that part is the 9 MiB that lists needed in the replay" in text
    assert "topicListUnprovenReadersMemoryPercent" not in fragment(advice())
