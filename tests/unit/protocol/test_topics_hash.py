import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.topics_hash import crc32c_of, java_order, topics_hash

NS = "persistent://public/default"

# Computed with the Java classes of Pulsar 4.2.4.
VECTORS = [
    ([], "00000000"),
    (["a"], "3043d0c1"),
    ([f"{NS}/t1"], "64d851d6"),
    ([f"{NS}/t2", f"{NS}/t1"], "8bafeea1"),
    ([f"{NS}/t1", f"{NS}/t2"], "8bafeea1"),
    ([f"{NS}/t-partition-{n}" for n in (0, 1, 10, 2)], "a0ac634e"),
    ([f"{NS}/é", f"{NS}/z"], "9a76d972"),
    ([f"{NS}/\uff21", f"{NS}/\U0001f600"], "76d93af9"),
]


@pytest.mark.parametrize(("topics", "digits"), VECTORS)
def test_hash_equals_that_of_the_java_client(topics: list[str], digits: str) -> None:
    assert topics_hash(topics) == digits


def test_names_beyond_the_basic_plane_sort_as_in_java() -> None:
    names = ["\uff21", "\U0001f600"]
    assert java_order(names) == names[::-1]
    assert sorted(names) == names


def test_caller_keeps_its_order() -> None:
    topics = ["b", "a"]
    topics_hash(topics)
    assert topics == ["b", "a"]


@given(st.binary(max_size=300))
def test_crc_agrees_with_the_compiled_one(data: bytes) -> None:
    assert crc32c_of(data) == google_crc32c.value(data)


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=8)))
def test_order_of_arrival_never_matters(topics: list[str]) -> None:
    assert topics_hash(topics) == topics_hash(topics[::-1])
