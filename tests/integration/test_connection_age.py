"""Connections of an age end when they are idle, so that a load balancer may spread their clients anew."""

from protocol.command_type import CommandType
from proxy.clients.sessions import AGE_GRACE_SECONDS, AGE_JITTER
from tests.support.clients.async_client import PING
from tests.support.proxies.proxy_under_test import TOPICS, Stage, namespace, staged

AGE = 40
SURELY = AGE * (1 + AGE_JITTER) + 1


async def later(stage: Stage, seconds: float) -> None:
    """Let the clock of all clients show a later time for one look."""
    await stage.proxy.sessions.tick(stage.proxy.loop.time() + seconds)


async def test_an_idle_client_is_closed_when_its_time_is_over_and_not_before() -> None:
    async with staged(maxConnectionAgeSeconds=5 * AGE) as stage:
        client = await stage.connected()
        # 10 s are far above what a busy machine takes from a handshake to a look.
        await later(stage, 5 * AGE * (1 - AGE_JITTER) - 10)
        await client.ping()
        await later(stage, 5 * SURELY)
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("connection_age") == 1, "an end for age")


async def test_without_the_key_no_client_is_too_old() -> None:
    async with staged() as stage:
        client = await stage.connected()
        await later(stage, 3_000_000)
        await client.ping()


async def test_a_client_with_a_request_under_way_is_closed_behind_the_answer() -> None:
    async with staged(maxConnectionAgeSeconds=AGE) as stage:
        gate = stage.broker.script.hold(CommandType.GET_TOPICS_OF_NAMESPACE)
        client = await stage.connected()
        await client.ask_topics(namespace(0))
        await stage.until(lambda: stage.outstanding == 1, "a question")
        await later(stage, SURELY)
        await client.ping()
        gate.set()
        answer = await client.answer()
        assert len(answer.getTopicsOfNamespaceResponse.topics) == TOPICS
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("connection_age") == 1, "an end for age")


async def test_a_client_in_the_middle_of_a_frame_is_given_time_to_finish_it() -> None:
    async with staged(maxConnectionAgeSeconds=AGE) as stage:
        client = await stage.connected()
        session = stage.session_of(client)
        before = session.received_bytes
        await client.send(PING[:5])
        await stage.until(lambda: session.received_bytes > before, "half a frame")
        await later(stage, SURELY)
        await client.send(PING[5:])
        assert await client.receive(len(PING))
        assert await client.rest() == b""


async def test_a_client_that_is_never_idle_is_read_no_more_and_closed_behind_its_answers() -> None:
    async with staged(maxConnectionAgeSeconds=AGE) as stage:
        gate = stage.broker.script.hold(CommandType.GET_TOPICS_OF_NAMESPACE)
        client = await stage.connected()
        await client.ask_topics(namespace(0))
        await stage.until(lambda: stage.outstanding == 1, "a question")
        await later(stage, SURELY)
        await later(stage, SURELY + AGE_GRACE_SECONDS)
        assert not stage.session_of(client).reading
        gate.set()
        assert len((await client.answer()).getTopicsOfNamespaceResponse.topics) == TOPICS
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("connection_age") == 1, "an end for age")


async def test_a_relay_is_closed_when_nothing_moves_and_keeps_its_age_from_before() -> None:
    async with staged(maxConnectionAgeSeconds=AGE) as stage:
        client = await stage.relayed()
        await later(stage, SURELY)
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("connection_age") == 1, "an end for age")
        await stage.until(lambda: not stage.broker.connections, "the broker's side closed")
