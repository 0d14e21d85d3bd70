"""The table of topics: bounded, names in any bytes, slots that come back; and the books of the extension."""

import pytest

from proxy.relay.topic_slots import OTHER, UNUSED_SECONDS, SlotSample, TopicSlots
from tests.support.native import offered

NOW = 100.0


def table(most_slots: int = 10) -> TopicSlots:
    return TopicSlots(lambda: NOW, offered("SlotBooks")(), most_slots)


def sample(slots: TopicSlots, topic: str) -> SlotSample:
    (found,) = [sample for sample in slots.walk() if sample.topic == topic]
    return found


def test_messages_and_bytes_of_a_topic_are_those_of_its_producers() -> None:
    slots = table()
    first, second, again = slots.slot_of(b"a"), slots.slot_of(b"b"), slots.slot_of(b"a")
    assert first == again
    for slot, size, messages in ((first, 100, 10), (again, 30, 1), (second, 5000, 1)):
        assert slots.books.debit(slot, size, messages, NOW)
    assert list(slots.walk()) == [
        SlotSample(OTHER, "", 0, 0, False, 0),
        SlotSample(1, "a", 130, 11, False, 2),
        SlotSample(2, "b", 5000, 1, False, 1),
    ]


@pytest.mark.threat("endless-topic-names")
def test_a_million_topics_are_bounded_and_the_rest_is_one_bucket() -> None:
    slots = table(most_slots=100)
    for number in range(1_000_000):
        if (slot := slots.slot_of(b"topic-%d" % number)) != OTHER:
            slots.books.let_go(slot)
    for topic in (b"topic-5", b"topic-500"):
        slots.books.debit(slots.slot_of(topic), 10, 1, NOW)
    assert len(slots) == 100
    assert len(list(slots.walk())) == 101
    assert (next(slots.walk()).messages, sample(slots, "topic-5").messages) == (1, 1)
    assert slots.without_slot == 1_000_000 - 100 + 1


@pytest.mark.parametrize("name", [b"", b"t" * 513, b"\xff"], ids=["empty", "too long", "no UTF-8"])
def test_a_name_that_is_none_has_no_slot_of_its_own(name: bytes) -> None:
    slots = table()
    assert slots.slot_of(name) == OTHER
    assert (len(slots), slots.without_slot) == (0, 1)


@pytest.mark.threat("endless-topic-names")
def test_one_network_leaves_slots_to_the_topics_of_others() -> None:
    slots = table(most_slots=1_000)

    def named_by(network: str, count: int) -> int:
        before = len(slots)
        for number in range(count):
            slots.slot_of(b"%s-%d" % (network.encode(), number), network)
        return len(slots) - before

    assert named_by("10.0.0.1", 5_000) == 750
    others = [named_by(f"10.0.1.{number}", 1_000) for number in range(3)]
    assert all(others)
    assert slots.slot_of(b"of-somebody-else", "10.0.2.1") != OTHER
    # Topics that are there have one slot, whoever names them.
    assert slots.slot_of(b"10.0.0.1-5", "10.0.2.1") == slots.slot_of(b"10.0.0.1-5", "10.0.0.1") != OTHER


def test_slots_that_are_free_again_count_for_nobody() -> None:
    slots = table(most_slots=100)
    for round_ in range(3):
        held = [slots.slot_of(b"%d-%d" % (round_, number), "10.0.0.1") for number in range(200)]
        assert len(slots) == 75
        for slot in held:
            if slot != OTHER:
                slots.books.let_go(slot)
        slots.close_unused(NOW)
        slots.close_unused(NOW + UNUSED_SECONDS)
        assert len(slots) == 0


def test_a_topic_without_producers_gives_its_slot_back_after_a_while_and_another_begins_at_zero() -> None:
    slots = table()
    slots.slot_of(b"kept")
    gone = slots.slot_of(b"gone")
    slots.books.debit(gone, 10, 1, NOW)
    slots.set_rate(gone, 1.0, None)
    slots.books.let_go(gone)
    for now in (0.0, UNUSED_SECONDS - 1):
        slots.close_unused(now)
    assert len(slots) == 2
    slots.close_unused(UNUSED_SECONDS)
    assert [sample.topic for sample in slots.walk()] == ["", "kept"]
    assert slots.slot_of(b"new") == gone
    assert sample(slots, "new") == SlotSample(2, "new", 0, 0, False, 1)
    assert slots.books.debit(gone, 100_000, 1, NOW)


# --- limits ---------------------------------------------------------------------------------------


def test_a_topic_runs_dry_until_there_are_tokens() -> None:
    slots = table()
    slot = slots.slot_of(b"t")
    slots.set_rate(slot, 1000.0, None)
    assert slots.books.debit(slot, 65_000, 1, NOW)
    assert not slots.books.debit(slot, 2_000, 1, NOW)
    assert 101.0 < slots.books.ready_at(slot, NOW) < 102.0
    assert sample(slots, "t").ran_dry
    assert not sample(slots, "t").ran_dry


def test_a_change_of_a_rate_keeps_the_debt() -> None:
    slots = table()
    slot = slots.slot_of(b"t")
    slots.set_rate(slot, None, 10.0)
    for count in (64, 20):
        slots.books.debit(slot, 100, count, NOW)
    assert slots.books.ready_at(slot, NOW) == pytest.approx(102.016)
    slots.set_rate(slot, None, 40.0)
    assert slots.books.ready_at(slot, NOW) == pytest.approx(100.516)
    slots.set_rate(slot, None, None)
    assert slots.books.ready_at(slot, NOW) <= NOW


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="expected more than 0"):
        table().set_rate(OTHER, rate, None)


def test_a_walk_that_is_left_in_between_leaves_out_slots_that_were_freed() -> None:
    slots = table()
    for name in (b"a", b"b", b"c"):
        slots.books.let_go(slots.slot_of(name))
    walk = slots.walk()
    assert [next(walk).topic, next(walk).topic] == ["", "a"]
    # The unused go, and another topic gets the slot of one.
    slots.close_unused(0.0)
    slots.close_unused(UNUSED_SECONDS)
    assert slots.slot_of(b"d") in (1, 2, 3)
    assert list(walk) == []
    assert [sample.topic for sample in slots.walk()] == ["", "d"]


def test_new_topic_begins_with_its_rate_and_an_empty_bucket() -> None:
    slots = table()
    slots.begin_with(lambda slot, name: (1e6, 1e5) if name == "a" else None)
    limited, free = slots.slot_of(b"a"), slots.slot_of(b"b")
    assert not slots.books.debit(limited, 100_000, 1, NOW)
    # The tokens of all bytes, and of the time after which a dry bucket is ready.
    assert 100.1 < slots.books.ready_at(limited, NOW) < 100.12
    assert slots.books.debit(free, 100_000, 1, NOW)
    slots.begin_with(None)
    assert slots.books.debit(slots.slot_of(b"c"), 100_000, 1, NOW)
