"""Wrong passwords are remembered by pair and by network, for a minute, in tables that cannot grow without end."""

import pytest

from proxy.auth import failed_guesses
from proxy.auth.failed_guesses import FORGET_SECONDS, FailedGuesses, networks_of


def test_wrong_passwords_are_forgotten_in_time() -> None:
    guesses = FailedGuesses()
    old, new = guesses.pair_of("192.0.2.1:1", "alice"), guesses.pair_of("192.0.2.2:1", "bob")
    guesses.failed(old, 0.0)
    assert guesses.pair_has_failed(old, FORGET_SECONDS - 1)
    assert not guesses.pair_has_failed(old, FORGET_SECONDS)
    assert not guesses.network_has_failed(old.network, FORGET_SECONDS)
    guesses.failed(new, FORGET_SECONDS)
    assert len(guesses) == 1
    guesses.failed(old, FORGET_SECONDS)
    assert guesses.delayed_until(old) == FORGET_SECONDS + 0.25


def test_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_guesses, "MOST_PAIRS", 10)
    monkeypatch.setattr(failed_guesses, "MOST_NETWORKS", 5)
    guesses = FailedGuesses()
    for number in range(30):
        guesses.failed(guesses.pair_of(f"192.0.2.{number}:1", "alice"), float(number))
    assert len(guesses) == 10
    assert [n for n in range(30) if guesses.network_has_failed(f"192.0.2.{n}", 29.0)] == [25, 26, 27, 28, 29]


def test_a_wrong_password_marks_the_site_of_its_network() -> None:
    guesses = FailedGuesses()
    guesses.failed(guesses.pair_of("[2001:db8:1:2::1]:1", "alice"), 0.0)
    other = guesses.pair_of("[2001:db8:1:3::1]:1", "alice")
    assert guesses.network_has_failed(other.site, 0.0)
    assert not guesses.network_has_failed(other.network, 0.0)
    assert not guesses.network_has_failed(guesses.pair_of("[2001:db8:2::1]:1", "alice").site, 0.0)


@pytest.mark.parametrize(
    ("client", "site", "network"),
    [
        ("192.0.2.1:6650", "192.0.2.1", "192.0.2.1"),
        ("[2001:db8:1:2:3:4:5:6]:6650", "2001:db8:1::/48", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9:6650", "2001:db8:1::/48", "2001:db8:1:2::/64"),
        ("[::ffff:192.0.2.1]:6650", "192.0.2.1", "192.0.2.1"),
        ("[fe80::1%eth0]:6650", "fe80::/48", "fe80::/64"),
        # Balancers that add the port of their client, as `protocol.host_port` writes their word.
        ("[203.0.113.7:50123]:0", "203.0.113.7", "203.0.113.7"),
        ("[[2001:db8:1:2::9]:50123]:0", "2001:db8:1::/48", "2001:db8:1:2::/64"),
        # All text that is no address is one network: it costs its author nothing.
        ("?", "?", "?"),
        ("unknown:0", "?", "?"),
        ("x" * 500 + ":0", "?", "?"),
    ],
)
def test_a_site_is_an_ipv4_address_or_what_one_customer_has_of_ipv6(client: str, site: str, network: str) -> None:
    assert networks_of(client) == (site, network)
