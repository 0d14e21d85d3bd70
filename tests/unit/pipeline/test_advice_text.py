from pathlib import Path

import pytest

from pipeline.advice_text import Advice, fragment
from pipeline.calibration import Judged
from pipeline.choice import Point, Target
from pipeline.replay.model import MIB, Limits
from proxy.cli.main import main

FINAL = Limits(
    heap_bytes=38 * MIB, direct_bytes=9 * MIB, coalescing=False, fairness="tenant", heap_timeout_us=1_500_000
)


def advice(final: Limits = FINAL, refused: tuple[int, int] = (5, 5)) -> Advice:
    held = Point(Limits(heap_bytes=30 * MIB, direct_bytes=7 * MIB), 2, 4, 1000, 0, 120_000, 29 * MIB, 6 * MIB)
    chosen = Point(final, 2, 4, 1000, 0, 90_000, 31 * MIB, 6 * MIB)
    row = {"outcome_error": 0.031, "recorded_p99_us": 5e4, "simulated_p99_us": 6e4, "recorded_ok": 9, "simulated_ok": 9}
    row |= {"recorded_refused": refused[0], "simulated_refused": refused[1]}
    off = Judged(row, 250_000)
    return Advice(Target(10, 0.0, 250_000), held, chosen, 0.25, Limits(), (5 * MIB // 2, MIB), off, 0.0125)


def test_fragment_is_a_configuration_that_the_proxy_accepts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "proxy.conf"
    file.write_text(fragment(advice()) + "brokerServiceURL=pulsar://127.0.0.1:6650\nwebServicePort=8080\n")
    assert main(["check-config", "--config", str(file)]) == 0
    assert "warning" not in capsys.readouterr().err


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
    assert "no refusals, and 99 % wait at most 250 ms, at 10 times the recorded load" in text
    assert "For 4 proxies (2 for each recorded one)" in text
    assert "heap 30 MiB, direct 7 MiB; with 25 % of headroom" in text
    assert "# recorded: 100; peak in the replay 31 MiB, largest single list 2.5 MiB\n" in text
    assert "replay of the recorded limits: 0.040; of the p99 of waits 0.040 (weighed by the promised 250 ms; " in text
    assert "1.20 times the recorded one, and both are far below the promise)" in text
    assert "1.2 %" in text
    assert "0 of 1000 refused, 99 % waited at most about 90 ms." in text


def test_fragment_says_how_many_refusals_the_replay_missed() -> None:
    assert "in the replay: it" not in fragment(advice())
    said = "\n# Under the recorded limits 43 requests were refused, 24 in the replay: it missed 19.\n"
    assert said in fragment(advice(refused=(43, 24)))
