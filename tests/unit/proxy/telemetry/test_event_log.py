"""The event log put together: what it waits for at its end, and what it says of files."""

import asyncio
import gzip
import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.buffer import EventBuffer, Stamp, Tee
from eventlog.members import GzipSpan, gzip_spans
from eventlog.schema import FIELDS, SCHEMA_VERSION, Field
from eventlog.sink import STAMPED
from proxy.auth.own.broker_credentials import Plain
from proxy.config.config import Config
from proxy.telemetry.events.counters import EventLogCounters
from proxy.telemetry.events.log import LEAST_CLOSE_SECONDS, MIB, EventLog, gzip_member
from tests.unit.eventlog.parts import HEADER


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
    return EventLog(config, loop, Plain(lambda: None), lambda: None, EventLogCounters(), log)  # type: ignore[arg-type, return-value]


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


@given(st.lists(st.binary(min_size=1, max_size=5_000), min_size=1, max_size=4))
def test_members_of_files_are_gzip_for_whoever_reads_them(texts: list[bytes]) -> None:
    members = [gzip_member(text) for text in texts]
    assert all(member.startswith(HEADER) for member in members), "recovery finds a member by its head"
    whole = b"".join(members)
    assert gzip.decompress(whole) == b"".join(texts)
    assert gzip_spans(io.BytesIO(whole)) == [GzipSpan("sound", 0, len(whole), b"".join(texts).count(b"\n"))]


def test_member_that_the_end_of_a_file_cuts_off_costs_itself_alone() -> None:
    text = b'{"seq":1}\n' * 20_000
    whole, cut = gzip_member(text), gzip_member(text)[:-1]
    found = gzip_spans(io.BytesIO(whole + cut))
    assert [span.kind for span in found] == ["sound", "unfinished"]
    assert found[0].end == len(whole)


_INTS = {"int16": 15, "int32": 31, "int64": 63}


def _values(field: Field) -> st.SearchStrategy[object]:
    """Give what a field may hold; texts of clients come out of protobuf, which lets only UTF-8 in."""
    kinds: dict[str, st.SearchStrategy[object]] = {
        "bool": st.booleans(),
        "string": st.sampled_from(field.values) if field.values else st.text(),
    }
    found = kinds[field.type] if field.type in kinds else st.integers(0, 2 ** _INTS[field.type] - 1)
    return st.none() | found if field.nullable else found


@settings(max_examples=30)
@given(st.fixed_dictionaries({field.name: _values(field) for field in FIELDS if field.name not in STAMPED}))
def test_lines_say_what_the_standard_library_would(event: dict[str, object]) -> None:
    buffer = EventBuffer(MIB)
    Tee([buffer], orjson.dumps, lambda error: pytest.fail(repr(error))).put(event)
    (numbered,) = buffer.take(9)
    line = Stamp('proxy "1"', "0123456789abcdef", orjson.dumps, "pulsar-east").line(numbered)
    stamp = (SCHEMA_VERSION, 'proxy "1"', "0123456789abcdef", "pulsar-east", 1, 0)
    assert list(json.loads(line).items()) == [*zip(STAMPED, stamp, strict=True), *event.items()]
    assert line.count(b"\n") == 1
