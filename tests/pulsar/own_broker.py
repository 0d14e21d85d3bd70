"""Own a broker that tests may stop, kill and freeze."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.pulsar.harness import check
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.standalone import Broker, Kind, MissingToolError, Standalone

# As Pulsar does by default, what is acknowledged is on the disk; to the broker of all other tests it is abroad.
OTHER_CLUSTER: Final = "other"
OWN: Final = Kind(keys={"journalSyncData": "true", "clusterName": OTHER_CLUSTER})


@contextmanager
def stoppable(
    directory: Path, kind: Kind = OWN, before: Callable[[Broker], None] = lambda _: None
) -> Iterator[Standalone]:
    """Run a broker that the test may stop; `before` is told where it will be."""
    own = directory / "own-broker"
    own.mkdir()
    try:
        broker = Standalone(own, by_docker=check({}) == "docker", kind=kind)
        before(broker.broker)
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()
    except (MissingToolError, ProcessFailedError) as error:
        pytest.fail(str(error), pytrace=False)
