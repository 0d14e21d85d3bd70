"""The topics that the adaptive throttle may slow: patterns that opt in and out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.overload.samples import OTHER_TOPICS
from proxy.overload.topic_choice import TopicChoice


@pytest.mark.parametrize(
    ("patterns", "topic", "is_in"),
    [
        (("*",), "persistent://a/b/c", True),
        (("persistent://a/*",), "persistent://a/b/c-partition-7", True),
        (("persistent://a/b/c",), "persistent://a/b/c-partition-7", True),
        (("persistent://a/b/c",), "persistent://a/b/c-partition-x", False),
        (("*", "!*/logs"), "persistent://a/b/logs-partition-0", False),
        (("!*/logs", "*"), "persistent://a/b/c", True),
        (("persistent://a.b/*",), "persistent://axb/c/d", False),
        ((), "persistent://a/b/c", False),
        (("*",), OTHER_TOPICS, True),
        (("*", "!x"), OTHER_TOPICS, False),
        (("persistent://a/*",), OTHER_TOPICS, False),
    ],
)
def test_patterns_opt_topics_in_and_out(patterns: tuple[str, ...], topic: str, is_in: bool) -> None:
    assert (topic in TopicChoice(patterns)) is is_in


GLOBS = st.text("ab*", max_size=8)


@given(pattern=GLOBS, topic=st.text("ab\n", min_size=1, max_size=12))
def test_a_star_stands_for_any_text(pattern: str, topic: str) -> None:
    places = {0}
    for letter in pattern:
        if letter == "*":
            places = set(range(min(places, default=len(topic) + 1), len(topic) + 1))
        else:
            places = {place + 1 for place in places if topic[place : place + 1] == letter}
    assert (topic in TopicChoice((pattern,))) is (len(topic) in places)


def test_a_name_that_nearly_matches_many_stars_takes_no_longer_than_another() -> None:
    # Tried at each place, twelve stars would take longer than the universe has lasted.
    assert "a" * 512 not in TopicChoice(("*a" * 12 + "*b",))
