"""Who is charged: one key for each fairness, whatever else differs."""

from collections.abc import Hashable
from dataclasses import dataclass

import pytest

from proxy.auth.fairness_key import FairnessKeys
from proxy.auth.identity import Principal

NAMESPACE, ALICE = "tenant/namespace", Principal("alice")


@dataclass
class Named:
    """A client that is known by the name of its connection."""

    name: str
    principal: Hashable = None


@pytest.mark.parametrize(
    ("fairness", "namespace", "charged"),
    [
        ("connection", NAMESPACE, "10.0.0.1:1"),
        ("principal", NAMESPACE, ALICE),
        ("tenant", NAMESPACE, "tenant"),
        ("tenant", "odd", "odd"),
        ("namespace", NAMESPACE, NAMESPACE),
        ("fifo", NAMESPACE, NAMESPACE),
        ("connection", None, "10.0.0.1:1"),
        ("principal", None, ALICE),
        ("tenant", None, "10.0.0.1:1"),
        ("namespace", None, "10.0.0.1:1"),
        ("fifo", None, "10.0.0.1:1"),
    ],
)
def test_each_fairness_charges_what_it_is_named_after(fairness: str, namespace: str | None, charged: Hashable) -> None:
    assert FairnessKeys(fairness).key(Named("10.0.0.1:1", ALICE), namespace) == charged


@pytest.mark.parametrize(
    ("fairness", "name", "charged"),
    [
        ("fifo", "10.0.0.1:1", "10.0.0.1"),
        ("fifo", "[2001:db8::1]:1", "2001:db8::/64"),
        ("connection", "10.0.0.1:1", "10.0.0.1:1"),
        ("tenant", "10.0.0.1:1", "tenant"),
    ],
)
def test_shares_of_unproven_readers_go_by_network_where_all_are_in_one_line(
    fairness: str, name: str, charged: str
) -> None:
    assert FairnessKeys(fairness).share_key(Named(name), NAMESPACE) == charged
