"""Own a storm that a proxy with tight limits records with both its sinks: some lists shared, some refused, one left.

Rule: nothing here waits for a clock. Clients that do not read hold all direct memory until the refusals are over, so
that these come whatever the machine; how many of each kind there are is for the books to agree on.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from protocol.commands import frame
from protocol.pb import PulsarApi_pb2 as pb
from tests.pulsar import storm
from tests.pulsar.admin import Admin
from tests.pulsar.pages import proxy_metrics, wait_until_whole
from tests.pulsar.proxy_process import Proxy, host_and_port, run_proxy
from tests.pulsar.standalone import Broker
from tests.support.clients.wire import ServerRefusedError, WireClient
from tests.support.web.web_pages import Scrape

_PATIENCE_SECONDS: Final = 120.0
_PARTITIONS: Final = 512
_NAME_CHARACTERS: Final = 480
# Lists of a quarter of a MiB less a little: four are all of the direct memory.
_HOLDERS: Final = 4
_TOO_LARGE: Final = 3
_CONNECTIONS: Final = 30
_WINDOW: Final = 4
_KEYS: Final = {
    "maxTopicListInFlightHeapMemSizeMB": "1",
    "maxTopicListInFlightDirectMemSizeMB": "1",
    "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis": "1500",
    "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis": "3000",
    "maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize": "10",
    "topicListMaxAnswerBytes": "400000",
    # A slow machine must be neither what refuses nor what closes a connection.
    "topicListRequestTimeoutMillis": "110000",
    "keepAliveIntervalSeconds": "3600",
    "topicListWriteStallTimeoutMillis": "0",
    "topicListWriteMinBytesPerSecond": "0",
    # Clients that do not read are to fill all of direct memory.
    "topicListUnprovenReadersMemoryPercent": "100",
    # Else the kernel takes a list for a client that does not read.
    "clientSocketSendBufferBytes": "16384",
    "eventLogProxyId": "recorded",
}


@dataclass(slots=True)
class Seen:
    """What the clients saw of topic lists, and what the proxy itself counted until the last event was written."""

    metrics: Scrape
    asked: int = 0
    answered: int = 0
    refused: int = 0
    frame_bytes: int = 0


def record(directory: Path, broker: Broker, admin: Admin, namespace: str, events: Mapping[str, str]) -> Seen:
    """Run the storm against a proxy of its own, which has ended when this returns; `events` says where they go."""
    for letter in "ab":
        stem = len(f"persistent://{namespace}/-partition-{_PARTITIONS - 1}")
        admin.create_topic(f"persistent://{namespace}/{letter * (_NAME_CHARACTERS - stem)}", _PARTITIONS)
    small = f"{namespace}-small"
    admin.create_namespace(small)
    admin.create_topic(f"persistent://{small}/{'s' * 400}", partitions=40)
    with run_proxy(directory, broker, {**_KEYS, **events}) as proxy:
        wait_until_whole(proxy)
        recorded = _Storm(proxy, namespace, small)
        recorded.ask_for_too_much()
        recorded.be_refused()
        recorded.be_answered()
        return recorded.told()


class _Storm:
    """The acts of the storm, one after the other, and what is known of them so far."""

    def __init__(self, proxy: Proxy, wide: str, small: str) -> None:
        self._proxy = proxy
        self._wide = wide
        self._pattern = f"persistent://{wide}/a.*"
        self._other_pattern = f"persistent://{wide}/b.*"
        self._small = small
        self._seen = Seen(proxy_metrics(proxy))

    def ask_for_too_much(self) -> None:
        """Ask for both wide topics at once: a larger answer than the proxy takes."""
        with self._client() as client:
            for _ in range(_TOO_LARGE):
                with pytest.raises(ServerRefusedError, match="topicListMaxAnswerBytes"):
                    client.get_topics(self._wide)
        self._seen.asked += _TOO_LARGE
        self._seen.refused += _TOO_LARGE

    def be_refused(self) -> None:
        """Hold all direct memory while others ask; then all but one of the holders read their lists."""
        with ExitStack() as stack:
            holders = [stack.enter_context(self._client(rcvbuf=4096)) for _ in range(_HOLDERS)]
            asked = [
                client.ask_topics(self._wide, pattern=self._pattern, properties={"marker": f"holder {number}"})
                for number, client in enumerate(holders)
            ]
            least = _HOLDERS * _PARTITIONS * (_NAME_CHARACTERS - len("00"))
            self._until(lambda metrics: metrics("topic_list_direct_memory_used_bytes") >= least)
            different = [storm.request(self._wide, self._pattern, f"refused {number}") for number in range(30)]
            outcome = self._ask(different + [storm.request(self._wide, self._pattern, "refused") for _ in range(20)])
            # Nobody is given what the holders have.
            assert outcome.answered == 0
            holders.pop().reset()
            self._until(lambda metrics: metrics("lists_answers_total", outcome="cancelled") == 1)
            for client, request_id in zip(holders, asked, strict=False):
                self._seen.frame_bytes += len(frame(client.answer_to(request_id)))
            self._until_counted(len(holders))
        self._seen.asked += _HOLDERS
        self._seen.answered += len(holders)

    def be_answered(self) -> None:
        """Ask for much of the same at once, with nobody in the way."""
        same = [storm.request(self._wide, self._pattern) for _ in range(120)]
        other = [storm.request(self._wide, self._other_pattern) for _ in range(20)]
        different = [storm.request(self._small, marker=str(number)) for number in range(60)]
        self._ask([*same, *other, *different])

    def told(self) -> Seen:
        """Give the metrics when both sinks have written an event for each request."""
        self._until(
            lambda metrics: (
                [metrics("event_log_written_total", sink=sink) for sink in ("files", "topic")] == [self._seen.asked] * 2
            )
        )
        return self._seen

    def _ask(self, requests: Sequence[pb.CommandGetTopicsOfNamespace]) -> storm.Outcome:
        address = host_and_port(self._proxy.service_url)
        outcome = asyncio.run(storm.storm(address, requests, _CONNECTIONS, _WINDOW, ended=self._until_all_counted))
        assert outcome.lost == 0
        assert outcome.answered + outcome.errors.total() == len(requests)
        assert all(error.startswith("TooManyRequests: ") for error in outcome.errors), outcome.errors
        self._seen.asked += len(requests)
        self._seen.answered += outcome.answered
        self._seen.refused += outcome.errors.total()
        self._seen.frame_bytes += outcome.frame_bytes
        return outcome

    def _client(self, rcvbuf: int | None = None) -> WireClient:
        client = WireClient(*host_and_port(self._proxy.service_url), timeout=_PATIENCE_SECONDS, rcvbuf=rcvbuf)
        client.connect()
        return client

    def _until_all_counted(self, outcome: storm.Outcome) -> None:
        self._until_counted(outcome.answered)

    def _until_counted(self, answered: int) -> None:
        # Who goes with the last byte may be gone before the proxy has seen it leave, and counts as cancelled then.
        whole = self._seen.answered + answered
        self._until(lambda metrics: metrics("lists_answers_total", outcome="answered") == whole)

    def _until(self, holds: Callable[[Scrape], bool]) -> None:
        def look() -> bool:
            self._seen.metrics = proxy_metrics(self._proxy)
            return holds(self._seen.metrics)

        self._proxy.process.wait_ready(look, _PATIENCE_SECONDS)
