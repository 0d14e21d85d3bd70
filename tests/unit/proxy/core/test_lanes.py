"""Items wait in turns by key, and in each key in their order."""

from proxy.core.lanes import Lanes


def lanes_of(*items: str) -> Lanes[str]:
    """Return lanes of items whose first letter is the key."""
    lanes: Lanes[str] = Lanes()
    for item in items:
        lanes.push(item[0], item)
    return lanes


def all_of(lanes: Lanes[str]) -> list[str]:
    return [lanes.popleft() for _ in range(len(lanes))]


def test_keys_take_turns_and_a_keys_items_keep_their_order() -> None:
    assert all_of(lanes_of("a1", "a2", "a3", "b1", "c1", "c2")) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_what_is_given_up_has_no_turn() -> None:
    lanes = lanes_of("a1", "a2", "b1")
    lanes.discard("a", "a1")
    lanes.discard("b", "b1")
    lanes.discard("a", "never came")
    lanes.discard("c", "nor did its key")
    assert (len(lanes), all_of(lanes), len(lanes)) == (1, ["a2"], 0)
