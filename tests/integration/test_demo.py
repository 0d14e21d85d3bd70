"""`pulsar-proxy demo` as its user meets it: a table, an exit code, and nothing left running."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.cli.demo.children import directory_for_lists
from proxy.cli.demo.overload import OverloadPlan, OverloadTally, broken
from proxy.cli.demo.storm import StormPlan, StormTally
from proxy.cli.demo.table import MIB, Outcome, broken_promises, render
from tests.support.auth.tls import PemFiles, certificate
from tests.support.clients.wire import WireClient
from tests.support.patience import patient
from tests.support.sockets.local_disk import local_disk
from tests.unit.eventlog.parts import events_in

ROOT = Path(__file__).parents[2]
SMALL = ["--connections", "30", "--topics", "1000", "--heap-mb", "1", "--direct-mb", "1", "--late-seconds", "0.5"]


def demo(*options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "proxy", "demo", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def finished(*options: str) -> tuple[int, str, str]:
    with demo(*options) as process:
        output, errors = process.communicate(timeout=patient(60))
    return process.returncode, output, errors


def row(output: str, name: str) -> str:
    found = re.search(rf"^  {name} +(\S.*)$", output, re.MULTILINE)
    assert found is not None, output
    return found[1]


@pytest.fixture
def by_hand() -> Iterator["subprocess.Popen[str]"]:
    with demo("--broker-only", "--topics", "10") as process:
        try:
            yield process
        finally:
            process.terminate()


def begun(by_hand: "subprocess.Popen[str]") -> tuple[list[int], list[str]]:
    """Give the processes of broker and proxy, and the lines that say where they are."""
    assert by_hand.stdout is not None
    lines = [by_hand.stdout.readline() for _ in range(5)]
    return [int(found) for found in re.findall(r"\(process (\d+)\)", "".join(lines))], lines


def test_a_storm_is_answered_whole_and_within_memory() -> None:
    code, output, errors = finished(*SMALL)
    assert (code, errors) == (0, ""), output
    assert row(output, "answers") == "120"
    assert [row(output, name) for name in ("refused", "lost", "wrong")] == ["0", "0", "0"]
    # Equal requests of one connection that wait at the same time share a question.
    assert 30 <= int(row(output, "requests to broker").split()[0]) <= 120
    assert "The promise held" in output
    assert "\x1b" not in output
    assert float(row(output, "of a quick client").split()[0]) <= float(row(output, "longest wait").split()[0])


def test_a_storm_over_tls_is_answered_whole(tmp_path: Path) -> None:
    keys = {"servicePort": "", **PemFiles.write(tmp_path, certificate("first", "proxy.example")).server_keys}
    code, output, errors = finished(*SMALL, *(word for key in keys for word in ("--set", f"{key}={keys[key]}")))
    assert (code, errors) == (0, ""), output
    assert [row(output, name) for name in ("answers", "refused", "lost", "wrong")] == ["120", "0", "0", "0"]


def test_a_storm_with_an_event_log_leaves_an_event_for_each_request(tmp_path: Path) -> None:
    code, output, errors = finished(*SMALL, "--event-log", str(tmp_path), "--set", "eventLogProxyId=demo-proxy")
    assert (code, errors) == (0, ""), output
    events = events_in(tmp_path)
    assert Counter(event["outcome"] for event in events) == {"ok": 120}
    assert {event["proxy_id"] for event in events} == {"demo-proxy"}
    assert not list(tmp_path.glob(".*"))


def test_lists_of_late_readers_go_to_a_disk_that_the_proxy_accepts(tmp_path: Path) -> None:
    with local_disk(tmp_path) as suited:
        disk = ("--set", f"topicListSpillDirectory={suited}")
        # Lists move when memory has been short for two seconds of a proxy that gets the processor.
        late = str(min(patient(4), 20))
        code, output, errors = finished(*SMALL, "--topics", "6000", "--late-seconds", late, *disk)
        assert (code, errors) == (0, ""), output
        assert int(row(output, "lists that went to disk")) > 0
        assert "+ disk 10.0 MiB" in row(output, "allowed")
        assert list(suited.iterdir()) == []


def test_a_directory_that_the_proxy_would_refuse_is_passed_over(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert [directory_for_lists(place) for place in (shared, tmp_path / "missing" / "too")] == [None, None]


def test_refusals_can_be_meant() -> None:
    # A request has less time than a timer's step, so that each is refused, however quick or busy the machine is.
    tight = ["--set", "topicListRequestTimeoutMillis=1", "--slow-share", "1"]
    code, output, _ = finished(*SMALL, *tight)
    assert code == 1, output
    code, output, _ = finished(*SMALL, *tight, "--accept-refusals")
    assert code == 0, output
    assert int(row(output, "refused")) > 0
    assert "every request answered or refused" in output


def test_options_that_make_no_sense_are_refused() -> None:
    code, output, errors = finished("--slow-share", "2")
    assert (code, output) == (2, "")
    assert "--slow-share: got 2.0, expected 0 to 1" in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_by_hand_serves_until_it_is_ended_and_leaves_nothing(
    by_hand: "subprocess.Popen[str]", number: signal.Signals
) -> None:
    (broker, proxy), lines = begun(by_hand)
    address = re.search(r"proxy +pulsar://(127\.0\.0\.1):(\d+)", lines[1])
    assert address is not None
    with WireClient(address[1], int(address[2])) as client:
        client.connect()
        assert len(client.get_topics("demo/ns-299").topics) == 10
    by_hand.send_signal(number)
    assert by_hand.wait(timeout=patient(30)) == 130
    for child in (broker, proxy):
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def test_a_demo_by_hand_ends_when_a_child_does(by_hand: "subprocess.Popen[str]") -> None:
    (broker, proxy), _ = begun(by_hand)
    os.kill(broker, signal.SIGKILL)
    _, errors = by_hand.communicate(timeout=patient(30))
    assert by_hand.returncode == 1
    assert "proxy.cli.demo.broker ended" in errors
    with pytest.raises(ProcessLookupError):
        os.kill(proxy, 0)


# ---- The promise ----


def outcome(tally: StormTally, peak_mib: float = 60) -> Outcome:
    return Outcome(
        plan=StormPlan(connections=128, requests=4, topics=10, slow_share=0.25, late_seconds=3),
        tally=tally,
        limits=(10 * MIB, 10 * MIB),
        idle_bytes=40 * MIB,
        peak_bytes=int(peak_mib * MIB),
        broker_questions=512,
        broker_most_outstanding=64,
    )


@pytest.mark.parametrize(("peak_mib", "kept"), [(66, True), (66.1, False)])
def test_memory_above_the_allowance_breaks_the_promise(peak_mib: float, kept: bool) -> None:
    found = outcome(StormTally(512, answered=512, largest_answer_bytes=MIB), peak_mib)
    assert (broken_promises(found) == []) is kept
    assert ("BROKEN: the proxy grew by 26.1 MiB, expected at most 26.0 MiB" in render(found)) is not kept


def test_each_request_that_was_not_answered_breaks_the_promise() -> None:
    tally = StormTally(512, answered=506, wrong=1, lost=2, largest_answer_bytes=MIB)
    tally.refusals["TooManyRequests: heap"] = 3
    found = outcome(tally)
    assert broken_promises(found) == [
        "3 requests were refused, expected 0",
        "2 requests were lost, expected 0",
        "1 requests were answered wrongly, expected 0",
    ]
    assert "3 x TooManyRequests: heap" in render(found)


def test_a_storm_of_producers_is_held_and_released() -> None:
    # The proxy asks a broker each three seconds: shorter storms are over before they are held and released.
    code, output, errors = finished("--overload", "--connections", "20", "--overload-seconds", "18")
    assert (code, errors) == (0, ""), output
    assert row(output, "connections lost") == "0"
    assert row(output, "held at once") == "20 connections"
    sent, arrived = re.findall(r"([\d,]+) (?:sent|arrived)", row(output, "messages"))
    assert sent == arrived
    assert "The promise held" in output


def test_a_storm_of_producers_that_broke_its_promise_says_how() -> None:
    plan = OverloadPlan(10, 20.0)
    held = OverloadTally(sent=9, arrived=9, is_released=True, most_paused=10)
    assert broken(plan, held) == []
    assert broken(plan, replace(held, most_paused=0)) == ["no producer was held"]
    assert broken(plan, replace(held, is_released=False)) == ["producers are held still"]
    assert broken(plan, OverloadTally(9, 7, 1, 3, is_released=True, most_paused=10)) == [
        "3 connections ended, expected 0",
        "2 messages did not arrive, expected 0",
        "1 messages arrived twice or out of order, expected 0",
    ]
    assert broken(plan, replace(held, most_bytes=plan.allowed_bytes + 1))[0].startswith("the broker held")
