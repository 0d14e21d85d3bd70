"""A crowd of tokens is checked a few in each iteration of the loop, however many come at once."""

import asyncio
import base64
from contextlib import suppress

import pytest
from joserfc.jwk import RSAKey

from proxy.auth.failures import CredentialsRefused
from proxy.auth.providers import verifying_keys
from proxy.auth.providers.signed_token import SignedToken
from proxy.auth.providers.token import TokenProvider
from proxy.auth.providers.verifying_keys import VerifyingKey
from proxy.auth.settings import TokenSettings
from proxy.auth.signature_turns import SignatureTurns
from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget
from tests.support.auth.tokens import NOW, der, key_for, signed
from tests.support.loops.loops import run_virtual

CROWD = 20


class Desk:
    """A provider of tokens, and the number of signatures that each iteration of the loop has checked."""

    def __init__(self, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.budget = LoopBudget(loop, lambda: 0.0)
        self.turns = SignatureTurns(loop, self.budget)
        self.checks = [0]
        key = "data:;base64," + base64.b64encode(der(key_for(algorithm))).decode()
        settings = TokenSettings(public_key=key, public_alg=algorithm)
        self.provider = TokenProvider(settings, lambda: NOW, self.turns)
        self.algorithm = algorithm
        verifies = VerifyingKey.verifies

        def counted(key: VerifyingKey, token: SignedToken) -> bool:
            self.checks[-1] += 1
            return verifies(key, token)

        monkeypatch.setattr(VerifyingKey, "verifies", counted)

    async def present(self, *, good: bool) -> None:
        token = signed({"sub": "alice"}, self.algorithm)
        with suppress(CredentialsRefused):
            await self.provider.authenticate(token if good else token[:-8] + b"AAAAAAAA", None)

    async def count(self) -> None:
        """Count the checks of each iteration apart."""
        while sum(self.checks) < CROWD:
            await asyncio.sleep(0)
            self.checks.append(0)


@pytest.mark.parametrize("good", [True, False])
@pytest.mark.parametrize(("algorithm", "most"), [("ES512", 1), ("ES384", 1), ("ES256", 10), ("RS256", 10)])
def test_few_signatures_are_checked_in_one_iteration(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, most: int, good: bool
) -> None:
    async def main() -> None:
        desk = Desk(algorithm, monkeypatch)
        async with asyncio.TaskGroup() as group:
            group.create_task(desk.count())
            for _ in range(CROWD):
                group.create_task(desk.present(good=good))
        assert sum(desk.checks) == CROWD
        assert max(desk.checks) <= most
        assert not len(desk.turns)

    run_virtual(main())


def test_a_check_is_charged_to_the_loop_and_finds_no_wait_when_it_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        desk = Desk("ES512", monkeypatch)
        assert not desk.budget.spent()
        with pytest.raises(StopIteration):
            desk.present(good=True).send(None)
        assert desk.checks == [1]
        assert desk.budget.spent()

    run_virtual(main())


def test_clients_that_have_left_take_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        desk = Desk("ES512", monkeypatch)
        async with asyncio.TaskGroup() as group:
            crowd = [group.create_task(desk.present(good=True)) for _ in range(CROWD)]
            await asyncio.sleep(0)
            for each in crowd[1:-1]:
                each.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
            assert crowd[-1].done()
        assert desk.checks == [2]

    run_virtual(main())


def test_a_large_rsa_key_is_slow_and_a_usual_one_is_not() -> None:
    found = [
        verifying_keys.public_key(der(RSAKey.generate_key(bits)), "RSA").seconds > ITERATION_SECONDS
        for bits in (2048, 4096)
    ]
    assert found == [False, True]
