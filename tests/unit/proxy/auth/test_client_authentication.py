"""A check of credentials that has no end is given up in its time, whoever it waits for."""

import asyncio
import io
from typing import Any, cast

import pytest

from proxy.auth.client_authentication import CheckSettings, ClientAuthentication
from proxy.auth.identity import AuthData, Authenticated, AuthenticationFailed
from proxy.core.log import open_log
from tests.support.loops.loops import run_virtual

VERIFY_SECONDS = 7.0
ALICE = AuthData("token", b"alice")


class Hanging:
    """Never comes to a verdict; `turns` tells whether that is work of the proxy's own."""

    def __init__(self, *, turns: bool) -> None:
        self._turns = turns
        self.begun = 0
        self.left = 0

    def user_to_check(self, method: str, data: bytes) -> str | None:
        return "alice" if self._turns else None

    async def authenticate(self, method: str, data: bytes, certificate: bytes | None, network: str) -> Authenticated:
        self.begun += 1
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.left += 1
        raise AssertionError("nobody ends it but by leaving")


async def given_up(authentication: ClientAuthentication) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(AuthenticationFailed, match="credentials could not be checked in time"):
        async with asyncio.timeout(100 * VERIFY_SECONDS):
            await authentication.verify(ALICE, None, "192.0.2.1:1")
    return loop.time() - began


@pytest.mark.parametrize("turns", [False, True])
def test_a_check_that_hangs_and_those_behind_it_end_in_their_time_and_hold_nothing(turns: bool) -> None:
    async def main() -> None:
        hanging, log = Hanging(turns=turns), open_log("debug", "json", io.BytesIO())
        settings = CheckSettings(
            refresh_seconds=60.0, forward=False, passwords=False, at_once=2, verify_seconds=VERIFY_SECONDS
        )
        loop = asyncio.get_running_loop()
        authentication = ClientAuthentication(loop, hanging, settings, cast(Any, None), log, lambda: 0.0)
        waited = await asyncio.gather(*(given_up(authentication) for _ in range(5)))
        assert waited == [pytest.approx(VERIFY_SECONDS, abs=0.5)] * 5
        assert hanging.begun == hanging.left >= settings.at_once
        assert authentication.under_way == 0

    run_virtual(main())
