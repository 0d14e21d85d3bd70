"""Every event is written or counted as lost, in order, whatever the sink and the disk do in between."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.drain import StoreError
from tests.unit.eventlog.parts import Line

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 30)),
        st.tuples(st.just("long"), st.integers(1, 3)),
        st.tuples(st.just("bad"), st.integers(1, 2)),
        st.tuples(st.just("step"), st.integers(0, 40)),
        st.tuples(st.just("fail"), st.integers(1, 3)),
    ),
    max_size=60,
)


@pytest.mark.threat("event-flood")
@given(ACTIONS, st.integers(5_000, 200_000))
def test_events_are_written_or_counted(actions: list[tuple[str, int]], limit_bytes: int) -> None:
    line = Line(limit_bytes=limit_bytes)
    now, put = 100.0, 0
    for action, count in actions:
        if action == "step":
            now += count / 10
            line.drain.step(now)
        elif action == "fail":
            line.store.failures += [StoreError("no")] * count
        else:
            of_kind: dict[str, dict[str, object]] = {
                "long": {"client_version": "v" * 20_000},
                "bad": {"tenant": object()},
            }
            line.put(count, **of_kind.get(action, {}))
            put += count
        assert line.buffer.pending_bytes <= limit_bytes
    line.store.failures = []
    line.drain.finish(now)
    counts, events = line.drain.counts, line.store.events
    assert counts.written == len(events)
    assert counts.written + counts.lost + line.buffer.dropped == put
    written = [event["seq"] for event in events]
    assert written == sorted(set(written))
    # Each event says exactly what is missing between it and the one before.
    gaps = [after - before - 1 for before, after in zip([0, *written], written, strict=False)]
    assert [event["dropped_before"] for event in events] == gaps
