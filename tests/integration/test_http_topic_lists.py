"""Topic lists asked for over HTTP: the memory they hold, who waits, who is refused, who is ended."""

import asyncio
from typing import Final

import pytest
from aiohttp import web

from proxy.core.errors import DIRECT_REFUSAL
from proxy.telemetry.refusals import Stage
from tests.support.clients.async_client import LOOPBACK, AsyncClient, Closed
from tests.support.patience import patient, patient_millis
from tests.support.proxies.counted import counted, counted_by
from tests.support.web.web_stage import WebStage, web_staged

LISTS: Final = "/admin/v2/namespaces/demo/ns/topics?mode=ALL"
BUFFER: Final = 4096
WINDOW: Final = 4 * BUFFER
DIRECT: Final = "maxTopicListInFlightDirectMemSize{}"
LIST_BYTES: Final = 2000 * 40 * len(b'"persistent://demo/ns/topic",')
SMALL: Final = {"httpOutputBufferSize": BUFFER, "topicListWriteStallTimeoutMillis": 0}


async def large_list(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    for _ in range(2000):
        await response.write(b'"persistent://demo/ns/topic",' * 40)
    return response


async def slow_reader(at: WebStage, path: str = LISTS, source: str = LOOPBACK) -> AsyncClient:
    """Ask for a list and read nothing of it."""
    client = await at.stage.client(4096, at.stage.proxy.web_port, source)
    await client.send(f"GET {path} HTTP/1.1\r\nHost: p\r\n\r\n".encode())
    return client


async def all_of(client: AsyncClient) -> None:
    while await asyncio.get_running_loop().sock_recv(client.sock, 65536):
        pass


@pytest.mark.parametrize(
    "path",
    [
        LISTS,
        "/admin/v2/persistent/demo/ns",
        "/admin/v2/non-persistent/demo/ns",
        "/admin/v2/persistent/demo/ns/partitioned",
        "/admin/persistent/prop/cluster/ns",
        "/admin/namespaces/prop/cluster/ns/destinations",
        "/admin/v2/namespaces/demo/ns/%74opics",
        "/admin/v2/namespaces/demo//ns/topics;x=y",
    ],
)
async def test_a_list_holds_its_window_from_first_to_last_byte(path: str) -> None:
    async with web_staged(**SMALL) as at:
        at.broker.answer = large_list
        reader = await slow_reader(at, path)
        await at.stage.until(lambda: at.stage.direct.held == WINDOW, "the window of one list")
        await at.stage.until(lambda: at.broker.asked, "the question")
        got = bytearray()
        while not got.endswith(b"\r\n0\r\n\r\n"):
            got += await asyncio.get_running_loop().sock_recv(reader.sock, 65536)
        assert got.startswith(b"HTTP/1.1 200 ")
        await at.stage.until(lambda: not at.stage.direct.held, "nothing held")
        usage = at.stage.proxy.reports.usage.top(1).namespaces[0]
        assert usage.sent_bytes > 2_000_000
        assert usage.byte_seconds > 0


@pytest.mark.parametrize("path", ["/admin/v2/clusters", "/admin/v2/persistent/demo/ns/topic/stats"])
async def test_other_answers_hold_none(path: str) -> None:
    async with web_staged(**SMALL) as at:
        assert (await at.ask(path)).status == 200
        assert at.stage.direct.statistics().peak_held == 0


async def full(at: WebStage) -> None:
    """Have one list hold nearly all direct memory."""
    at.broker.answer = large_list
    await slow_reader(at)
    await at.stage.until(lambda: at.stage.direct.held and at.broker.asked, "a list under way")


LARGE_WINDOW: Final = {"httpOutputBufferSize": 200_000, DIRECT.format("MB"): 1, "topicListWriteStallTimeoutMillis": 0}


async def test_a_list_without_memory_in_time_is_refused_like_one_of_the_binary_port() -> None:
    async with web_staged(**LARGE_WINDOW) as at:
        await full(at)
        at.stage.change(**{DIRECT.format("PermitsAcquireTimeoutMillis"): 50})
        answer = await at.ask(LISTS)
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        assert answer.json["reason"] == DIRECT_REFUSAL
        refusal = at.stage.proxy.reports.refusals.recent[-1]
        assert (refusal.stage, refusal.limiter, refusal.subject) == ("direct", "direct", "demo/ns")
        assert refusal.change == "maxTopicListInFlightDirectMemSizeMB"
        assert refusal.top_holders[0][1] == 800_000
        assert counted(at.stage.proxy.counters, "http_lists_refused") == 1


@pytest.mark.threat("unlimited-http-lists")
async def test_a_list_stands_in_the_same_queue_as_those_of_the_binary_port() -> None:
    keys = LARGE_WINDOW | {DIRECT.format("PermitsAcquireQueueSize"): 1}
    async with web_staged(**keys) as at:
        await full(at)
        waiting = await slow_reader(at)
        await at.stage.until(lambda: at.stage.direct.queue_size == 1, "one in the queue")
        client = await at.stage.connected()
        assert (await client.refused_topics("demo/ns-00")).message == DIRECT_REFUSAL
        waiting.close()
        await at.stage.until(lambda: not at.stage.direct.queue_size, "its place is free")


@pytest.mark.threat("endless-http-body")
async def test_a_client_that_stops_reading_a_list_is_ended_by_the_same_rule() -> None:
    async with web_staged(**SMALL | {"topicListWriteStallTimeoutMillis": 200}) as at:
        at.broker.answer = large_list
        reader = await slow_reader(at)
        await at.stage.until(lambda: at.stage.caused("write_stalled"), "the end of who does not read")
        await at.stage.until(lambda: not at.stage.direct.held, "its memory is free")
        with pytest.raises(ConnectionResetError):
            await all_of(reader)


async def test_no_clock_cuts_a_list_whose_client_reads_slowly() -> None:
    async with web_staged(**SMALL, httpProxyTimeout=patient_millis(300)) as at:
        at.broker.answer = large_list
        reader = await slow_reader(at)
        await at.stage.until(lambda: at.stage.direct.held and len(at.stage.proxy.memory.writes), "a list being written")
        await asyncio.sleep(patient(0.6))
        assert at.stage.direct.held
        await reader.receive(LIST_BYTES)


async def test_a_broker_that_stops_in_the_middle_of_a_list_is_not_waited_for_without_end() -> None:
    async def stops(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b"[")
        await asyncio.sleep(3600)
        raise AssertionError

    async with web_staged(**SMALL, httpProxyTimeout=patient_millis(300)) as at:
        at.broker.answer = stops
        reader = await slow_reader(at)
        with pytest.raises(Closed):
            await reader.receive(LIST_BYTES)
        await at.stage.until(lambda: not at.stage.direct.held, "its memory free")


@pytest.mark.threat("slow-http-lists")
async def test_lists_of_a_slow_broker_hold_no_memory_before_its_answers() -> None:
    # A tenth of the attack in which 1,000 lists held all of 100 MB while their broker was slow.
    gate = asyncio.Event()

    async def slow(_: web.BaseRequest) -> web.StreamResponse:
        await gate.wait()
        return web.Response(body=b'["a"]')

    keys = {"httpOutputBufferSize": 32_768, DIRECT.format("MB"): 1, "topicListMaxOutstandingPerBroker": 120}
    async with web_staged(**keys) as at:
        at.broker.answer = slow

        async def one() -> int:
            return (await at.ask(LISTS)).status

        async with asyncio.TaskGroup() as group:
            asking = [group.create_task(one()) for _ in range(90)]
            await at.stage.until(lambda: len(at.broker.asked) == 90, "all questions at the broker")
            assert at.stage.direct.held == 0
            victim = await at.stage.connected()
            assert len((await victim.topics("demo/ns-00")).topics) == 7_000
            assert at.stage.direct.statistics().queued == 0
            gate.set()
        assert {task.result() for task in asking} == {200}


@pytest.mark.threat("slow-http-lists")
async def test_few_lists_are_asked_for_at_once_and_leave_connections_to_other_requests() -> None:
    gate = asyncio.Event()

    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        if request.raw_path == LISTS:
            await gate.wait()
        return web.Response(body=b'["a"]')

    async with web_staged(topicListMaxOutstandingPerBroker=2) as at:
        at.broker.answer = slow
        counters = at.stage.proxy.counters

        async def until(in_work: int, asked: int) -> None:
            await at.stage.until(
                lambda: (counted(counters, "http_requests_in_work"), lists_asked(at)) == (in_work, asked),
                f"{in_work}, {asked}",
            )

        first = [await slow_reader(at) for _ in range(2)]
        await until(2, 2)
        waiting = [await slow_reader(at) for _ in range(3)]
        await until(5, 2)
        assert (await at.ask("/admin/v2/clusters")).status == 200
        waiting[0].close()
        await until(4, 2)
        first[0].reset()
        # The turn of the next.
        await until(3, 3)
        at.stage.change(**{DIRECT.format("PermitsAcquireTimeoutMillis"): 50})
        answer = await at.ask(LISTS)
        assert answer.status == 429
        assert answer.json["reason"] == Stage.BROKER_BUSY.refusal
        assert at.stage.proxy.reports.refusals.recent[-1].change == "topicListMaxOutstandingPerBroker"
        assert counted_by(counters, "http_refused_requests") == {"broker_busy": 1}
        at.stage.change(topicListMaxOutstandingPerBroker=100)
        await until(3, 4)
        gate.set()
        for reader in (first[1], *waiting[1:]):
            assert (await reader.receive(12)) == b"HTTP/1.1 200"
        await at.stage.until(lambda: at.stage.direct.held == 0, "nothing held")


def lists_asked(at: WebStage) -> int:
    return sum(asked.path == LISTS for asked in at.broker.asked)


async def test_an_answer_that_waits_for_memory_keeps_its_turn_and_a_client_that_leaves_gives_all_back() -> None:
    async with web_staged(**LARGE_WINDOW, topicListMaxOutstandingPerBroker=2) as at:
        await full(at)
        waiting = [await slow_reader(at) for _ in range(3)]
        await at.stage.until(lambda: at.stage.direct.queue_size == 2, "two answers that wait for memory")
        await at.stage.until(
            lambda: counted(at.stage.proxy.counters, "http_requests_in_work") == 4,
            "a third list that is not asked for yet",
        )
        assert lists_asked(at) == 3
        for reader in waiting:
            reader.reset()
        await at.stage.until(lambda: not at.stage.direct.queue_size, "nobody waits")
        await at.stage.until(lambda: counted(at.stage.proxy.counters, "http_requests_in_work") == 1, "all back")
