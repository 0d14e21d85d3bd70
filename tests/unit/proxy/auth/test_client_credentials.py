"""How long credentials count, and how long a check of them may take."""

import asyncio
import io
from typing import Any, cast

import pytest

from proxy.auth.client_authentication import CheckSettings, ClientAuthentication
from proxy.auth.client_credentials import ClientCredentials, Look
from proxy.auth.identity import AuthData, Authenticated, AuthenticationFailed
from proxy.core.log import open_log
from tests.support.loops.loops import run_virtual

NOON, INTERVAL = 1000.0, 60.0
PRESENTED = AuthData("token", b"first")


def credentials(expires_at: float | None = NOON, *, forward: bool = True, renewable: bool = True) -> ClientCredentials:
    return ClientCredentials(Authenticated("alice", expires_at), PRESENTED, forward=forward, renewable=renewable)


def test_an_answer_has_one_interval() -> None:
    given = credentials()
    given.asked(10.0)
    assert given.look(NOON, 69.4, INTERVAL) is Look.VALID
    # A look that comes a little early is the one for this interval.
    assert given.look(NOON, 69.6, INTERVAL) is Look.UNANSWERED


def test_who_was_asked_for_a_broker_must_answer_before_anything_expires() -> None:
    given = credentials(None)
    given.asked(10.0)
    assert given.look(NOON, 70.0, INTERVAL) is Look.UNANSWERED


def test_an_answer_that_is_being_verified_is_not_late() -> None:
    given = credentials()
    given.asked(10.0)
    assert given.answered()
    assert given.under_way
    assert given.look(NOON, 1000.0, INTERVAL) is Look.VALID


def test_nothing_shows_what_was_presented() -> None:
    assert "first" not in repr(credentials().principal)
    assert "first" not in str(credentials().principal)


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
        authentication = ClientAuthentication(loop, cast(Any, hanging), settings, cast(Any, None), log, lambda: 0.0)
        waited = await asyncio.gather(*(given_up(authentication) for _ in range(5)))
        assert waited == [pytest.approx(VERIFY_SECONDS, abs=0.5)] * 5
        assert hanging.begun == hanging.left >= settings.at_once
        assert authentication.under_way == 0

    run_virtual(main())
