"""Own storms in which some clients do not read, and proxies whose seconds pass when a test says so.

Verdicts hang on the order of events: the quick clients of a storm are served while the slow ones have read nothing.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from proxy.app import proxy as app
from tests.support.brokers.embedded.topics import GeneratedTopics, TopicStore
from tests.support.clients.async_client import AsyncClient
from tests.support.proxies.proxy_under_test import TOPICS, Stage, namespace, staged

SLOW, QUICK, LIMIT_MIB = 20, 30, 8
NAMES: Final = GeneratedTopics(SLOW + 2 * QUICK, TOPICS, 100)
# No client is closed for reading slowly: those that wait can only be served from memory that is free.
STORM: Final[dict[str, Any]] = {
    "maxTopicListInFlightHeapMemSizeMB": LIMIT_MIB,
    "maxTopicListInFlightDirectMemSizeMB": LIMIT_MIB,
    "topicListUnprovenReadersMemoryPercent": 50,
    "topicListWriteMinBytesPerSecond": 0,
    "topicListWriteStallTimeoutMillis": 0,
}


@asynccontextmanager
async def timeless(store: TopicStore | None = None, **keys: Any) -> AsyncIterator[Stage]:
    """Stage a proxy that sweeps only when told to: no busy machine needs longer clocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "TICK_SECONDS", 3600)
        async with staged(store, **keys) as stage:
            yield stage


async def pass_by(stage: Stage, seconds: range) -> None:
    for second in seconds:
        # The kernel moves bytes in real time, whatever second it is here.
        await asyncio.sleep(0.02)
        await stage.proxy.memory.writes.sweep(second)


def proven(stage: Stage, client: AsyncClient) -> bool:
    return stage.session_of(client).output.reads


async def listed(client: AsyncClient, number: int) -> None:
    """Ask for a list, and read it."""
    assert len((await client.topics(namespace(number))).topics) == TOPICS


async def has_lists(clients: list[AsyncClient], pong: bool = False) -> None:
    """Read the list that each has asked for: nobody was refused for the sake of others."""
    answers = await asyncio.gather(*(client.answer(pong=pong) for client in clients))
    assert [answer.error.message for answer in answers] == [""] * len(clients)
    assert {len(answer.getTopicsOfNamespaceResponse.topics) for answer in answers} == {TOPICS}


async def newcomer(stage: Stage, number: int, source: str = "127.0.0.1") -> None:
    """Ask for a list as a client that nobody knows, and that reads at once."""
    client = await stage.client(source=source)
    await client.connect()
    await client.ask_topics(namespace(number))
    answer = await client.answer(pong=True)
    assert answer.getTopicsOfNamespaceResponse.topics, answer.error.message
    client.close()


async def stood(stage: Stage, clients: list[AsyncClient]) -> int:
    """Sweep until all these clients have stood still for 4 s, and give the second that this is."""
    second, outputs = 0, [stage.session_of(client).output for client in clients]
    while second < 4 or any(second - each.progress.progressed_at < 4 for each in outputs if each.progress):
        second += 1
        await pass_by(stage, range(second, second + 1))
    return second
