"""The simulation of docs/scaling.md: what it shares out, what it asks brokers, what it keeps to."""

from dataclasses import replace

import pytest

from benchmarks.scaling.model import Costs, Fleet, Stage, Storm, classes, shares
from benchmarks.scaling.play import Simulation, least_proxies

PAID = Costs(connect=2e-4, request=2.5e-4, read_byte=6e-10, write_byte=2.5e-10, name=8e-6)


def play(storm: Storm, fleet: Fleet, paid: Costs = PAID, seed: int = 1):  # type: ignore[no-untyped-def]
    return Simulation(storm, fleet, paid, seed=seed, step=0.01).play()


def test_shares_give_to_others_what_one_does_not_need() -> None:
    assert shares([0.1, 5.0, 5.0], 2.1) == pytest.approx([0.1, 1.0, 1.0])
    assert shares([0.1, 0.2], 9.0) == pytest.approx([0.1, 0.2])


def test_work_that_is_begun_goes_on_in_the_next_step() -> None:
    stage = Stage(cost=0.3, waiting=2)
    assert [stage.work(0.2) for _ in range(3)] == [0, 1, 1]
    assert stage.busy == pytest.approx(0.6)


def test_a_large_fleet_is_played_as_classes_of_which_the_fullest_is_alone() -> None:
    found = classes(list(range(1, 101)), 12)
    assert found[0] == (100, 1)
    assert sum(proxies for _, proxies in found) == 100
    assert abs(sum(clients * proxies for clients, proxies in found) - 5050) <= 50


def test_a_run_is_the_same_for_the_same_seed() -> None:
    storm, fleet = Storm(5_000), Fleet(7)
    assert play(storm, fleet) == play(storm, fleet)
    assert play(storm, fleet, seed=2).fullest != play(storm, fleet).fullest


@pytest.mark.parametrize("proxies", [1, 3])
def test_a_storm_of_connected_clients_costs_two_questions_a_proxy(proxies: int) -> None:
    outcome = play(Storm(5_000, window=0.0), Fleet(proxies, connected=True))
    assert outcome.questions == 2 * proxies
    assert outcome.client_bytes == 5_000 * Storm(1).list_bytes


def test_lists_that_nobody_shares_cost_a_question_each() -> None:
    outcome = play(Storm(300, names=100, namespaces=0), Fleet(3))
    assert outcome.questions == 300
    assert outcome.late == 0


def test_at_most_64_questions_of_a_proxy_are_at_one_broker() -> None:
    simulation = Simulation(
        Storm(2_000, namespaces=0, window=0.0), Fleet(2, brokers=1, connected=True), PAID, step=0.01
    )
    simulation.play(2.0)
    assert [proxy.outstanding for proxy in simulation.proxies] == [64, 64]


def test_each_list_is_shared_by_its_own_clients_only() -> None:
    one, ten = (play(Storm(4_000, names=100, namespaces=keys), Fleet(2)) for keys in (1, 10))
    assert one.client_bytes == ten.client_bytes
    assert ten.questions > 5 * one.questions


def test_more_proxies_serve_sooner_until_their_questions_are_the_limit() -> None:
    found = [play(Storm(50_000), Fleet(proxies)) for proxies in (5, 20, 80)]
    assert found[0].served_seconds > 1.5 * found[1].served_seconds
    # The broker lists for each proxy in turn: a group's answer comes later, the more proxies ask.
    assert found[2].questions > found[1].questions
    assert (found[0].bottleneck, found[2].bottleneck) == ("the proxies' links", "the brokers")


def test_no_resource_works_longer_than_the_storm_lasts() -> None:
    for namespaces in (0, 1, 10):
        outcome = play(Storm(3_000, names=1_000, namespaces=namespaces), Fleet(3))
        assert all(busy <= 1.0 + 1e-6 for busy in outcome.busy.values()), outcome.busy


def test_a_client_that_waits_longer_than_25_seconds_is_late() -> None:
    slow = replace(PAID, connect=0.0, request=0.03)
    outcome = play(Storm(1_000, names=100, namespaces=0, window=0.0), Fleet(1, connected=True), slow)
    # 30 s of work: the last sixth comes too late.
    assert outcome.late == pytest.approx(1 / 6, abs=0.02)


def test_processes_of_one_machine_have_its_cores_together() -> None:
    paid = replace(PAID, client_byte=3e-10)
    storm = Storm(3_000, window=0.0)
    one = play(storm, Fleet(1, machine_cores=2.0, link=1e12, connected=True), paid)
    three = play(storm, Fleet(3, machine_cores=2.0, link=1e12, connected=True), paid)
    # Three proxies do the work of one on the same two cores, and ask and read three times as often.
    assert three.proxy_seconds == pytest.approx(one.proxy_seconds, rel=0.02)
    assert three.served_seconds >= (three.proxy_seconds + 3_000 * 3e-10 * storm.list_bytes) / 2.0


def test_the_least_fleet_is_found_or_none() -> None:
    def tried(proxies: int):  # type: ignore[no-untyped-def]
        return play(Storm(2_000, names=1_000, window=0.0), Fleet(proxies))

    limit = tried(4).served_seconds
    assert least_proxies(tried, lambda outcome: outcome.served_seconds <= limit, 1, 16) in (3, 4)
    assert least_proxies(tried, lambda outcome: outcome.served_seconds < 0, 1, 16) is None
