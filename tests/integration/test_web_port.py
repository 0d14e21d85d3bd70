"""The web port of a proxy at work: every number a dashboard reads, and what an orchestrator is told."""

import asyncio
from pathlib import Path

import pytest

from protocol.pb import PulsarApi_pb2 as pb
from proxy.core.errors import DIRECT_REFUSAL, HEAP_REFUSAL
from tests.support.patience import in_time, patient_millis
from tests.support.proxies.proxy_under_test import (
    FLAGS_BYTES,
    LIST_BYTES,
    TIGHT,
    TOPIC,
    Stage,
    direct_taken,
    jammed,
    namespace,
    queued_for_heap,
    staged,
    waiting_for_direct,
)
from tests.support.web.web_pages import Scrape, get, scrape

ACQUIRE = "maxTopicListInFlight{}MemSizePermitsAcquire{}"
HEAP_TIMEOUT, HEAP_QUEUE = ACQUIRE.format("Heap", "TimeoutMillis"), ACQUIRE.format("Heap", "QueueSize")
DIRECT_QUEUE = ACQUIRE.format("Direct", "QueueSize")


async def scraped(stage: Stage) -> Scrape:
    return await scrape(stage.proxy.web_port)


# --- the topic-list family of PIP-442 -------------------------------------------------------------


async def test_metrics_are_of_the_type_that_prometheus_reads() -> None:
    async with staged() as stage:
        page = await get(stage.proxy.web_port, "/metrics")
        assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_a_list_moves_the_numbers_and_leaves_no_memory_in_use() -> None:
    async with staged() as stage:
        client = await stage.connected()
        before = await scraped(stage)
        for number in range(3):
            await client.topics(namespace(number))
        await stage.until(lambda: not stage.heap.held + stage.direct.held, "all given back")
        after = await scraped(stage)
        moved = {
            # A list of unknown size waits twice: for its estimate, and to grow.
            "topic_list_heap_wait_time_ms_count": 6,
            "topic_list_direct_wait_time_ms_count": 3,
            "get_topics_of_namespace_requests_total": 3,
            "lists_groups_total": 3,
            "lists_answer_bytes_total": 3 * (LIST_BYTES + FLAGS_BYTES),
            "topic_list_heap_memory_used_bytes": 0,
            "topic_list_direct_memory_used_bytes": 0,
            "topic_list_heap_timeout_total": 0,
            "topic_list_direct_timeout_total": 0,
        }
        assert {name: after(name) - before(name) for name in moved} == moved
        assert after("lists_answers_total", outcome="answered") == 3
        # Asked for one after the other: nobody shared.
        assert after("lists_coalescing_ratio") == 1
        assert after("lists_peak_held_bytes", limiter="direct") >= LIST_BYTES
        assert after("topic_list_heap_wait_time_ms", quantile="1.0") >= 0
        assert after("active_connections") == 1


# --- refusals -------------------------------------------------------------------------------------


async def test_waits_that_time_out_are_counted_with_the_time_they_took() -> None:
    millis = patient_millis(1000)
    async with staged(**TIGHT | {HEAP_TIMEOUT: millis}) as stage:
        jam = await jammed(stage)
        assert (await jam.d.answer()).error.message == HEAP_REFUSAL
        at = await scraped(stage)
        assert (at("topic_list_heap_timeout_total"), at("topic_list_direct_timeout_total")) == (1, 0)
        assert at("lists_answers_total", outcome="refused_heap") == 1
        assert at("topic_list_heap_wait_time_ms", quantile="1.0") > millis - 1
        assert at("topic_list_heap_wait_time_ms_sum") > millis - 1


@pytest.mark.parametrize("limiter", ["heap", "direct"])
async def test_a_full_queue_is_counted_and_who_leaves_it_and_no_timeout(limiter: str) -> None:
    key, refusal = (HEAP_QUEUE, HEAP_REFUSAL) if limiter == "heap" else (DIRECT_QUEUE, DIRECT_REFUSAL)
    async with staged(**TIGHT | {key: 1}) as stage:
        if limiter == "heap":
            await jammed(stage)
            waiting = await queued_for_heap(stage)
        else:
            await direct_taken(stage)
            waiting = await waiting_for_direct(stage)
        client = await stage.connected()
        assert (await client.refused_topics(namespace(9))).message == refusal
        at = await scraped(stage)
        assert at("lists_queue_full_total", limiter=limiter) == 1
        assert at("lists_answers_total", outcome=f"refused_{limiter}") == 1
        assert at(f"topic_list_{limiter}_queue_size") == 1
        assert at(f"topic_list_{limiter}_timeout_total") == 0
        waiting.close()
        await stage.until(lambda: not getattr(stage, limiter).queue_size, "an empty queue")
        assert (await scraped(stage))("lists_cancelled_total", limiter=limiter) == 1


# --- connections and lookups ----------------------------------------------------------------------


async def test_connections_and_requests_are_counted_by_what_became_of_them() -> None:
    async with staged(maxConcurrentInboundConnections=2) as stage:
        first, second = await stage.connected(), await stage.connected()
        await first.lookup(TOPIC)
        refused = await stage.client()
        assert (await refused.answer()).type == pb.BaseCommand.ERROR
        assert await refused.rest() == b""
        second.close()
        await stage.until(lambda: len(stage.proxy.sessions) == 1, "one client left")
        at = await scraped(stage)
        assert at("new_connections_total") >= 2
        assert at("rejected_connections_total") == 1
        assert at("active_connections") == 1
        assert at("lookup_requests_total") == 1
        assert at("disconnects_total", cause="client_closed") == 1


# --- for the orchestrator -------------------------------------------------------------------------


# What a balancer asks, and the status, `Allow` and whether the connection lives. Jersey in the Java proxy 4.0.8 answers
# each OPTIONS of /status.html with 200 and `Allow: HEAD,GET,OPTIONS`, whatever GET says.
_READ = "GET, HEAD, OPTIONS"
OPTIONS = [
    ("OPTIONS /status.html HTTP/1.0\r\n", 200, _READ, False),
    ("OPTIONS /status.html HTTP/1.0\r\nConnection: keep-alive\r\n", 200, _READ, True),
    ("OPTIONS /status.html HTTP/1.1\r\nHost: lb\r\nConnection: close\r\n", 200, _READ, False),
    ("OPTIONS http://lb/status.html HTTP/1.1\r\nHost: lb\r\n", 200, _READ, True),
    ("OPTIONS * HTTP/1.1\r\nHost: lb\r\n", 200, _READ, True),
    ("OPTIONS /readyz HTTP/1.0\r\n", 200, _READ, False),
    ("OPTIONS /proxy-stats/connections HTTP/1.0\r\n", 200, _READ, False),
    ("OPTIONS /proxy-stats/logging/2 HTTP/1.0\r\n", 200, "OPTIONS, POST", False),
    ("OPTIONS /nowhere HTTP/1.0\r\n", 404, None, False),
    ("HEAD /status.html HTTP/1.0\r\n", 200, None, False),
    ("POST /status.html HTTP/1.1\r\nHost: lb\r\n", 405, _READ, True),
    ("TRACE /status.html HTTP/1.0\r\n", 405, _READ, False),
    ("PROPFIND /metrics HTTP/1.1\r\nHost: lb\r\n", 405, _READ, False),
]


@pytest.mark.parametrize(("question", "status", "allowed", "lives"), OPTIONS, ids=[each[0][:45] for each in OPTIONS])
async def test_a_page_says_what_may_be_asked_and_how_it_is(
    question: str, status: int, allowed: str | None, lives: bool
) -> None:
    async with staged() as stage, in_time():
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.proxy.web_port)
        try:
            writer.write(f"{question}\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            found = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
            assert (int(head.split()[1]), found.get("Allow")) == (status, allowed)
            assert stage.proxy.relay_log.level == 0
            assert status != 200 or question.startswith("HEAD") or found["Content-Length"] == "0"
            if lives:
                await reader.readexactly(int(found["Content-Length"]))
                writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
                assert (await reader.read()).split()[1] == b"200"
            else:
                body = await reader.read()
                assert not body or status >= 400
        finally:
            writer.close()
            await writer.wait_closed()


async def test_the_status_page_follows_its_file_and_readiness_does_not(tmp_path: Path) -> None:
    file = tmp_path / "in-rotation"
    async with staged(statusFilePath=file) as stage:
        port = stage.proxy.web_port
        for method in ("GET", "HEAD", "OPTIONS"):
            assert (await get(port, "/status.html", method)).status == 404
            file.touch()
            assert (await get(port, "/status.html", method)).status == 200
            file.unlink()
            assert (await get(port, "/status.html", method)).status == 404
        assert (await get(port, "/readyz")).status == 200
