"""Who asks when, and for what: the storm's shape, its gusts, and the weights of the tenants."""

import itertools
from collections import Counter

import pytest

from tests.load.namespaces import Share, parse_shares, rota
from tests.load.plan import StormPlan, seconds_to_gust

PLAN = StormPlan(peak=200, ramp_seconds=4.0, hold_seconds=8.0, calm_seconds=2.0)


@pytest.mark.parametrize(
    ("seconds", "clients"),
    [(0.0, 5), (1.0, 10), (3.9, 20), (4.0, 200), (11.9, 200), (12.0, 20), (13.9, 20), (14.0, None)],
)
def test_a_storm_ramps_blows_holds_and_calms(seconds: float, clients: int | None) -> None:
    assert PLAN.clients_at(seconds) == clients


def test_a_storm_of_one_client_has_one_all_the_time() -> None:
    plan = StormPlan(peak=1, ramp_seconds=1.0, hold_seconds=1.0, calm_seconds=1.0)
    assert {plan.clients_at(tenths / 10) for tenths in range(30)} == {1}


@pytest.mark.parametrize(("now", "wait"), [(9.0, 3.0), (10.0, 2.0), (11.5, 0.5)])
def test_all_clients_wait_for_the_same_gust(now: float, wait: float) -> None:
    assert seconds_to_gust(now, 3.0) == wait


def test_weights_are_each_tenants_part_of_the_clients() -> None:
    turn = list(itertools.islice(rota(parse_shares("a/x@6,b/y@3,c/z")), 20))
    assert Counter(turn) == {"a/x": 12, "b/y": 6, "c/z": 2}


def test_a_light_tenant_does_not_come_last() -> None:
    turn = list(itertools.islice(rota((Share("a/x", 4), Share("b/y", 2))), 6))
    assert turn != sorted(turn)


@pytest.mark.parametrize("text", ["", "a", "a/b/c", "a/b@0", "a/b@x", "a/b,", "a/b@99999"])
def test_namespaces_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected tenant/namespace"):
        parse_shares(text)
