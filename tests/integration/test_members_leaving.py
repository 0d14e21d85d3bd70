"""Members of a group that leave, in every stage of its life: what one of them does is no other's business."""

from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.support.clients.async_client import AsyncClient
from tests.support.proxies.proxy_under_test import TIGHT, TOPICS, Stage, namespace, staged
from tests.support.proxies.shared_lists import (
    all_have_lists,
    being_written,
    waiting_for_direct_memory,
    waiting_for_heap,
    waiting_for_its_predecessor,
    waiting_for_the_broker,
    waiting_to_grow,
)

# Both engines write lists that many share.
pytestmark = pytest.mark.usefixtures("relay_engine")

Cut = Callable[[AsyncClient], None]
cuts = pytest.mark.parametrize(
    "cut", [AsyncClient.close, AsyncClient.reset, AsyncClient.fin], ids=["FIN", "RST", "half-close"]
)
Wait = Callable[[Stage], Awaitable[list[AsyncClient]]]
stages = pytest.mark.parametrize(
    "wait",
    [
        waiting_for_its_predecessor,
        waiting_for_heap,
        waiting_for_the_broker,
        waiting_to_grow,
        waiting_for_direct_memory,
        being_written,
    ],
)


def others_go_on(stage: Stage) -> None:
    """Take everything away that holds the group up."""
    for gate in stage.broker.script.gates.values():
        gate.set()
    stage.broker.script.gates.clear()


async def drained(stage: Stage, but: Sequence[AsyncClient]) -> None:
    for client in list(stage.clients):
        if client not in but:
            client.close()


@cuts
@pytest.mark.parametrize("leaving", [0, 1], ids=["the payer", "another"])
@stages
async def test_a_member_that_leaves_costs_the_others_nothing(wait: Wait, leaving: int, cut: Cut) -> None:
    async with staged(**TIGHT) as stage:
        members = await wait(stage)
        questions, sessions = stage.broker.record.topic_questions, len(stage.proxy.sessions)
        cut(members[leaving])
        await stage.until(lambda: len(stage.proxy.sessions) == sessions - 1, "one session less")
        staying = [member for member in members if member is not members[leaving]]
        others_go_on(stage)
        await drained(stage, staying)
        await all_have_lists(staying)
        asked_yet = wait in (waiting_for_its_predecessor, waiting_for_heap)
        assert stage.broker.record.topic_questions == questions + asked_yet


@stages
async def test_the_last_member_to_leave_gives_everything_back_but_the_question(wait: Wait) -> None:
    async with staged(**TIGHT) as stage:
        members = await wait(stage)
        sessions = len(stage.proxy.sessions)
        for member in members:
            member.reset()
        await stage.until(lambda: len(stage.proxy.sessions) == sessions - 3, "three sessions less")
        for client in list(stage.clients):
            client.close()
        kept = {"outstanding questions", "questions to brokers"}
        await stage.until(lambda: not any(n for book, n in stage.books().items() if book not in kept), "nothing held")
        others_go_on(stage)
        await stage.until(stage.settled, "the answers passed over")
        assert len((await (await stage.connected()).topics(namespace(0))).topics) == TOPICS
