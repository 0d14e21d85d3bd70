"""A crowd of tokens is checked a few in each iteration of the loop, however many come at once."""

import asyncio
import base64
from contextlib import suppress

import pytest
from joserfc.jwk import RSAKey

from proxy.auth.failures import CredentialsRefused
from proxy.auth.providers import token, verifying_keys
from proxy.auth.providers.signed_token import SignedToken, parse_token
from proxy.auth.providers.token import TokenProvider
from proxy.auth.providers.verifying_keys import VerifyingKey
from proxy.auth.settings import TokenSettings
from proxy.auth.signature_turns import SignatureTurns
from proxy.core.addresses import host_network
from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget
from tests.support.auth.tokens import NOW, der, key_for, signed
from tests.support.loops.loops import run_virtual

CROWD = 20
# A check that has its turn already, one that gets it in the iteration in which the client comes, and one more.
MOST_BEFORE = 3


class Desk:
    """A provider of tokens, and the number of signatures that each iteration of the loop has checked."""

    def __init__(self, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.budget = LoopBudget(loop, lambda: 0.0)
        self.turns = SignatureTurns(loop, self.budget)
        self.checks = [0]
        self.checked: list[str] = []
        key = "data:;base64," + base64.b64encode(der(key_for(algorithm))).decode()
        settings = TokenSettings(public_key=key, public_alg=algorithm)
        self.provider = TokenProvider(settings, lambda: NOW, self.turns)
        self.algorithm = algorithm
        verifies = VerifyingKey.verifies

        def counted(key: VerifyingKey, token: SignedToken) -> bool:
            self.checks[-1] += 1
            return verifies(key, token)

        monkeypatch.setattr(VerifyingKey, "verifies", counted)

    async def present(self, *, good: bool, network: str = "192.0.2.1") -> None:
        given = signed({"sub": "alice"}, self.algorithm)
        with suppress(CredentialsRefused):
            await self.provider.authenticate(given if good else given[:-8] + b"AAAAAAAA", None, network)
        # In the step of the check.
        self.checked.append(network)

    async def count(self) -> None:
        """Count the checks of each iteration apart."""
        while sum(self.checks) < CROWD:
            await asyncio.sleep(0)
            self.checks.append(0)


@pytest.mark.threat("wrong-signature-crowd")
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


async def _until_admitted(desk: Desk, client: str, crowd: list[str]) -> int:
    """Let a crowd with bad tokens come, and then a client; return how many were checked before the client was."""
    async with asyncio.TaskGroup() as group:
        for network in crowd:
            group.create_task(desk.present(good=False, network=network))
        for _ in range(3):
            await asyncio.sleep(0)
        before = len(desk.checked)
        group.create_task(desk.present(good=True, network=client))
    assert (len(desk.checked), len(desk.turns)) == (len(crowd) + 1, 0)
    assert (desk.turns._lanes, len(desk.turns._networks)) == ({}, 0)
    return desk.checked.index(client) - before


HOME = "192.0.2.1"
OF_ONE_SITE = [host_network(f"2001:db8:1:{number:x}::1") for number in range(CROWD)]


@pytest.mark.threat("wrong-signature-crowd")
@pytest.mark.parametrize(
    ("client", "crowd"),
    [
        (HOME, ["192.0.2.66"] * CROWD),
        (HOME, OF_ONE_SITE),
        (host_network("2001:db8:1:ffff::1"), [OF_ONE_SITE[0]] * CROWD),
    ],
    ids=["of an address", "of a site", "of the own site"],
)
def test_a_crowd_of_another_network_delays_a_client_by_one_check(
    monkeypatch: pytest.MonkeyPatch, client: str, crowd: list[str]
) -> None:
    async def main() -> None:
        assert await _until_admitted(Desk("ES512", monkeypatch), client, crowd) <= MOST_BEFORE

    run_virtual(main())


def test_the_tokens_of_a_network_are_checked_in_the_order_of_their_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        desk = Desk("ES512", monkeypatch)
        checked: list[int] = []

        async def present(number: int) -> None:
            await desk.present(good=True)
            checked.append(number)

        await asyncio.gather(*map(present, range(CROWD)))
        assert checked == list(range(CROWD))

    run_virtual(main())


def test_clients_of_a_network_that_have_left_cost_their_network_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        desk = Desk("ES512", monkeypatch)
        async with asyncio.TaskGroup() as group:
            crowd = [group.create_task(desk.present(good=False, network="192.0.2.66")) for _ in range(CROWD)]
            others = [group.create_task(desk.present(good=False)) for _ in range(CROWD)]
            await asyncio.sleep(0)
            for each in crowd[1:-1]:
                each.cancel()
            for _ in range(6):
                await asyncio.sleep(0)
            # One of the others at most had its turn before.
            assert crowd[-1].done()
            assert not others[-1].done()

    run_virtual(main())


def test_a_large_rsa_key_is_slow_and_a_usual_one_is_not() -> None:
    found = [
        verifying_keys.public_key(der(RSAKey.generate_key(bits)), "RSA").seconds > ITERATION_SECONDS
        for bits in (2048, 4096)
    ]
    assert found == [False, True]


@pytest.mark.threat("large-credentials-kept")
@pytest.mark.parametrize(("size", "most"), [(60 * 1024, 1), (10 * 1024, 10)])
def test_few_large_tokens_are_parsed_in_one_iteration(monkeypatch: pytest.MonkeyPatch, size: int, most: int) -> None:
    async def main() -> None:
        desk = Desk("ES256", monkeypatch)
        parsed = [0]

        def counted(data: bytes) -> SignedToken:
            parsed[-1] += 1
            return parse_token(data)

        async def count() -> None:
            while sum(parsed) < CROWD:
                await asyncio.sleep(0)
                parsed.append(0)

        async def present() -> None:
            with suppress(CredentialsRefused):
                await desk.provider.authenticate(b"x" * size, None, "192.0.2.1")

        monkeypatch.setattr(token, "parse_token", counted)
        async with asyncio.TaskGroup() as group:
            group.create_task(count())
            for _ in range(CROWD):
                group.create_task(present())
        # One that waited may meet one that finds no other.
        assert max(parsed) <= most + 1

    run_virtual(main())
