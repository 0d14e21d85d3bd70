import json
import threading
from typing import Any

import orjson
import pytest

from eventlog.buffer import ENTRY_BYTES, MOST_DROPPED, Encode, EventBuffer, NumberedEvent, Stamp, Tee
from eventlog.schema import FIELDS, SCHEMA_VERSION
from eventlog.sink import STAMPED
from tests.unit.eventlog.parts import BOOT, encode, tee

ROOM_FOR_TWO = 2 * (ENTRY_BYTES + 11) + 1


def stamped_line(event: NumberedEvent, lost: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Stamp("proxy", BOOT, encode).line(event, lost))
    return found


def rest(event: dict[str, object]) -> bytes:
    return encode(event)[1:]


def times(buffer: EventBuffer) -> list[tuple[int, Any]]:
    return [(seq, json.loads(b"{" + rest)["ts_us"]) for seq, _, rest in buffer.take(9)]


def test_event_has_the_same_number_in_every_sink_also_if_one_drops() -> None:
    small, large = EventBuffer(ROOM_FOR_TWO), EventBuffer(10 * ROOM_FOR_TWO)
    log = tee([small, large])
    for number in range(5):
        log.put({"ts_us": number})
    assert times(small) == [(1, 0), (2, 1)]
    assert times(large) == [(n + 1, n) for n in range(5)]
    assert (small.dropped, large.dropped) == (3, 0)


def test_next_event_that_gets_in_says_how_many_did_not() -> None:
    buffer = EventBuffer(ROOM_FOR_TWO)
    log = tee([buffer])
    for _ in range(5):
        log.put({})
    buffer.take(9)
    log.put({})
    log.put({})
    assert [(seq, dropped_before) for seq, dropped_before, _ in buffer.take(9)] == [(6, 3), (7, 0)]


def test_memory_of_what_was_taken_is_free_again() -> None:
    buffer = EventBuffer(ROOM_FOR_TWO)
    log = tee([buffer])
    for _ in range(10):
        log.put({})
        log.put({})
        assert buffer.pending_bytes == 2 * (ENTRY_BYTES + 1)
        assert len(buffer.take(2)) == 2
    assert (buffer.dropped, buffer.pending_bytes, len(buffer)) == (0, 0, 0)


def test_long_texts_of_clients_count() -> None:
    buffer = EventBuffer(ROOM_FOR_TWO)
    tee([buffer]).put({"client_version": "v" * 10_000})
    assert buffer.dropped == 1


@pytest.mark.parametrize("encoder", [encode, orjson.dumps])
def test_full_event_takes_no_more_memory_than_is_counted(encoder: Encode) -> None:
    import tracemalloc

    def event(number: int) -> dict[str, object]:
        made: dict[str, object] = {}
        for field in FIELDS:
            if field.name not in STAMPED:
                hashed = "" if field.values else f"{number:016x}"
                made[field.name] = {"string": hashed, "bool": True}.get(field.type, 10**6 + number)
        return made

    buffer = EventBuffer(2**30)
    log = Tee([buffer], encoder, lambda error: pytest.fail(repr(error)))
    log.put(event(0))
    tracemalloc.start()
    try:
        before, counted = tracemalloc.get_traced_memory()[0], buffer.pending_bytes
        for number in range(200):
            log.put(event(number))
        assert tracemalloc.get_traced_memory()[0] - before <= buffer.pending_bytes - counted
    finally:
        tracemalloc.stop()


def test_closed_buffer_drops() -> None:
    buffer = EventBuffer(ROOM_FOR_TWO)
    log = tee([buffer])
    log.put({})
    buffer.close()
    log.put({})
    assert (len(buffer.take(9)), buffer.dropped, buffer.closed) == (1, 1, True)


@pytest.mark.parametrize("wake", ["fill", "close", "ring"])
def test_taker_is_woken(wake: str) -> None:
    buffer = EventBuffer(4 * (ENTRY_BYTES + 1))
    woken = threading.Event()

    def wait() -> None:
        buffer.wait(3600)
        woken.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    if wake == "fill":
        tee([buffer]).put({})
    elif wake == "close":
        buffer.close()
    else:
        buffer.ring()
    assert woken.wait(30)
    thread.join(30)


def test_taker_is_woken_once_for_each_ring_and_rings_do_not_pile_up() -> None:
    buffer = EventBuffer(ROOM_FOR_TWO)
    buffer.ring()
    buffer.ring()
    buffer.wait(3600)
    assert buffer._bell.locked()


def test_line_has_the_stamp_and_the_event() -> None:
    line = stamped_line((7, 2, rest({"kind": "get_topics", "total_us": 5})))
    assert line == {
        "schema_version": SCHEMA_VERSION, "proxy_id": "proxy", "boot_id": BOOT, "cluster": None, "seq": 7,
        "dropped_before": 2, "kind": "get_topics", "total_us": 5,
    }  # fmt: skip


def test_line_names_the_cluster_that_the_proxy_serves() -> None:
    line = Stamp("proxy", BOOT, encode, "pulsar-east").line((1, 0, rest({"kind": "get_topics"})))
    assert json.loads(line)["cluster"] == "pulsar-east"


def test_line_ends_once_and_holds_no_other_end() -> None:
    line = Stamp('a"\n', BOOT, encode).line((1, 0, rest({"tenant": "a\nb"})))
    assert line.count(b"\n") == 1
    assert json.loads(line)["proxy_id"] == 'a"\n'


def test_number_of_the_dropped_fits_its_type() -> None:
    assert stamped_line((1, MOST_DROPPED, rest({"kind": ""})), lost=5)["dropped_before"] == MOST_DROPPED


def test_what_is_lost_behind_the_buffer_is_added() -> None:
    assert stamped_line((9, 2, rest({"kind": ""})), lost=3)["dropped_before"] == 5
