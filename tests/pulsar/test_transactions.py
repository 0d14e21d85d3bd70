"""Transactions of real clients through the proxy: committed, aborted, over in time, and open while the proxy restarts.

The clients are programs (java/Transactions.java, go/main.go) that write what came of each step; a test knows no more.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.pulsar.admin import Admin, AdminError
from tests.pulsar.java_consumers import Client, java_program
from tests.pulsar.own_broker import in_one_line
from tests.pulsar.process import ChildProcess, Lines
from tests.pulsar.proxy_process import Proxy, run_proxy
from tests.pulsar.standalone import Broker
from tests.support.go_build import built
from tests.support.sockets.ports import free_ports
from tests.support.tools import unusable

pytestmark = pytest.mark.pulsar

MESSAGES = 10
STEP_SECONDS = 120.0
STOP_SECONDS = 20.0
NOT_CONFIGURED = 503
# With the client in Go messages of a transaction that was aborted, or whose time was over, are seen: with a proxy and
# without. So it is asked for neither.
ENDINGS = {"java": {"aborted": {"seen": 0, "again": MESSAGES}, "timed_out": {"refused": True, "seen": 0}}, "go": {}}
PROGRAM = Path(__file__).parent / "java" / "Transactions.java"
# Commands of transactions that a client sends; each passes the relay to a coordinator.
COMMANDS = ("TC_CLIENT_CONNECT_REQUEST", "NEW_TXN", "ADD_PARTITION_TO_TXN", "ADD_SUBSCRIPTION_TO_TXN", "END_TXN")


PROGRAMS: dict[str, Callable[[], list[str]]] = {
    "java": lambda: java_program(Client.NEW, PROGRAM),
    "go": lambda: [str(built(PROGRAM.parent.parent / "go", "pulsar", "transactions"))],
}


@pytest.fixture
def coordinator(admin: Admin) -> None:
    """See that the broker has a transaction coordinator: one that others run may have none."""
    try:
        admin.call("GET", "/admin/v3/transactions/coordinatorStats")
    except AdminError as error:
        # Any other error is of a coordinator that no client has needed yet.
        if error.status == NOT_CONFIGURED:
            unusable("transaction coordinator", f"the broker has none (transactionCoordinatorEnabled): {error}")


class Steps:
    """What the program has written."""

    def __init__(self, process: ChildProcess, file: Path) -> None:
        self._process = process
        self._lines = Lines(file)
        self._done: dict[str, dict[str, Any]] = {}

    def wait_for(self, *steps: str) -> dict[str, dict[str, Any]]:
        """Return all steps when these are done; raises ProcessFailedError if the program ends before."""

        def done() -> bool:
            lines = [json.loads(line) for line in self._lines.news()]
            self._done |= {line.pop("step"): line for line in lines}
            return set(steps) <= self._done.keys()

        self._process.wait_ready(done, STEP_SECONDS)
        return self._done


@contextmanager
def running(command: list[str], directory: Path, url: str, namespace: str, until: Path) -> Iterator[Steps]:
    """Run the program until the block ends; its last transaction stays open until there is a file `until`."""
    topics = [f"persistent://{namespace}/{name}" for name in ("from", "to")]
    events = directory / "steps.jsonl"
    process = ChildProcess(
        "transactions", [*command, url, *topics, str(MESSAGES), str(events), str(until)], directory / "transactions.log"
    )
    try:
        yield Steps(process, events)
    finally:
        process.stop(STOP_SECONDS)


@pytest.mark.usefixtures("coordinator")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("language", ["java", "go"])
def test_transactions_of_a_real_client_keep_their_promises_also_over_a_restart_of_the_proxy(
    language: str, broker: Broker, namespace: str, tmp_path: Path
) -> None:
    with in_one_line():
        command = PROGRAMS[language]()
    until = tmp_path / "go-on"
    port = str(free_ports(1)[0])

    def start(stack: ExitStack, **keys: str) -> Proxy:
        return stack.enter_context(run_proxy(tmp_path, broker, {"servicePort": port, **keys}))

    with ExitStack() as second, ExitStack() as first:
        # The log names what is relayed, and relays are in the interpreter then.
        proxy = start(first, proxyLogLevel="1")
        steps = second.enter_context(running(command, tmp_path, proxy.service_url, namespace, until))
        done = steps.wait_for("open")
        assert done.pop("open") == {}
        assert done == {"committed": {"before": 0, "after": MESSAGES}, **ENDINGS[language]}
        log = proxy.process.log.read_text()
        assert {name for name in COMMANDS if f'"command":"{name}"' in log} == set(COMMANDS)
        # The connections to the coordinator, of the producer and of the consumers are lost with the transaction open.
        first.close()
        start(second)
        until.touch()
        done = steps.wait_for("kept_open", "closed")
        assert done["kept_open"] == {"after": MESSAGES}
