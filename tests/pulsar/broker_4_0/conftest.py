"""The fixtures of tests.pulsar before a broker 4.0.8, which has no memory limits of topic lists (PIP-442)."""

from tests.pulsar.distribution import BROKER_4_0
from tests.pulsar.own_broker import fixtures_before

broker, service_url, admin = fixtures_before(BROKER_4_0, "broker-4-0")
