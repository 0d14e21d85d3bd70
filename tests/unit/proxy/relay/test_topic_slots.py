"""The table of topics: bounded, names in any bytes, slots that come back; and the books of both languages."""

from collections.abc import Callable

import pytest

from proxy.relay.rates.client_meter import MOST_PRODUCERS, ClientMeter
from proxy.relay.rates.slot_books import OTHER, LoopBooks, SlotBooks
from proxy.relay.topic_slots import UNUSED_SECONDS, SlotSample, TopicSlots
from tests.support.native import offered
from tests.support.sockets.producer_frames import producer_frame, send_frame

Make = Callable[[], SlotBooks]


def native_books() -> SlotBooks:
    books: SlotBooks = offered("SlotBooks")()
    return books


both = pytest.mark.parametrize("make", [LoopBooks, native_books], ids=["python", "native"])


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Reader:
    """A client that counts how often its pause is looked at."""

    def __init__(self, network: str | None = None) -> None:
        self.looks = 0
        self.network = network

    def look_at_rate(self) -> None:
        self.looks += 1


def table(make: Make, most_slots: int = 10) -> TopicSlots:
    return TopicSlots(Clock(), lambda call: call(), make(), most_slots)


def read(meter: ClientMeter, *frames: bytes, now: float = 100.0) -> bool:
    data = b"".join(frames)
    return meter.scan(memoryview(data), len(data), now)


def sample(slots: TopicSlots, topic: str) -> SlotSample:
    (found,) = [sample for sample in slots.samples() if sample.topic == topic]
    return found


@both
def test_messages_and_bytes_of_a_topic_are_those_of_its_producers(make: Make) -> None:
    slots = table(make)
    first, second = ClientMeter(slots, Reader()), ClientMeter(slots, Reader())
    frames = [send_frame(1, messages=10), send_frame(1), send_frame(2, payload=bytes(5000))]
    read(first, producer_frame(b"a", 1), producer_frame(b"b", 2), *frames)
    read(second, producer_frame(b"a", 1), send_frame(1))
    size = len(frames[0]) + len(frames[1]) + len(send_frame(1))
    assert slots.samples() == [
        SlotSample(OTHER, "", 0, 0, False, 0),
        SlotSample(1, "a", size, 12, False, 2),
        SlotSample(2, "b", len(frames[2]), 1, False, 1),
    ]


@pytest.mark.threat("endless-topic-names")
@both
def test_a_million_topics_are_bounded_and_the_rest_is_one_bucket(make: Make) -> None:
    slots = table(make, most_slots=100)
    for number in range(1_000_000):
        if (slot := slots.slot_of(b"topic-%d" % number)) != OTHER:
            slots.books.let_go(slot)
    meter = ClientMeter(slots, Reader())
    read(meter, producer_frame(b"topic-5", 1), producer_frame(b"topic-500", 2), send_frame(1), send_frame(2))
    assert len(slots) == 100
    assert len(slots.samples()) == 101
    assert (slots.samples()[0].messages, sample(slots, "topic-5").messages) == (1, 1)
    assert slots.without_slot == 1_000_000 - 100 + 1


@pytest.mark.threat("endless-topic-names")
@both
def test_one_network_leaves_slots_to_the_topics_of_others(make: Make) -> None:
    slots = table(make, most_slots=1_000)

    def named_by(network: str, count: int) -> int:
        meter, before = ClientMeter(slots, Reader(network)), len(slots)
        for number in range(count):
            read(meter, producer_frame(b"%s-%d" % (network.encode(), number), 1))
        return len(slots) - before

    assert named_by("10.0.0.1", 5_000) == 750
    others = [named_by(f"10.0.1.{number}", 1_000) for number in range(3)]
    assert all(others)
    assert slots.slot_of(b"of-somebody-else", "10.0.2.1") != OTHER
    # Topics that are there have one slot, whoever names them.
    assert slots.slot_of(b"10.0.0.1-5", "10.0.2.1") == slots.slot_of(b"10.0.0.1-5", "10.0.0.1") != OTHER


@both
def test_slots_that_are_free_again_count_for_nobody(make: Make) -> None:
    slots = table(make, most_slots=100)
    for round_ in range(3):
        meter = ClientMeter(slots, Reader("10.0.0.1"))
        for number in range(200):
            read(meter, producer_frame(b"%d-%d" % (round_, number), number))
        assert len(slots) == 75
        meter.close()
        slots.close_unused(100.0)
        slots.close_unused(100.0 + UNUSED_SECONDS)
        assert len(slots) == 0


@pytest.mark.threat("endless-topic-names")
@both
def test_a_connection_has_a_bounded_number_of_producers(make: Make) -> None:
    slots = table(make)
    meter = ClientMeter(slots, Reader())
    for producer in range(MOST_PRODUCERS + 5):
        read(meter, producer_frame(b"t", producer), send_frame(producer))
    assert sample(slots, "t")[3:] == (MOST_PRODUCERS, False, MOST_PRODUCERS)
    assert slots.samples()[0].messages == 5


@both
def test_a_topic_without_producers_gives_its_slot_back_after_a_while_and_another_begins_at_zero(make: Make) -> None:
    slots = table(make)
    kept, gone = ClientMeter(slots, Reader()), ClientMeter(slots, Reader())
    read(kept, producer_frame(b"kept", 1))
    read(gone, producer_frame(b"gone", 1), send_frame(1))
    slots.set_rate(2, 1.0, None)
    gone.close()
    for now in (0.0, UNUSED_SECONDS - 1):
        slots.close_unused(now)
    assert len(slots) == 2
    slots.close_unused(UNUSED_SECONDS)
    assert [sample.topic for sample in slots.samples()] == ["", "kept"]
    read(kept, producer_frame(b"new", 2))
    assert sample(slots, "new") == SlotSample(2, "new", 0, 0, False, 1)
    assert not read(kept, send_frame(2, payload=bytes(100_000)))


# --- limits ---------------------------------------------------------------------------------------


@both
def test_a_topic_runs_dry_and_its_client_waits_until_there_are_tokens(make: Make) -> None:
    slots = table(make)
    meter = ClientMeter(slots, Reader())
    read(meter, producer_frame(b"t", 1))
    slots.set_rate(1, 1000.0, None)
    assert not read(meter, send_frame(1, payload=bytes(65_000)))
    assert read(meter, send_frame(1, payload=bytes(2_000)))
    until, forced = meter.look(100.0)
    assert 101.0 < until < 102.0
    assert not forced
    assert sample(slots, "t").ran_dry
    assert not sample(slots, "t").ran_dry
    assert meter.look(until + 1e-6) == (until + 1e-6, False)
    assert not meter.has_dry


@both
def test_the_latest_of_several_topics_decides_and_those_that_do_not_send_do_not(make: Make) -> None:
    slots = table(make)
    meter, other = ClientMeter(slots, Reader()), ClientMeter(slots, Reader())
    read(meter, producer_frame(b"a", 1), producer_frame(b"b", 2), producer_frame(b"c", 3))
    read(other, producer_frame(b"c", 1))
    for slot, rate in ((1, 1e6), (2, 1e5), (3, 1.0)):
        slots.set_rate(slot, rate, None)
    read(other, send_frame(1, payload=bytes(100_000)))
    assert read(meter, send_frame(1, payload=bytes(350_000)), send_frame(2, payload=bytes(85_536)))
    until, _ = meter.look(100.0)
    assert 100.2 < until < 100.3


@both
def test_a_change_of_a_rate_has_clients_look_and_keeps_the_debt(make: Make) -> None:
    slots, reader = table(make), Reader()
    meter = ClientMeter(slots, reader)
    read(meter, producer_frame(b"t", 1))
    slots.set_rate(1, None, 10.0)
    assert reader.looks == 0
    read(meter, *[send_frame(1, messages=count, payload=bytes(100)) for count in (64, 20)])
    until, _ = meter.look(100.0)
    assert until == pytest.approx(102.016)
    slots.set_rate(1, None, 40.0)
    assert reader.looks == 1
    assert meter.look(100.0)[0] == pytest.approx(100.516)
    slots.set_rate(1, None, None)
    assert meter.look(100.0) == (100.0, False)
    slots.set_rate(1, None, 40.0)
    assert reader.looks == 2


@both
@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(make: Make, rate: float) -> None:
    with pytest.raises(ValueError, match="expected more than 0"):
        table(make).set_rate(OTHER, rate, None)


@both
def test_a_walk_that_is_left_in_between_leaves_out_slots_that_were_freed(make: Make) -> None:
    slots = table(make)
    for name in (b"a", b"b", b"c"):
        slots.books.let_go(slots.slot_of(name))
    walk = slots.walk()
    assert [next(walk).topic, next(walk).topic] == ["", "a"]
    # The unused go, and another topic gets the slot of one.
    slots.close_unused(0.0)
    slots.close_unused(UNUSED_SECONDS)
    assert slots.slot_of(b"d") in (1, 2, 3)
    assert list(walk) == []
    assert [sample.topic for sample in slots.samples()] == ["", "d"]


@both
def test_new_topic_begins_with_its_rate_and_an_empty_bucket(make: Make) -> None:
    slots = table(make)
    slots.begin_with(lambda slot, name: (1e6, 1e5) if name == "a" else None)
    meter, reader = ClientMeter(slots, Reader()), ClientMeter(slots, Reader())
    assert read(meter, producer_frame(b"a", 1), send_frame(1, payload=bytes(100_000)))
    # The tokens of the whole frame, and of the time after which a dry bucket is ready.
    assert 100.1 < meter.look(100.0)[0] < 100.12
    assert not read(reader, producer_frame(b"b", 1), send_frame(1, payload=bytes(100_000)))
    slots.begin_with(None)
    assert not read(reader, producer_frame(b"c", 1), send_frame(1, payload=bytes(100_000)))
