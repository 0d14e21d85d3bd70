"""How soon a new key of an issuer is believed, and how often made-up key ids have the issuer asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from proxy.auth.failures import Reason
from proxy.auth.providers.issuer_client import IssuerFault, Keys
from proxy.auth.providers.issuer_keys import MISSES_A_WINDOW, IssuerKeys
from proxy.auth.providers.verifying_keys import VerifyingKey
from proxy.core.tasks import TaskScope
from tests.support.brokers.played import crash
from tests.support.configured import configured

ISSUER = "https://issuer.example"
WINDOW = 300.0
PART = WINDOW / MISSES_A_WINDOW
KEY = cast(VerifyingKey, object())


class Issuer:
    """Publish the ids of a list, at the time of a clock by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.ids = ["old"]
        self.asked = 0
        self.fails = False
        self.keys: IssuerKeys

    async def fetch(self, _: str) -> Keys:
        self.asked += 1
        await asyncio.sleep(0)
        if self.fails:
            raise IssuerFault(Reason.ERROR_RETRIEVING_PUBLIC_KEY, "ill")
        return dict.fromkeys(self.ids, KEY)

    async def finds(self, key_id: str) -> bool:
        try:
            return await self.keys.key(ISSUER, key_id, 100) is KEY
        except IssuerFault:
            return False


@asynccontextmanager
async def issuer() -> AsyncIterator[Issuer]:
    """Give an issuer whose keys were fetched ten seconds ago."""

    made, scope = Issuer(), TaskScope(crash)
    made.keys = IssuerKeys(configured(), made.fetch, scope.start, lambda: made.now)
    assert await made.finds("old")
    made.now += 10
    try:
        yield made
    finally:
        scope.cancel()
        await scope.emptied()


@pytest.mark.threat("made-up-key-ids")
async def test_a_flood_of_made_up_ids_keeps_a_new_key_out_for_a_part_of_the_window_only() -> None:
    async with issuer() as at:
        for number in range(1000):
            assert not await at.finds(f"junk-{number}")
            at.now += 1 if number < 2 * MISSES_A_WINDOW else 0
        at.ids.append("new")
        began = at.now
        while not await at.finds("new"):
            at.now += 1
            await at.finds(f"junk at {at.now}")
        assert at.now - began <= PART


@pytest.mark.threat("made-up-key-ids")
async def test_made_up_ids_have_the_issuer_asked_a_few_times_a_window() -> None:
    async with issuer() as at:
        for second in range(int(4 * WINDOW)):
            for number in range(3):
                await at.finds(f"junk-{second}-{number}")
            at.now += 1
        assert at.asked <= 1 + 5 * MISSES_A_WINDOW


async def test_an_id_that_is_not_there_leaves_the_misses_to_others() -> None:
    async with issuer() as at:
        for _ in range(int(PART) - 1):
            assert not await at.finds("retired")
            at.now += 1
        assert at.asked == 2
        at.ids.append("new")
        assert await at.finds("new")


async def test_an_id_that_a_failed_request_did_not_find_is_looked_for_again() -> None:
    async with issuer() as at:
        at.fails = True
        assert not await at.finds("new")
        at.fails = False
        at.ids.append("new")
        at.now += 2
        assert await at.finds("new")
