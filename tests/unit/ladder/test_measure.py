"""How rounds are run: one server for rows that differ by their load, and everybody's processor time looked at."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from benchmarks.ladder import measure
from benchmarks.ladder.measure import Effort, Stage
from benchmarks.ladder.processes import Child
from benchmarks.ladder.rows import Scenario
from benchmarks.ladder.servers import Running

QUICK = Effort(pairs=2, seconds=1.0, java_warmup_seconds=1.0)
REPORT = {"per_second": 10.0, "load_cores": 0.1, "proxy_cores": 0.2}


class Started(Child):
    """A process that is said to run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid = sum(map(ord, name))
        self.ended = False

    def end(self) -> None:
        self.ended = True

    def peak_rss_bytes(self) -> int:
        return self.pid

    def threads(self) -> int:
        return 1


class Machine:
    """Stands for the machine: notes which servers were started, and what the load generator was asked."""

    def __init__(self) -> None:
        self.started: dict[str, Started] = {}
        self.neighbours: list[Started] = []
        self.asked: list[list[str]] = []
        self.broker = Running(Started("broker"), 1, 0.0)

    @contextmanager
    def staged(self, _: Scenario) -> Iterator[Stage]:
        yield Stage(self.broker, None)

    def start(self, name: str, *_: object) -> Running:
        assert name not in self.started
        if name == "01":
            return self.broker
        self.started[name] = Started(name)
        return Running(self.started[name], 2, 0.0)

    def neighbour(self, _: float) -> Started:
        self.neighbours.append(Started("neighbour"))
        return self.neighbours[-1]

    def run(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert "neighbour=" not in command[command.index("--watch") + 1] or not self.neighbours[-1].ended
        self.asked.append(command)
        return subprocess.CompletedProcess(command, 0, json.dumps(REPORT), "")

    def watched(self) -> list[str]:
        return [command[command.index("--watch") + 1] for command in self.asked]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(measure, "staged", made.staged)
    monkeypatch.setattr(measure, "start", made.start)
    monkeypatch.setattr(measure, "start_neighbour", made.neighbour)
    monkeypatch.setattr(measure.subprocess, "run", made.run)  # type: ignore[attr-defined]
    return made


def paired(*rows: str, effort: Effort = QUICK) -> dict[str, measure.Measured]:
    return measure.paired(Scenario("a load", "paired", rows, "lists"), rows, effort)


def test_rows_that_differ_by_their_load_have_one_server(machine: Machine) -> None:
    found = paired("04", "04-20", "04-utf8", "06", "06-busy")
    assert list(machine.started) == ["04", "06"]
    assert {name: len(row.reports) for name, row in found.items()} == dict.fromkeys(found, 2)
    assert found["04-20"].peak_rss_bytes == found["04"].peak_rss_bytes == machine.started["04"].pid


def test_a_peer_is_warmed_up_once_and_a_row_alone_has_its_server_too(machine: Machine) -> None:
    paired("06-busy")
    assert list(machine.started) == ["06"]
    assert len(machine.asked) == 1 + 2


def test_the_load_of_a_row_stands_behind_that_of_the_scenario(machine: Machine) -> None:
    paired("04", "04-20", effort=Effort(pairs=1))
    asked = {command[-2]: command[-1] for command in machine.asked}
    assert asked["--names"] == "46364x20"
    assert ["--names" in command for command in machine.asked] == [False, True]


def test_everybody_is_watched_and_without_a_proxy_nobody_is_taken_for_one(machine: Machine) -> None:
    paired("01", "04", effort=Effort(pairs=1))
    broker, proxy = machine.broker.child.pid, machine.started["04"].pid
    assert machine.watched() == [f"broker={broker}", f"broker={broker},proxy={proxy}"]


def test_a_neighbour_is_there_for_the_rows_that_ask_for_one_and_no_longer(machine: Machine) -> None:
    paired("04", "04-busy")
    assert ["neighbour=" in watched for watched in machine.watched()] == [False, True, True, False]
    assert [neighbour.ended for neighbour in machine.neighbours] == [True, True]


def test_each_run_has_the_price_of_a_unit(machine: Machine) -> None:
    assert paired("04")["04"].series("cpu_us") == [20_000, 20_000]
