"""Events of frames for watchers, of lists over HTTP, and of what the end of the proxy cuts."""

import asyncio
from pathlib import Path
from typing import Any, Final

from tests.integration.test_direct_mode import greet
from tests.integration.test_event_log import kept, told
from tests.integration.test_http_topic_lists import LISTS as HTTP_LISTS
from tests.integration.test_http_topic_lists import large_list, slow_reader
from tests.integration.test_watch_limits import LIST, SNAPSHOT, UPDATE, exhaust, joined, send_all
from tests.support.brokers.raw_broker import raw_broker
from tests.support.proxies.proxy_under_test import MIB, TIGHT, direct_taken, staged
from tests.support.web.web_stage import web_staged
from tests.unit.eventlog.parts import events_in

FOREVER: Final = 600.0


# --- frames for watchers --------------------------------------------------------------------------


async def test_a_watch_frame_that_waits_is_an_event_when_it_has_left() -> None:
    async with staged(events=kept()) as stage, raw_broker(greet) as broker:
        stage.proxy.watch_limits.max_pause_seconds = FOREVER
        pair = await joined(stage, broker)
        held = exhaust(stage)
        async with asyncio.TaskGroup() as group:
            group.create_task(send_all(pair.broker, (LIST,)))
            await stage.until(lambda: stage.direct.queue_size == 1, "a watch frame that waits")
            held.release()
            assert await pair.client.receive(len(LIST)) == LIST
        (event,) = await told(stage, 1)
        assert (event["kind"], event["outcome"], event["response_bytes"]) == ("watch_init", "ok", len(LIST))
        assert (event["tenant"], event["question_hash"], event["group_id"]) == ("", None, None)
        assert event["client_version"] == "async-client"
        assert event["direct_wait_us"] > 0
        assert event["direct_byte_us"] > 0
        for count, names in enumerate((UPDATE, SNAPSHOT), 2):
            await pair.broker.send(names)
            assert await pair.client.receive(len(names)) == names
            *_, update = await told(stage, count)
            assert (update["kind"], update["response_bytes"]) == ("watch_update", len(names))


async def test_a_watch_frame_that_passes_without_memory_has_waited_and_held_nothing() -> None:
    async with staged(events=kept()) as stage, raw_broker(greet) as broker:
        stage.proxy.watch_limits.max_pause_seconds = 0.02
        pair = await joined(stage, broker)
        with exhaust(stage):
            await pair.broker.send(UPDATE)
            assert await pair.client.receive(len(UPDATE)) == UPDATE
        (event,) = await told(stage, 1)
        assert (event["outcome"], event["write_us"], event["direct_held_us"]) == ("ok", None, 0)
        assert event["direct_wait_us"] > 0
        assert event["direct_bytes"] == len(UPDATE)


async def test_a_watcher_that_leaves_while_its_frame_waits_is_cancelled() -> None:
    async with staged(events=kept()) as stage, raw_broker(greet) as broker:
        stage.proxy.watch_limits.max_pause_seconds = FOREVER
        pair = await joined(stage, broker)
        with exhaust(stage):
            await pair.broker.send(UPDATE)
            await pair.paused()
            pair.client.reset()
            (event,) = await told(stage, 1)
        assert (event["outcome"], event["outcome_stage"], event["close_cause"]) == (
            "cancelled",
            "direct",
            "client_closed",
        )


async def test_frames_are_no_events_while_they_are_not_limited() -> None:
    async with staged(events=kept()) as stage, raw_broker(greet) as broker:
        pair = await joined(stage, broker)
        stage.proxy.watch_limits.enabled = False
        await pair.broker.send(UPDATE)
        assert await pair.client.receive(len(UPDATE)) == UPDATE
        assert stage.events.kept == []


# --- lists over HTTP ------------------------------------------------------------------------------

WINDOW: Final[dict[str, Any]] = {"httpOutputBufferSize": 200_000, "maxTopicListInFlightDirectMemSizeMB": 1}


async def test_a_list_over_http_is_an_event_without_a_question() -> None:
    async with web_staged(events=kept()) as at:
        async with at.client.get(at.url + HTTP_LISTS) as answer:
            body = await answer.read()
        (event,) = await told(at.stage, 1)
        assert (event["kind"], event["outcome"], event["namespace"]) == ("get_topics", "ok", "demo/ns")
        assert (event["question_hash"], event["response_bytes"]) == (None, len(body))
        stages = ("broker_wait_us", "upstream_us", "direct_wait_us", "write_us")
        assert sum(event[stage] for stage in stages) == event["total_us"]
        assert event["upstream_us"] > 0
        assert event["direct_byte_us"] > 0


async def test_lists_over_http_that_are_refused_or_left_are_events() -> None:
    async with web_staged(events=kept(), **WINDOW) as at:
        at.broker.answer = large_list
        reader = await slow_reader(at)
        await at.stage.until(lambda: at.stage.direct.held and at.broker.asked, "a list under way")
        assert at.stage.direct.limit == MIB
        at.stage.change(maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis=30)
        async with at.client.get(at.url + HTTP_LISTS) as answer:
            assert answer.status == 429
        reader.reset()
        refused, left = await told(at.stage, 2)
        assert (refused["outcome"], refused["outcome_stage"]) == ("timeout", "direct")
        assert (left["outcome"], left["outcome_stage"], left["close_cause"]) == ("cancelled", "write", "client_closed")


# --- the end of the proxy -------------------------------------------------------------------------


async def test_a_list_that_the_end_of_the_proxy_cuts_is_in_its_files(tmp_path: Path) -> None:
    async with staged(eventLogDirectory=tmp_path, shutdownDrainMillis=50, **TIGHT) as stage:
        await direct_taken(stage)
        await stage.proxy.stop()
    (event,) = events_in(tmp_path)
    assert (event["outcome"], event["outcome_stage"], event["close_cause"]) == ("cancelled", "write", "shutdown")
