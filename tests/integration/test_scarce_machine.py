"""A machine that has no more: no descriptors, no memory, no threads, no names, and a wall clock that jumps.

Each test takes one thing away from a running proxy and asks for four things: an end with a named cause, a line in the
log, neighbours that go on, and service as before once the thing is back. Accepting without descriptors is in
`test_limits_and_shutdown.py`, a disk without room for lists in `test_spill.py` and `test_spill_disks.py`, one without
room for events in `tests/unit/eventlog/test_files.py`.
"""

import asyncio
import resource
import socket
import time
from pathlib import Path
from threading import Event
from typing import Any, Final

import pytest

from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SlabPool
from protocol.topic_list import TopicListAnswer
from proxy.auth.sources import Watched
from proxy.net.tls import files as tls_files
from tests.support.auth.tls import PemFiles, certificate
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.script import AfterHandshake, Script
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.clients.async_client import LOOPBACK, AsyncClient, connect_frame, eventually, lookup_frame
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.proxy_under_test import TOPICS, namespace, staged
from tests.support.proxies.running_proxy import Running, child_proxy
from tests.support.sockets.names import SystemNames
from tests.support.web.fake_web_broker import fake_web_broker
from tests.unit.eventlog.parts import finished, read_events
from tests.unit.proxy.core.test_threads import NoMore

MIB: Final = 1024 * 1024
ECHOED: Final = bytes(range(256)) * 256
DAY_SECONDS: Final = 86_400
# The clock of these tests ticks every 20 ms.
SOME_TICKS_SECONDS: Final = 0.1


def limited(proxy: Running, what: int, limit: int) -> tuple[int, int]:
    """Set a soft limit of a running proxy, and return both as they were."""
    _, hard = before = resource.prlimit(proxy.child.pid, what)
    resource.prlimit(proxy.child.pid, what, (limit, hard))
    return before


async def served(client: AsyncClient, topics: int, number: int = 0) -> None:
    """See that a client in lookup mode gets what it asks for."""
    await client.ping()
    assert len((await client.topics(f"demo/ns-{number}")).topics) == topics
    assert (await client.lookup(f"persistent://demo/ns-{number}/topic")).response


# --- descriptors ----------------------------------------------------------------------------------

NONE_FREE: Final = "too many open files"
WEB_LOOKUP: Final = "/lookup/v2/topic/persistent/demo/ns-0/topic"


async def test_a_dial_without_descriptors_is_one_answer_and_works_once_there_are_some_again(tmp_path: Path) -> None:
    async with EmbeddedBroker(GeneratedTopics(4, 100, 40)) as broker, fake_web_broker() as web_service:
        web = web_service.url
        keys = {"brokerProxyAllowedTargetPorts": "*", "brokerWebServiceURL": web}
        async with child_proxy(tmp_path, broker, **keys) as proxy:
            asking, relayed, neighbour = await proxy.connected(), await proxy.client(), await proxy.client()
            await neighbour.connect(target=f"{LOOPBACK}:{broker.port}")
            browser = await AsyncClient.open(proxy.web_port)
            proxy.clients.append(browser)
            await browser.send(get("/livez"))
            await browser.receive(len(b"HTTP/1.1 200 OK"))
            before = limited(proxy, resource.RLIMIT_NOFILE, 3)

            request_id = asking.next_id()
            await asking.send(lookup_frame(request_id, "persistent://demo/ns-0/topic"))
            refused = (await asking.command()).lookupTopicResponse
            assert (refused.request_id, refused.error) == (request_id, ServerError.ServiceNotReady)
            assert NONE_FREE in refused.message
            refused_list = await asking.refused_topics("demo/ns-0")
            assert refused_list.error == ServerError.ServiceNotReady
            assert NONE_FREE in refused_list.message
            await relayed.send(connect_frame(f"{LOOPBACK}:{broker.port}"))
            assert (await relayed.last_command()).error.error == ServerError.ServiceNotReady
            await browser.send(get(WEB_LOOKUP, "close"))
            assert b"HTTP/1.1 50" in await browser.rest()
            # Connections that are there go on.
            await asking.ping()
            await neighbour.ping()
            assert any(NONE_FREE in line["detail"] for line in proxy.lines("client disconnected"))

            resource.prlimit(proxy.child.pid, resource.RLIMIT_NOFILE, before)
            await served(asking, 100)
            again = await proxy.client()
            await again.connect(target=f"{LOOPBACK}:{broker.port}")
            await again.ping()
            assert b"HTTP/1.1 200" in await proxy.get(WEB_LOOKUP)


def get(path: str, connection: str = "keep-alive") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: proxy\r\nConnection: {connection}\r\n\r\n".encode()


# --- memory ---------------------------------------------------------------------------------------


def address_space(pid: int) -> int:
    """Return the bytes of the address space of a process, which RLIMIT_AS bounds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


async def echoed(relayed: AsyncClient) -> None:
    """Send bytes through a relay, and read the same again."""
    sending = asyncio.gather(relayed.send(ECHOED), relayed.receive(len(ECHOED)))
    assert (await sending)[1] == ECHOED


async def test_without_memory_for_a_list_its_client_is_refused_and_all_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each arena of glibc has 64 MiB of address space, in which lists find room.
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    topics, name_bytes = 24_000, 200
    keys = {
        "maxTopicListInFlightHeapMemSizeMB": 1024,
        "maxTopicListInFlightDirectMemSizeMB": 1024,
        "brokerProxyAllowedTargetPorts": "*",
    }
    store = GeneratedTopics(4, topics, name_bytes)
    async with (
        EmbeddedBroker(store) as broker,
        EmbeddedBroker(store, Script(after_handshake=AfterHandshake.ECHO)) as echo,
        child_proxy(tmp_path, broker, **keys) as proxy,
    ):
        neighbour, relayed = await proxy.connected(), await proxy.client()
        await relayed.connect(target=f"{LOOPBACK}:{echo.port}")
        await echoed(relayed)
        lookup = "persistent://demo/ns-0/topic"
        assert (await neighbour.lookup(lookup)).response
        before = limited(proxy, resource.RLIMIT_AS, address_space(proxy.child.pid) + 2 * MIB)
        for number in range(4):
            client = await proxy.connected()
            refused = await client.refused_topics(f"demo/ns-{number}")
            assert refused.error == ServerError.TooManyRequests
            await neighbour.ping()
            assert (await neighbour.lookup(lookup)).response
            await echoed(relayed)
            newcomer = await proxy.client()
            await newcomer.connect(target=f"{LOOPBACK}:{echo.port}")
            await echoed(newcomer)
        await eventually(lambda: refused_for_memory(proxy), "a line that names the lack")
        resource.prlimit(proxy.child.pid, resource.RLIMIT_AS, before)
        assert len((await neighbour.topics("demo/ns-0")).topics) == topics
        assert b"pulsar_proxy_internal_errors_total{" not in await proxy.get("/metrics")


def refused_for_memory(proxy: Running) -> bool:
    return any(line["stage"] == "machine_memory" for line in proxy.lines("request refused"))


class Lack:
    """Memory that is not to be had at one moment of a list's way: once, then there is enough again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, where: str, number: int) -> None:
        self._left = number
        taken, fed = SlabPool.take, TopicListAnswer.slab_filled

        def take(pool: SlabPool) -> bytearray:
            self._look()
            return taken(pool)

        def feed(answer: TopicListAnswer, slab: memoryview) -> None:
            self._look()
            fed(answer, slab)

        if where == "slab":
            monkeypatch.setattr(SlabPool, "take", take)
        else:
            monkeypatch.setattr(TopicListAnswer, "slab_filled", feed)

    def _look(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise MemoryError


@pytest.mark.parametrize(("where", "number"), [("slab", 1), ("slab", 2), ("decoding", 1), ("decoding", 3)])
async def test_a_list_without_memory_is_refused_and_the_next_answer_on_its_connection_is_read(
    monkeypatch: pytest.MonkeyPatch, where: str, number: int
) -> None:
    async with staged(topicListCoalescingEnabled="false") as stage:
        stage.change_pool(per_key=1)
        gate = stage.broker.script.hold(CommandType.GET_TOPICS_OF_NAMESPACE)
        clients = [await stage.connected() for _ in range(2)]
        for asked, client in enumerate(clients, start=1):
            await client.ask_topics(namespace(asked))
            await stage.until(lambda: stage.outstanding == asked, "a question at the broker")  # noqa: B023
        Lack(monkeypatch, where, number)
        gate.set()
        answers = [await client.answer() for client in clients]
        assert [len(answer.getTopicsOfNamespaceResponse.topics) for answer in answers] in ([0, TOPICS], [TOPICS, 0])
        (error,) = (answer.error for answer in answers if answer.type == pb.BaseCommand.ERROR)
        assert error.error == ServerError.TooManyRequests
        assert error.message == "the proxy has no memory left for the answer"
        assert stage.broker.record.connections_accepted == 1
        assert [refusal.stage for refusal in stage.proxy.reports.refusals.recent] == ["machine_memory"]
        for client in clients:
            assert len((await client.topics(namespace(3))).topics) == TOPICS


# --- names ----------------------------------------------------------------------------------------


async def test_without_names_from_the_start_a_request_is_refused_by_name_and_served_when_they_are_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = SystemNames(monkeypatch, LOOPBACK)
    names.error = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    async with EmbeddedBroker(GeneratedTopics(20, 3, 50)) as broker:
        url = f"pulsar://brokers.test:{broker.port}"
        async with staged(brokerServiceURL=url, brokerDnsTtlSeconds=1) as stage:
            client = await stage.connected()
            refused = await client.refused_topics(namespace(0))
            assert refused.error == ServerError.ServiceNotReady
            assert "brokers.test" in refused.message
            assert "Temporary failure in name resolution" in refused.message
            await client.ping()
            names.error = None
            await stage.until(lambda: stage.proxy.broker_side.brokers.states()["up"], "a broker that is found")
            assert len((await client.topics(namespace(0))).topics) == 3


# --- the wall clock -------------------------------------------------------------------------------


class WallClock:
    """The wall clock of this process, which a test moves; other clocks go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.off_seconds = 0.0
        real, real_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: real() + self.off_seconds)
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(self.off_seconds * 1e9))


@pytest.mark.parametrize("jump_seconds", [-365 * DAY_SECONDS, -3600, 3600, 365 * DAY_SECONDS])
async def test_a_wall_clock_that_jumps_ends_no_connection_and_changes_no_duration(
    monkeypatch: pytest.MonkeyPatch, jump_seconds: float, tmp_path: Path
) -> None:
    clock = WallClock(monkeypatch)
    keys: dict[str, Any] = {"eventLogDirectory": tmp_path, "maxConnectionAgeSeconds": 3600}
    async with staged(GeneratedTopics(20, 3, 50), **keys) as stage:
        asking, relayed = await stage.connected(), await stage.relayed()
        await asking.topics(namespace(0))
        gate = stage.broker.script.hold(CommandType.GET_TOPICS_OF_NAMESPACE)
        request = await asking.ask_topics(namespace(1))
        await stage.until(lambda: stage.outstanding == 1, "a question under way")
        clock.off_seconds = jump_seconds
        await asyncio.sleep(SOME_TICKS_SECONDS)
        gate.set()
        answer = await asking.answer()
        assert answer.getTopicsOfNamespaceResponse.request_id == request
        await relayed.ping()
        clock.off_seconds = 0.0
        await asyncio.sleep(SOME_TICKS_SECONDS)
        await asking.topics(namespace(2))
        await relayed.ping()
        assert sum(counted_by(stage.proxy.counters, "disconnects").values()) == 0
    for event in [event for path in finished(tmp_path) for event in read_events(path)]:
        durations = {name: value for name, value in event.items() if name.endswith("_wait_us")}
        assert all(0 <= value < 60_000_000 for value in durations.values() if isinstance(value, int)), durations


# --- threads --------------------------------------------------------------------------------------


async def test_certificates_are_renewed_although_there_was_no_thread_to_read_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tls_files, "RETRY_SECONDS", 0.02)
    files = PemFiles.write(tmp_path)
    async with staged(**files.server_keys) as stage:
        lack = NoMore(monkeypatch, 3)
        PemFiles.write(tmp_path, certificate("second"))
        stage.proxy.files_may_have_changed()
        await stage.until(lambda: counted(stage.proxy.counters, "tls_reloads", "applied") == 1, "the new certificate")
        assert (lack.left, counted(stage.proxy.counters, "tls_reloads", "refused")) == (0, 1)


async def test_a_file_of_keys_is_watched_on_although_there_was_no_thread_to_read_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_text("first")
    file = Watched(str(path), "key", bytes)
    path.write_text("the second")
    NoMore(monkeypatch, 1)
    assert [await file.look() for _ in range(2)] == [False, True]
    assert file.value == b"the second"


def test_a_file_of_keys_on_a_disk_that_hangs_does_not_keep_the_process(tmp_path: Path) -> None:
    path, answers, ended = tmp_path / "file", Event(), list[bool]()

    def build(content: bytes) -> bytes:
        if content == b"hangs":
            ended.append(answers.wait(10))
        return content

    async def look() -> None:
        file = Watched(str(path), "key", build)
        path.write_text("hangs")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await file.look()

    path.write_text("first")
    try:
        asyncio.run(look())
        assert ended == []
    finally:
        answers.set()
