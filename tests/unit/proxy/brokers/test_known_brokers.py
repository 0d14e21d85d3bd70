"""The table of the brokers that brokers have named: bounded, and every entry expires."""

from proxy.brokers.known_brokers import KNOWN_SECONDS, LONGEST_HOST, MOST_KNOWN, KnownBrokers
from proxy.brokers.target import BrokerAddress
from tests.support.loops.clock import ManualClock

BROKER = BrokerAddress("broker-1.example", 6650)


def table() -> tuple[KnownBrokers, ManualClock]:
    clock = ManualClock()
    return KnownBrokers(clock.time), clock


def test_a_named_broker_is_known_by_host_and_port() -> None:
    known, _ = table()
    known.note_url("pulsar://Broker-1.example:6650")
    assert BROKER in known
    assert BrokerAddress("BROKER-1.EXAMPLE", 6650, tls=True) in known
    assert BrokerAddress(BROKER.host, 6651) not in known
    assert BrokerAddress("broker-2.example", 6650) not in known


def test_a_name_expires_unless_it_is_named_again() -> None:
    known, clock = table()
    known.note(BROKER)
    clock.advance(KNOWN_SECONDS - 1)
    assert BROKER in known
    known.note(BROKER)
    clock.advance(KNOWN_SECONDS - 1)
    assert BROKER in known
    clock.advance(1)
    assert BROKER not in known


def test_a_full_table_drops_what_was_named_longest_ago() -> None:
    known, _ = table()
    known.note(BROKER)
    for number in range(MOST_KNOWN - 1):
        known.note(BrokerAddress(f"b{number}", 6650))
    known.note(BROKER)
    known.note(BrokerAddress("one-more", 6650))
    assert len(known) == MOST_KNOWN
    assert BROKER in known
    assert known.named(BROKER.host)
    assert BrokerAddress("b0", 6650) not in known
    assert not known.named("b0")


def test_expired_entries_make_room() -> None:
    known, clock = table()
    for number in range(MOST_KNOWN):
        known.note(BrokerAddress(f"b{number}", 6650))
    clock.advance(KNOWN_SECONDS)
    known.note(BROKER)
    assert len(known) == 1


def test_what_is_no_address_of_a_broker_is_not_kept() -> None:
    known, _ = table()
    for url in ("", "http://broker:8080", "pulsar://a b:6650", "pulsar://" + "a" * (LONGEST_HOST + 1) + ":6650"):
        known.note_url(url)
    assert len(known) == 0


def test_a_host_stays_named_when_its_right_to_credentials_is_over() -> None:
    known, clock = table()
    assert not known.named(BROKER.host)
    known.note(BROKER)
    clock.advance(10 * KNOWN_SECONDS)
    assert BROKER not in known
    assert known.named(BROKER.host.upper())
