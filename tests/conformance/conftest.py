from collections.abc import Iterator

import pytest

from tests.conformance.peers import PEERS, Peer


@pytest.fixture(scope="session", params=[pytest.param(name, marks=marks) for name, (_, marks) in PEERS.items()])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    """Give each of the brokers in turn; its namespace is made once."""
    start, _ = PEERS[request.param]
    with start(request) as running:
        yield running
