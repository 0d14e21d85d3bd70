import tracemalloc

from protocol.pb import PulsarApi_pb2 as pb
from proxy.requests.topic_lists.sizes import ListSizes

Mode = pb.CommandGetTopicsOfNamespace.Mode


def request(
    namespace: str, mode: str = "PERSISTENT", pattern: str | None = None, request_id: int = 1
) -> pb.CommandGetTopicsOfNamespace:
    return pb.CommandGetTopicsOfNamespace(
        request_id=request_id, namespace=namespace, mode=Mode.Value(mode), topics_pattern=pattern
    )


def test_the_last_cost_is_the_next_estimate() -> None:
    sizes = ListSizes(1024)
    sizes.learn(request("t/n", request_id=1), 5000)
    sizes.learn(request("t/n", request_id=2), 70)
    assert sizes.estimate(request("t/n", request_id=3)) == 70


def test_mode_and_pattern_are_sizes_of_their_own() -> None:
    sizes = ListSizes(1024)
    sizes.learn(request("t/n"), 5000)
    assert sizes.estimate(request("t/n", "ALL")) == 1024
    assert sizes.estimate(request("t/n", pattern="a.*")) == 1024
    assert sizes.estimate(request("t/m")) == 1024


def test_the_oldest_goes_when_there_are_too_many() -> None:
    sizes = ListSizes(1024, max_entries=2)
    for number, namespace in enumerate(["t/a", "t/b", "t/a", "t/c"]):
        sizes.learn(request(namespace), 100 + number)
    assert len(sizes) == 2
    assert [sizes.estimate(request(name)) for name in ("t/a", "t/b", "t/c")] == [102, 1024, 103]


def test_what_an_entry_costs_is_not_the_clients_choice() -> None:
    sizes = ListSizes(1024)
    long = request("n" * 1000, pattern="p" * 100_000)
    tracemalloc.start()
    sizes.learn(long, 5000)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sizes.estimate(long) == 5000
    assert kept < 4096
