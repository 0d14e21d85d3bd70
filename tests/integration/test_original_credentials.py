"""Brokers that want the credentials of a client, too (authenticateOriginalAuthData), and whose fault a refusal is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.auth.credentials import presenting
from tests.support.auth.tokens import SECRET, data_url, signed
from tests.support.brokers.judging_broker import JudgingBroker
from tests.support.brokers.raw_broker import raw_broker
from tests.support.clients.async_client import AsyncClient
from tests.support.proxies.counted import counted_by
from tests.support.proxies.proxy_under_test import TOPIC, Stage, kept_log, staged

PROXY, ALICE = (signed({"sub": role}).decode() for role in ("proxy", "alice"))
# No more than what a drop-in for a cluster with tokens must say.
MINIMAL: dict[str, Any] = {
    "authenticationEnabled": "true",
    "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    "tokenSecretKey": data_url(SECRET),
    "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
    "brokerClientAuthenticationParameters": f"token:{PROXY}",
}
KEEPS: dict[str, Any] = {"forwardAuthorizationCredentials": "false"}
PROBED: dict[str, Any] = {"brokerIdleProbeIntervalMillis": 3_600_000}


@asynccontextmanager
async def behind(broker: JudgingBroker, **keys: Any) -> AsyncIterator[Stage]:
    async with raw_broker(broker.serve) as listening:
        broker.url = f"pulsar://127.0.0.1:{listening.port}"
        async with staged(broker_port=listening.port, **{**MINIMAL, **keys}) as stage:
            yield stage


async def asked(stage: Stage, target: str | None = None) -> AsyncClient:
    """Return a client of alice that has sent CONNECT."""
    client = await stage.client()
    await client.send(presenting(ALICE, target=target))
    return client


@pytest.mark.parametrize("original", [True, False])
async def test_a_minimal_configuration_with_tokens_works_in_front_of_brokers_of_either_default(original: bool) -> None:
    broker = JudgingBroker(own={PROXY.encode()}, clients={ALICE}, authenticates_original=original)
    async with behind(broker, **PROBED) as stage:
        await stage.until(lambda: stage.proxy.broker_side.brokers.states()["up"] == 1, "a broker that is up")
        looking = await asked(stage)
        assert (await looking.command()).type == pb.BaseCommand.CONNECTED
        assert (await looking.lookup(TOPIC)).brokerServiceUrl == broker.url
        relayed = await asked(stage, broker.url.removeprefix("pulsar://"))
        assert (await relayed.command()).type == pb.BaseCommand.CONNECTED
    assert {each.original_auth_data for each in broker.connects if each.original_principal} == {ALICE}


@pytest.mark.parametrize("keys", [{}, KEEPS])
async def test_a_broker_that_refuses_a_probe_for_its_credentials_is_refusing_and_still_asked(
    keys: dict[str, Any],
) -> None:
    broker = JudgingBroker(clients={ALICE})
    async with behind(broker, **keys, **PROBED) as stage:
        brokers = stage.proxy.broker_side.brokers
        await stage.until(lambda: any(counted_by(stage.proxy.counters, "broker_probes").values()), "a probe")
        assert brokers.states() == {"unknown": 0, "refusing": 1, "up": 0, "trial": 0, "down": 0}
        client = await asked(stage)
        assert (await client.command()).type == pb.BaseCommand.CONNECTED
        answer = await client.lookup(TOPIC)
        assert (answer.error, answer.message) == (ServerError.AuthenticationError, "Failed to authenticate")
        assert brokers.states()["refusing"] == 1


OWN_ALONE = ("broker refuses the credentials of the proxy", "brokerClientAuthenticationPlugin")
EITHER = "broker refuses the credentials of the proxy, or those of its client, which were"
KEYS = (
    "brokerClientAuthenticationPlugin; forwardAuthorizationCredentials here, authenticateOriginalAuthData at the broker"
)


@pytest.mark.parametrize(
    ("broker", "keys", "line"),
    [
        (JudgingBroker(clients={ALICE}), PROBED, OWN_ALONE),
        (JudgingBroker(own={PROXY.encode()}), {}, (f"{EITHER} sent", KEYS)),
        (JudgingBroker(own={PROXY.encode()}, clients={ALICE}), KEEPS, (f"{EITHER} not sent", KEYS)),
    ],
)
@pytest.mark.parametrize("relayed", [True, False])
async def test_the_log_names_the_keys_of_both_sides_where_a_broker_refuses_a_client(
    monkeypatch: pytest.MonkeyPatch, broker: JudgingBroker, keys: dict[str, Any], line: tuple[str, str], relayed: bool
) -> None:
    log = kept_log(monkeypatch, "warning")

    def told() -> list[tuple[str, str]]:
        return [(each["event"], each.get("change", "")) for each in log.said if "broker" in each["event"]]

    async with behind(broker, **keys) as stage:
        if keys is not PROBED:
            client = await asked(stage, broker.url.removeprefix("pulsar://") if relayed else None)
            kind = (await client.command()).type
            assert kind == (pb.BaseCommand.ERROR if relayed else pb.BaseCommand.CONNECTED)
            if not relayed:
                await client.lookup(TOPIC)
        await stage.until(lambda: told(), "a line of the log")
        # No line says of a broker that has answered that nobody can reach it.
        assert told() == [line]
    assert ALICE not in str(log.said)
