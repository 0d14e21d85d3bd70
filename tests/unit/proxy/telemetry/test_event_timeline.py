"""The times and the memory of a group: parts that add up to each member's life, and a cost that one event carries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.telemetry.events.timeline import Meter, RequestTimeline, TimelineStage, stages_between

US = 1000


class Clock:
    def __init__(self) -> None:
        self.now_ns = 10**12

    def __call__(self) -> int:
        return self.now_ns


class Member:
    """Makes its event as soon as it hears that it may, as a record does a little later."""

    def __init__(self, story: RequestTimeline, events: list[dict[str, object]]) -> None:
        self._story = story
        self._events = events

    def over(self, *, carries_cost: bool) -> None:
        event: dict[str, object] = {"carries_cost": False}
        if carries_cost:
            self._story.add_cost(event)
        self._events.append(event)


def story_of(clock: Clock) -> tuple[RequestTimeline, list[dict[str, object]]]:
    return RequestTimeline(clock, 1, "broker:6650", b"question"), []


def test_a_meter_sums_sizes_times_the_time_they_were_booked() -> None:
    meter = Meter()
    meter.begin(1 * US, 100)
    meter.resized(3 * US, 50)
    meter.resized(4 * US, 400)
    meter.end(10 * US)
    meter.end(99 * US)
    assert (meter.held_us, meter.byte_us) == (9, 2 * 100 + 1 * 50 + 6 * 400)


@given(
    st.lists(
        st.tuples(st.integers(0, 5_000), st.sampled_from(range(TimelineStage.GROUP, TimelineStage.WRITE + 1))),
        max_size=20,
    ),
    st.integers(0, 30_000),
    st.integers(0, 30_000),
)
def test_parts_add_up_to_the_life_of_a_member_whenever_it_came_and_left(
    steps: list[tuple[int, int]], joined: int, stayed: int
) -> None:
    clock = Clock()
    story, _ = story_of(clock)
    began = clock.now_ns
    for wait, part in steps:
        clock.now_ns += wait
        story.enter(part)
    until = began + joined + stayed
    took, last = stages_between(story, began + joined, until)
    assert sum(part or 0 for part in took) == until // US - (began + joined) // US
    assert all(part is None or part >= 0 for part in took)
    entered = [part for part, at in zip(story.stages, story.entered_ns, strict=True) if at <= until]
    assert last == entered[-1]
    assert took[last] is not None


def test_the_last_event_of_a_group_carries_its_cost() -> None:
    clock = Clock()
    story, events = story_of(clock)
    assert [story.joined() for _ in range(3)] == [False, True, True]
    story.heap_held(10)
    clock.now_ns += 7 * US
    story.heap_over()
    story.direct_held(3)
    story.work_over()
    for _ in range(3):
        clock.now_ns += 2 * US
        story.left(Member(story, events))
    assert [event["carries_cost"] for event in events] == [False, False, True]
    assert {name: events[2][name] for name in events[2] if name != "carries_cost"} == {
        "heap_held_us": 7,
        "direct_held_us": 6,
        "heap_byte_us": 70,
        "direct_byte_us": 18,
    }


@pytest.mark.parametrize("admitted", [True, False])
def test_an_answer_that_begins_is_read_or_waits_for_memory(admitted: bool) -> None:
    clock = Clock()
    story, _ = story_of(clock)
    story.heap_held(10)
    clock.now_ns += 2 * US
    story.response_begun(100, 100, admitted=admitted)
    assert story.stage == (TimelineStage.READ if admitted else TimelineStage.HEAP_UPDATE)
    clock.now_ns += 3 * US
    story.admitted(100)
    clock.now_ns += 1 * US
    story.heap_over()
    assert story.stage == TimelineStage.READ
    assert story.heap_actual_bytes == 100
    assert story.heap.byte_us == (2 * 10 + 4 * 100 if admitted else 5 * 10 + 1 * 100)
