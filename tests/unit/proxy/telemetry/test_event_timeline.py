"""The times of a group: parts that add up to each member's life."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.telemetry.events.timeline import RequestTimeline, TimelineStage, stages_between

US = 1000


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
    began = now = 10**12
    story = RequestTimeline(lambda: now, 1, "broker:6650", b"question")
    for wait, part in steps:
        now += wait
        story.enter(part)
    until = began + joined + stayed
    took, last = stages_between(story, began + joined, until)
    assert sum(part or 0 for part in took) == until // US - (began + joined) // US
    assert all(part is None or part >= 0 for part in took)
    entered = [part for part, at in zip(story.stages, story.entered_ns, strict=True) if at <= until]
    assert last == entered[-1]
    assert took[last] is not None
