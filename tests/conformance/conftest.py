from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.peers import BROKERS, PEERS, Peer
from tests.support.clients.wire import WireClient


def each_of(names: tuple[str, ...]) -> Any:
    """Make a fixture that gives each of these peers in turn."""

    @pytest.fixture(scope="session", params=[pytest.param(name, marks=PEERS[name][1]) for name in names])
    def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
        with PEERS[request.param][0](request) as running:
            yield running

    return peer


peer = each_of(tuple(PEERS))
broker_peer = each_of(BROKERS)


@pytest.fixture
def raw(peer: Peer) -> Iterator[WireClient]:
    with WireClient(peer.host, peer.port) as client:
        yield client


@pytest.fixture
def raw_at_broker(broker_peer: Peer) -> Iterator[WireClient]:
    """Give a client of a broker, where a proxy is to answer otherwise."""
    with WireClient(broker_peer.host, broker_peer.port) as client:
        yield client
