import asyncio
import gc
import json
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from limiter.semaphore import AsyncSemaphore
from protocol.errors import MalformedFrame
from protocol.frames import HEAD_BYTES, read_head
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SLAB_BYTES, SlabPool
from protocol.topic_list import (
    ANSWER_OVERHEAD_BYTES,
    CountingScanner,
    DelegatingScanner,
    OpaqueAnswer,
    TopicListAnswer,
    TopicListScanner,
    heap_size,
)
from proxy.requests.topic_lists.question import ListQuestion
from tests.support.each import each
from tests.support.loops.clock import ManualClock
from tests.support.native import found_by, native_class, native_scanner
from tests.support.programs import succeeded
from tests.support.sockets.frames import framed, list_answer, list_frame

ROOT = Path(__file__).resolve().parents[3]


def rest_of(topics: Sequence[str] = (), **flags: object) -> bytes:
    """Encode what lies behind a request id, by protobuf alone."""
    answer = pb.CommandGetTopicsOfNamespaceResponse(topics=topics, **flags)  # type: ignore[arg-type]
    return answer.SerializePartialToString()


S = TypeVar("S", bound=TopicListScanner)
A = TypeVar("A", bound=OpaqueAnswer)
Scanner = Callable[[int], TopicListScanner]
SCANNERS = (TopicListScanner, CountingScanner, native_scanner)


def fed(scanner: S, data: bytes, chunk_bytes: int) -> S:
    for start in range(0, len(data), chunk_bytes):
        scanner.feed(bytearray(data[start : start + chunk_bytes]))
    return scanner


def scan(data: bytes, chunk_bytes: int = SLAB_BYTES) -> CountingScanner:
    """Count the names of a list; a scanner that does not count must find the same flags, a native one everything."""
    counted = fed(CountingScanner(len(data)), data, chunk_bytes)
    if (native := native_class()) is not None:
        assert found_by(fed(DelegatingScanner(len(data), native), data, chunk_bytes)) == found_by(counted)
    light = fed(TopicListScanner(len(data)), data, chunk_bytes)
    assert (light.filtered, light.changed, light.topics_hash) == (
        counted.filtered,
        counted.changed,
        counted.topics_hash,
    )
    return counted


def receive(frame: bytes, *, counting: bool = False) -> TopicListAnswer:
    head = read_head(frame[:HEAD_BYTES])
    return filled(TopicListAnswer(head, SlabPool(), counting=counting), frame, head.rest_offset)


def filled(answer: A, frame: bytes, position: int) -> A:
    while len(place := answer.writable()):
        place[:] = frame[position : position + len(place)]
        position += len(place)
        answer.advance(len(place))
    return answer


def encoded(answer: OpaqueAnswer, request_id: int) -> bytes:
    return answer.prefix(request_id) + b"".join(answer.slices())


class TestCounts:
    @pytest.mark.parametrize("counting", [False, True])
    def test_a_complete_list_is_counted_when_somebody_asks(self, counting: bool) -> None:
        topics = [f"{number}é" for number in range(100_000)]
        answer = receive(list_frame(77, topics, False, True, "8bafeea1"), counting=counting)
        slabs = -(-answer.size // SLAB_BYTES)
        assert slabs > 2
        *steps, counted = answer.count()
        assert len(steps) == (0 if counting else slabs)
        assert (counted.topic_count, counted.name_bytes) == (len(topics), len("".join(topics).encode()))


def peak_bytes(scanner: TopicListScanner, data: bytearray) -> int:
    """Return the most memory that one step of the scanner allocates."""
    tracemalloc.start()
    try:
        scanner.feed(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class TestCost:
    """What decoding a slab makes of its names."""

    @pytest.mark.parametrize("name", ["t" * 20, "é" + "t" * 510])
    def test_no_object_is_made_of_a_name(self, name: str) -> None:
        data = bytearray(rest_of([name] * (SLAB_BYTES // 520)))
        scanner = TopicListScanner(len(data))
        peak = peak_bytes(scanner, data)
        assert peak < 2000

    def test_no_two_names_are_objects_at_once_when_they_are_counted(self) -> None:
        data = bytearray(rest_of(["é" + "t" * 498] * 500))
        scanner = CountingScanner(len(data))
        peak = peak_bytes(scanner, data)
        assert scanner.name_bytes == 500 * 500
        assert peak < 20_000

    @pytest.mark.threat("lists-of-empty-names")
    def test_no_object_is_made_of_an_unknown_field_when_names_are_counted(self) -> None:
        data = bytearray(b"\x7a\x00" * 50_000 + b"\x12\x01a")
        scanner = CountingScanner(len(data))
        peak = peak_bytes(scanner, data)
        assert (scanner.topic_count, scanner.name_bytes) == (1, 1)
        assert peak < 20_000


class TestHostileBroker:
    """A slab whose end cannot be guessed, because a name is full of the tag's byte, costs a bounded walk in Python."""

    TAIL = b"\x12\x7f" + b"\x12" * 120

    @pytest.mark.threat("lists-of-empty-names")
    @pytest.mark.parametrize("field", [b"\x12\x00", b"\x12\x01\x12", b"\x7a\x00", b"\x18\x00"])
    @pytest.mark.parametrize("scanner", SCANNERS)
    def test_a_slab_of_empty_fields_is_refused(self, scanner: Scanner, field: bytes) -> None:
        slab = bytearray(field * ((SLAB_BYTES - len(self.TAIL)) // len(field)) + self.TAIL)
        read = scanner(2 * SLAB_BYTES)
        with pytest.raises(MalformedFrame, match="topic list has more than"):
            read.feed(slab)

    @pytest.mark.parametrize("scanner", SCANNERS)
    @pytest.mark.parametrize("length", [14, 127, 128, 500])
    def test_names_as_long_as_a_topic_s_pass_whatever_they_are_made_of(self, scanner: Scanner, length: int) -> None:
        field = rest_of(["\x12" * length])
        count = 3 * SLAB_BYTES // len(field)
        fed(read := scanner(count * len(field)), field * count, SLAB_BYTES)
        if isinstance(read, CountingScanner):
            assert (read.topic_count, read.name_bytes) == (count, count * length)

    def test_short_names_pass_where_the_end_is_guessed(self) -> None:
        count = SLAB_BYTES
        read = scan(rest_of(["a"]) * count)
        assert (read.topic_count, read.name_bytes) == (count, count)


class TestMalformed:
    @each(
        "data",
        [
            b"\x12",  # a tag alone
            b"\x12\x05abc",  # a name that is cut
            b"\x12\x80",  # a length that is cut
            b"\x12\x01a\x00\x00",  # field number 0
            b"\x12\x01a\x07",  # wire type 7
            b"\x0c",  # an end group that nobody began
            b"\x12" + b"\xff" * 11,  # a length of more than ten bytes
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a length of 2^64 - 1
            b"\x12\xff\xff\xff\x7f" + b"x" * 5000,  # a long name that never ends
            b"\x02\x88\x27" + b"x" * 5000,  # a long field with number 0
            b"\xfa\xff\xff\xff\x7f\x88\x27" + b"x" * 5000,  # a long field with a number no proto can have
        ],
    )
    @each("chunk_bytes", [1, 4, SLAB_BYTES])
    @each("scanner", SCANNERS)
    def test_bytes_that_are_no_list_are_refused(self, scanner: Scanner, data: bytes, chunk_bytes: int) -> None:
        with pytest.raises(MalformedFrame):
            fed(scanner(len(data)), data, chunk_bytes)

    def test_an_error_comes_out_of_the_body_that_is_being_filled(self) -> None:
        frame = framed(b"\x08\x21\x8a\x02\x06\x08\x07\x12\x7fab")
        with pytest.raises(MalformedFrame, match="ends inside a field"):
            receive(frame)


class TestEncoding:
    def test_fields_of_a_newer_release_survive(self) -> None:
        command = list_answer(77, ["a"])
        command.getTopicsOfNamespaceResponse.MergeFromString(b"\x82\x01\x03new\x78\x05")
        frame = encoded(receive(framed(command.SerializeToString())), 5)
        answer = pb.BaseCommand.FromString(frame[8:]).getTopicsOfNamespaceResponse
        assert (answer.request_id, list(answer.topics)) == (5, ["a"])
        assert answer.SerializeToString().endswith(b"\x82\x01\x03new\x78\x05")

    def test_an_answer_of_any_type_is_sent_under_another_id(self) -> None:
        schema = pb.Schema(name="s", schema_data=b"x" * 70_000, type=pb.Schema.Json)

        def schema_frame(request_id: int) -> bytes:
            response = pb.CommandGetSchemaResponse(request_id=request_id, schema=schema, schema_version=b"\1")
            command = pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA_RESPONSE, getSchemaResponse=response)
            return framed(command.SerializeToString())

        frame = schema_frame(9)
        head = read_head(frame[:HEAD_BYTES])
        answer = filled(OpaqueAnswer(head, SlabPool()), frame, head.rest_offset)
        assert encoded(answer, 2**40) == schema_frame(2**40)


class TestHeapSize:
    @pytest.mark.parametrize("name_bytes", [10, 500])
    def test_permits_cover_what_the_process_holds(self, name_bytes: int) -> None:
        """Ask the kernel about a process that holds 60 answers of 1 MB."""
        program = [sys.executable, "-m", "tests.support.brokers.held_answers", name_bytes, 60]
        measured = json.loads(succeeded(program, cwd=ROOT))
        assert measured["permits"] >= 0.9 * measured["rss_growth"], measured
        assert measured["permits"] >= 0.9 * measured["peak_growth"], measured
        # A permit far above the truth would turn clients away for nothing.
        assert measured["permits"] <= 1.15 * measured["rss_growth"], measured

    def test_bookkeeping_around_an_answer_fits_its_overhead(self) -> None:
        """Count the question, its permit, its future and all objects of the answer but the bytes of its slabs."""
        loop = asyncio.new_event_loop()
        try:
            assert traced_overhead(loop, answers=200) <= ANSWER_OVERHEAD_BYTES
        finally:
            loop.close()


# The bounds at brokers and the group are there already, whatever is asked.
NO_BOUND: Any = SimpleNamespace(limits=SimpleNamespace(max_answer_bytes=1 << 30))


def traced_overhead(loop: asyncio.AbstractEventLoop, answers: int) -> float:
    semaphore = AsyncSemaphore("heap", 1 << 40, max_queue=0, timeout_seconds=1.0, clock=ManualClock())
    frame = list_frame(77, ["a" * 100] * 1000)
    held: list[object] = []
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(answers):
            permit = semaphore.try_acquire(1024)
            assert permit is not None
            question = ListQuestion(loop, SlabPool(), NO_BOUND, NO_BOUND, NO_BOUND, permit, lambda: None)
            assert permit.try_update(heap_size(len(frame)))
            held.append((permit, question, receive(frame)))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / answers - len(frame)
