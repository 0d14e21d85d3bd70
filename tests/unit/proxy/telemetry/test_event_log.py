"""The event log put together: what it waits for at its end, and what it says of files."""

import asyncio
import gzip
import io
import json
import ssl
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.buffer import EventBuffer, Stamp, Tee
from eventlog.file_names import new_name, open_name
from eventlog.members import GzipSpan, gzip_spans
from eventlog.schema import FIELDS, SCHEMA_VERSION, Field
from eventlog.sink import STAMPED
from proxy.auth.own.broker_credentials import Plain
from proxy.telemetry.events.log import MIB, EventLog, gzip_member
from tests.support.configured import configured
from tests.support.cores import core_of
from tests.support.log_lines import LogLines
from tests.support.patience import patient
from tests.unit.eventlog.parts import HEADER, finished, seqs


def event_log(directory: Path, lines: LogLines) -> EventLog:
    core = core_of(config=configured(eventLogDirectory=str(directory)), log=lines.log)
    return EventLog(core, Plain(lambda: None), ssl.create_default_context)


async def test_sinks_get_a_moment_even_if_the_drain_has_used_up_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of a slow disk the moment is a longer one.
    monkeypatch.setattr("proxy.telemetry.events.log.LEAST_CLOSE_SECONDS", patient(20))
    lines = LogLines()
    log = event_log(tmp_path, lines)
    log.start()
    assert log.sink is not None
    log.sink({"kind": "get_topics"})
    await log.close(-3.0)
    assert lines.said == []
    assert seqs(*finished(tmp_path)) == [1]


async def test_each_file_of_a_proxy_that_has_ended_is_told_of(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / open_name(new_name("other", "0" * 16, number))).write_bytes(gzip_member(b"{}\n"))
    lines = LogLines()
    log = event_log(tmp_path, lines)
    log.start()
    assert log.sink is not None
    log.sink({"kind": "get_topics"})
    await log.close(10.0)
    await asyncio.sleep(0)
    assert [line["event"] for line in lines.said] == ["event files of a proxy that has ended"] * 3


@given(st.lists(st.binary(min_size=1, max_size=5_000), min_size=1, max_size=4))
def test_members_of_files_are_gzip_for_whoever_reads_them(texts: list[bytes]) -> None:
    members = [gzip_member(text) for text in texts]
    assert all(member.startswith(HEADER) for member in members), "recovery finds a member by its head"
    whole = b"".join(members)
    assert gzip.decompress(whole) == b"".join(texts)
    assert gzip_spans(io.BytesIO(whole)) == [GzipSpan("sound", 0, len(whole), b"".join(texts).count(b"\n"))]


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
