"""Who is charged: one key for each fairness, whatever else differs."""

from collections.abc import Hashable
from dataclasses import dataclass

import pytest

from proxy.auth.fairness_key import FairnessKeys
from proxy.auth.identity import Principal

NAMESPACE = "tenant/namespace"


@dataclass
class Named:
    """A client that is known by the name of its connection."""

    name: str
    principal: Hashable = None


def keys(fairness: str, namespace: str | None = NAMESPACE) -> list[Hashable]:
    """Give the keys of two clients with principals of their own."""
    clients = [Named(f"10.0.0.{role}:1", Principal(f"role-{role}")) for role in (1, 2)]
    return [FairnessKeys(fairness).key(client, namespace) for client in clients]


@pytest.mark.parametrize(
    ("fairness", "charged"),
    [
        ("connection", ["10.0.0.1:1", "10.0.0.2:1"]),
        ("principal", [Principal("role-1"), Principal("role-2")]),
        ("tenant", ["tenant", "tenant"]),
        ("namespace", [NAMESPACE, NAMESPACE]),
        ("fifo", [NAMESPACE, NAMESPACE]),
    ],
)
def test_each_fairness_charges_what_it_is_named_after(fairness: str, charged: list[Hashable]) -> None:
    assert keys(fairness) == charged


@pytest.mark.parametrize("fairness", ["connection", "tenant", "namespace", "fifo"])
def test_what_is_about_no_namespace_is_charged_to_its_connection(fairness: str) -> None:
    assert keys(fairness, None) == ["10.0.0.1:1", "10.0.0.2:1"]


def test_what_is_about_no_namespace_is_charged_to_its_principal_under_principal() -> None:
    assert keys("principal", None) == [Principal("role-1"), Principal("role-2")]


def test_a_namespace_without_a_tenant_is_its_own_tenant() -> None:
    assert keys("tenant", "odd") == ["odd", "odd"]


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
