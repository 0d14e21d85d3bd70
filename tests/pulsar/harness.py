"""Owns the choice of the broker under test and the proxy in front of it; also a command for humans.

Order: PULSAR_SERVICE_URL (with PULSAR_ADMIN_URL), Maven, Docker. A machine with none of them is an error in one line,
never a silent skip. As a command: `--check` only says which broker would be used, or what is missing; `--prepare` also
resolves it and the Java clients by Maven, which may take minutes on a fresh machine and belongs to no test's time, and
`--prepare-others` brokers of other releases.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.pulsar import java_consumers
from tests.pulsar.admin import Admin
from tests.pulsar.distribution import distribution_class_path
from tests.pulsar.release_5_0 import class_path_5_0
from tests.pulsar.standalone import (
    JAVA_VERSION,
    NAMESPACE,
    Broker,
    Kind,
    MissingToolError,
    class_path,
    missing_for_docker,
    missing_for_maven,
    standalone,
)


def check(environ: Mapping[str, str]) -> str:
    """Name the broker that would be used; raises MissingToolError if there is none."""
    if "PULSAR_SERVICE_URL" in environ:
        if "PULSAR_ADMIN_URL" not in environ:
            raise MissingToolError("PULSAR_SERVICE_URL is set, PULSAR_ADMIN_URL is not: set both")
        return "env"
    no_maven = missing_for_maven()
    if no_maven is None:
        return "maven"
    no_docker = missing_for_docker()
    if no_docker is None:
        return "docker"
    raise MissingToolError(
        f"tests on a real pulsar need java >= {JAVA_VERSION} and maven, or docker, or PULSAR_SERVICE_URL and "
        f"PULSAR_ADMIN_URL: {no_maven}, {no_docker}"
    )


@contextmanager
def run_other_broker(directory: Path, kind: Kind) -> Iterator[Broker]:
    """Give a broker of another kind than the one under test; raises MissingToolError, ProcessFailedError."""
    choice = check({})
    with standalone(directory, by_docker=choice == "docker", kind=kind) as broker:
        yield broker


@contextmanager
def run_broker(directory: Path, environ: Mapping[str, str]) -> Iterator[Broker]:
    """Give a broker that serves public/default; raises MissingToolError, ProcessFailedError."""
    choice = check(environ)
    if choice != "env":
        with standalone(directory, by_docker=choice == "docker") as broker:
            yield broker
        return
    broker = Broker(environ["PULSAR_SERVICE_URL"], environ["PULSAR_ADMIN_URL"], "PULSAR_SERVICE_URL")
    if not Admin(broker.admin_url).is_serving(NAMESPACE):
        raise MissingToolError(f"PULSAR_ADMIN_URL={broker.admin_url} does not serve {NAMESPACE}")
    yield broker


def main() -> int:
    """Run the command line; 1 is a missing tool."""
    parser = argparse.ArgumentParser(prog="python -m tests.pulsar.harness", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say which broker would be used")
    parser.add_argument("--prepare", action="store_true", help="fetch broker and clients if Maven has to")
    parser.add_argument("--prepare-others", action="store_true", help="fetch brokers of other releases if Maven has to")
    arguments = parser.parse_args()
    try:
        if arguments.check:
            print(f"real pulsar: {check(os.environ)}")
            if missing := missing_for_maven():
                raise MissingToolError(f"clients of java and the jars of the pipeline need a jdk and maven: {missing}")
        elif arguments.prepare:
            if check(os.environ) == "maven":
                class_path()
                java_consumers.prepare()
        elif arguments.prepare_others and check(os.environ) == "maven":
            distribution_class_path()
            class_path_5_0()
    except MissingToolError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
