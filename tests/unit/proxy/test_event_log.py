"""The event log put together: what it waits for at its end, and what it says of files."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.auth.broker_credentials import Plain
from proxy.config import Config
from proxy.counters import Counters
from proxy.events.log import LEAST_CLOSE_SECONDS, EventLog


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    warning = info


class Thread:
    """A sink's thread that notes how long it is waited for."""

    def __init__(self, *, ends: bool) -> None:
        self.waits: list[float] = []
        self._ends = ends

    def join(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return self._ends


def event_log(directory: Path, log: Lines) -> EventLog:
    config = Config.load(overrides={"brokerServiceURL": "pulsar://b", "eventLogDirectory": str(directory)})
    loop = asyncio.get_running_loop()
    return EventLog(config, loop, Plain(lambda: None), lambda: None, Counters(), log)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(("left", "waited"), [(0.0, LEAST_CLOSE_SECONDS), (-3.0, LEAST_CLOSE_SECONDS), (5.0, 5.0)])
async def test_sinks_get_a_moment_even_if_the_drain_has_used_up_its_time(
    tmp_path: Path, left: float, waited: float
) -> None:
    lines, thread = Lines(), Thread(ends=False)
    log = event_log(tmp_path, lines)
    log._sinks[0] = replace(log._sinks[0], thread=thread)  # type: ignore[arg-type]
    log._loop = SimpleNamespace(time=lambda: 100.0)  # type: ignore[assignment]
    assert log.sink is not None
    log.sink.put({"kind": "get_topics"})
    await log.close(left)
    assert thread.waits == [waited]
    assert waited >= 2.0
    ((event, fields),) = lines.lines
    assert (event, fields["where"], fields["queued"]) == ("events were not written", "files", 1)


async def test_each_file_is_told_of_however_many_there_are(tmp_path: Path) -> None:
    lines = Lines()
    log = event_log(tmp_path, lines)
    log._loop = SimpleNamespace(time=lambda: 100.0)  # type: ignore[assignment]
    for detail in ("first: damaged", "second: damaged", "second: damaged", "third: finished"):
        log._noted(detail)
    assert [fields["detail"] for _, fields in lines.lines] == ["first: damaged", "second: damaged", "third: finished"]
