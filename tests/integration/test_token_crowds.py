"""Many tokens at once: their signatures are checked a few in each iteration of the loop."""

import asyncio
import base64

import pytest

from proxy.auth.providers.signed_token import SignedToken
from proxy.auth.providers.verifying_keys import VerifyingKey
from tests.support.auth.credentials import presenting
from tests.support.auth.tokens import der, ec_key, signed
from tests.support.proxies.proxy_under_test import staged

CROWD = 16


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
    key = base64.b64encode(der(ec_key("P-521"))).decode()
    async with staged(
        authenticationEnabled="true",
        authenticationProviders="token",
        tokenPublicKey=f"data:;base64,{key}",
        tokenPublicAlg="ES512",
    ) as stage:
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
