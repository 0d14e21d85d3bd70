"""Many tokens at once: their signatures are checked a few in each iteration of the loop."""

import asyncio
import base64
from typing import Any

import pytest

from proxy.auth.providers.signed_token import SignedToken
from proxy.auth.providers.verifying_keys import VerifyingKey
from tests.support.auth.credentials import presenting
from tests.support.auth.tokens import der, ec_key, signed
from tests.support.proxies.proxy_under_test import staged

CROWD = 16
KEYS: dict[str, Any] = {
    "authenticationEnabled": "true",
    "authenticationProviders": "token",
    "tokenPublicKey": "data:;base64," + base64.b64encode(der(ec_key("P-521"))).decode(),
    "tokenPublicAlg": "ES512",
    # Nobody who waits gives up before the test is over.
    "handshakeTimeoutMillis": 120_000,
}


@pytest.mark.threat("wrong-signature-crowd")
async def test_no_iteration_of_the_loop_checks_a_crowd_of_slow_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [0]
    verifies = VerifyingKey.verifies

    def counted(key: VerifyingKey, token: SignedToken) -> bool:
        checks[-1] += 1
        return verifies(key, token)

    async def count() -> None:
        while sum(checks) < CROWD:
            await asyncio.sleep(0)
            checks.append(0)

    monkeypatch.setattr(VerifyingKey, "verifies", counted)
    async with staged(**KEYS) as stage:
        clients = [await stage.client() for _ in range(CROWD)]
        connect = presenting(signed({"sub": "alice"}, "ES512").decode())
        async with asyncio.TaskGroup() as group:
            # All are sent before the loop reads any.
            for client in clients:
                group.create_task(client.send(connect))
            group.create_task(count())
        for client in clients:
            assert (await client.command()).HasField("connected")
        # A check that waited may meet one that finds no other.
        assert max(checks) <= 2


@pytest.mark.threat("wrong-signature-crowd")
async def test_bad_tokens_of_one_address_hold_up_no_client_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = 60
    checked: list[str] = []
    left_at: list[int] = []
    verifies = VerifyingKey.verifies

    def told(key: VerifyingKey, token: SignedToken) -> bool:
        checked.append(str(token.claims["sub"]))
        if checked[-1] == "alice":
            left_at.append(crowd + 1 - len(checked))
        return verifies(key, token)

    monkeypatch.setattr(VerifyingKey, "verifies", told)
    async with staged(**KEYS) as stage:
        strangers = [await stage.client() for _ in range(crowd)]
        alice = await stage.client(source="127.0.0.2")
        bad = presenting((signed({"sub": "mallory"}, "ES512")[:-8] + b"AAAAAAAA").decode())
        good = presenting(signed({"sub": "alice"}, "ES512").decode())
        async with asyncio.TaskGroup() as group:
            for stranger in strangers:
                group.create_task(stranger.send(bad))
        await stage.until(lambda: len(checked) > 0, "a check of the crowd")
        await alice.send(good)
        assert (await alice.command()).HasField("connected")
        # The rest of the crowd still waits: its bad tokens are refused behind hers.
        assert left_at[0] >= crowd // 2
        await stage.until(lambda: len(checked) == crowd + 1, "every check")
