"""Own a broker of one test, which the test may stop, kill and freeze."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.pulsar.harness import check
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.standalone import DEFAULT, Broker, Kind, MissingToolError, Standalone


@contextmanager
def stoppable(
    directory: Path, kind: Kind = DEFAULT, before: Callable[[Broker], None] = lambda _: None
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
