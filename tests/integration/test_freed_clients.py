"""A client that has left is freed by its reference counts: what is frozen is never walked again for its sake."""

import gc
from collections.abc import Awaitable, Callable, Iterator

import pytest

from proxy.net.transport import Endpoint
from tests.support.proxies.proxy_under_test import TOPIC, Stage, namespace, staged

CLIENTS = 20


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def endpoints() -> int:
    """Count the ends of connections, of clients and of relays, that the interpreter has not freed."""
    return sum(issubclass(type(known), Endpoint) for known in gc.get_objects())


async def looks_up(stage: Stage) -> None:
    client = await stage.connected()
    await client.lookup(TOPIC)
    client.close()


async def lists(stage: Stage) -> None:
    client = await stage.connected()
    await client.topics(namespace(0))
    client.close()


async def is_relayed(stage: Stage) -> None:
    client = await stage.relayed()
    client.close()


async def is_reset(stage: Stage) -> None:
    client = await stage.connected()
    client.reset()


async def says_nonsense(stage: Stage) -> None:
    client = await stage.client()
    await client.send(b"\xff" * 64)
    await client.rest()
    client.close()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("life", [looks_up, lists, is_relayed, is_reset, says_nonsense])
async def test_a_client_that_has_left_needs_no_garbage_collection(life: Callable[[Stage], Awaitable[None]]) -> None:
    async with staged() as stage:
        # What the first client has made stays: connections to brokers, say.
        await life(stage)
        await stage.settle()
        before = endpoints()
        for _ in range(CLIENTS):
            await life(stage)
        await stage.settle()
        await stage.until(lambda: endpoints() <= before + 1, "no client that has left")
