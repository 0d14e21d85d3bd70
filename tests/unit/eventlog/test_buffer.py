import json
import threading
from typing import Any

import orjson
import pytest

from eventlog.buffer import ENTRY_BYTES, Encode, EventBuffer, Tee
from eventlog.schema import FIELDS
from eventlog.sink import STAMPED
from tests.support.patience import patient
from tests.unit.eventlog.parts import encode, tee

ROOM_FOR_TWO = 2 * (ENTRY_BYTES + 11) + 1


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
    assert woken.wait(patient(30))
    thread.join(patient(30))
