"""A crowd of tokens is checked a few in each iteration of the loop, however many come at once."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from proxy.auth.failures import CredentialsRefused
from proxy.auth.providers import token
from proxy.auth.providers.token import TokenProvider
from proxy.auth.providers.verifying_keys import VerifyingKey
from proxy.auth.signature_turns import SignatureTurns
from proxy.core.loop_budget import LoopBudget
from tests.support.auth.tokens import NOW, data_url, der, key_for, signed
from tests.support.configured import configured
from tests.support.loops.loops import run_virtual

CROWD = 20
HOME = "192.0.2.1"


class Desk:
    """A provider of tokens, and how often each iteration of the loop has called `counted`."""

    def __init__(
        self, algorithm: str, monkeypatch: pytest.MonkeyPatch, of: Any = VerifyingKey, counted: str = "verifies"
    ) -> None:
        loop = asyncio.get_running_loop()
        self.budget = LoopBudget(loop, lambda: 0.0)
        self.turns = SignatureTurns(loop, self.budget)
        self.checks = [0]
        self.checked: list[str] = []
        settings = configured(tokenPublicKey=data_url(der(key_for(algorithm))), tokenPublicAlg=algorithm)
        self.provider = TokenProvider(settings, lambda: NOW, self.turns)
        self.good = signed({"sub": "alice"}, algorithm)
        self.bad = self.good[:-8] + b"AAAAAAAA"
        called = getattr(of, counted)

        def counting(*arguments: object) -> object:
            self.checks[-1] += 1
            return called(*arguments)

        monkeypatch.setattr(of, counted, counting)

    async def present(self, given: bytes, network: str = HOME) -> None:
        with suppress(CredentialsRefused):
            await self.provider.authenticate(given, None, network)
        # In the step of the check.
        self.checked.append(network)

    async def most_of_a_crowd(self, given: bytes) -> int:
        """Let a crowd come at once; return how many were checked in an iteration at most."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CROWD):
                group.create_task(self.present(given))
            while len(self.checked) < CROWD:
                await asyncio.sleep(0)
                self.checks.append(0)
        assert (sum(self.checks), len(self.turns)) == (CROWD, 0)
        return max(self.checks)


@pytest.mark.threat("wrong-signature-crowd")
@pytest.mark.parametrize("good", [True, False])
@pytest.mark.parametrize(("algorithm", "most"), [("ES512", 1), ("ES384", 1), ("ES256", 10), ("RS256", 10)])
def test_few_signatures_are_checked_in_one_iteration(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, most: int, good: bool
) -> None:
    async def main() -> None:
        desk = Desk(algorithm, monkeypatch)
        assert await desk.most_of_a_crowd(desk.good if good else desk.bad) <= most

    run_virtual(main())


@pytest.mark.threat("large-credentials-kept")
@pytest.mark.parametrize(("size", "most"), [(60 * 1024, 1), (10 * 1024, 10)])
def test_few_large_tokens_are_parsed_in_one_iteration(monkeypatch: pytest.MonkeyPatch, size: int, most: int) -> None:
    async def main() -> None:
        # One that waited may meet one that finds no other.
        assert await Desk("ES256", monkeypatch, token, "parse_token").most_of_a_crowd(b"x" * size) <= most + 1

    run_virtual(main())


def test_a_check_is_charged_to_the_loop_and_finds_no_wait_when_it_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        desk = Desk("ES512", monkeypatch)
        assert not desk.budget.spent()
        with pytest.raises(StopIteration):
            desk.present(desk.good).send(None)
        assert desk.checks == [1]
        assert desk.budget.spent()

    run_virtual(main())


@pytest.mark.threat("wrong-signature-crowd")
def test_bad_tokens_of_one_address_hold_up_no_client_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        desk = Desk("ES512", monkeypatch)
        async with asyncio.TaskGroup() as group:
            for _ in range(CROWD):
                group.create_task(desk.present(desk.bad))
            group.create_task(desk.present(desk.good, "192.0.2.2"))
        assert desk.checked.index("192.0.2.2") <= 2

    run_virtual(main())


def test_clients_that_have_left_take_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        desk = Desk("ES512", monkeypatch)
        async with asyncio.TaskGroup() as group:
            crowd = [group.create_task(desk.present(desk.good)) for _ in range(CROWD)]
            await asyncio.sleep(0)
            for each in crowd[1:-1]:
                each.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
            assert crowd[-1].done()
        assert desk.checks == [2]

    run_virtual(main())
