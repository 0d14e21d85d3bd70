"""Hosts that a client names to have the proxy dial them: an inner service, a disguise, a name that changes its mind."""

import socket
from collections.abc import Callable
from typing import Any

import pytest

from proxy.core.public_causes import TARGET_TEXT
from tests.support.brokers.raw_broker import raw_broker, silence
from tests.support.clients.async_client import connect_frame
from tests.support.proxies.proxy_under_test import Stage, staged

ELSEWHERE: dict[str, Any] = {"brokerProxyAllowedIPAddresses": "10.0.0.0/8"}


async def refused(stage: Stage, target: str) -> None:
    """Ask for a target: the client is told nothing of why, and the broker that listens there hears of nobody."""
    before = stage.caused("target_refused")
    client = await stage.client()
    await client.send(connect_frame(target))
    assert (await client.last_command()).error.message == TARGET_TEXT, target
    await stage.until(lambda: stage.caused("target_refused") == before + 1, f"a refusal of {target!r}")
    assert stage.broker.record.connections_accepted == 0, target


@pytest.mark.threat("metadata-service")
async def test_a_gateway_asks_no_metadata_service_however_it_is_named() -> None:
    async with staged(proxyRole="gateway") as stage:
        for host in ("169.254.169.254", "[::ffff:169.254.169.254]", "2852039166", "0xa9fea9fe", "[fe80::1]"):
            await refused(stage, f"{host}:6650")


@pytest.mark.threat("address-in-disguise")
async def test_an_address_in_disguise_is_judged_as_the_address_that_it_is() -> None:
    async with staged(**ELSEWHERE) as stage:
        for host in ("127.0.0.1", "127.1", "0177.0.0.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]", "0"):
            await refused(stage, f"{host}:{stage.broker.port}")


@pytest.mark.threat("pattern-ends-early")
async def test_a_pattern_of_hosts_is_held_against_the_whole_name() -> None:
    async with staged(brokerProxyAllowedHostNames="local,*.host,*ocalhos,localhost.*") as stage:
        await refused(stage, f"localhost:{stage.broker.port}")


@pytest.mark.threat("malformed-target")
async def test_a_target_with_more_than_a_host_and_a_port_is_refused_unread() -> None:
    async with staged() as stage:
        here = f"127.0.0.1:{stage.broker.port}"
        for target in (
            f"pulsar://user@{here}", f"pulsar://{here}/path", f"{here},{here}", f"{here}\r\nX: y", f"http://{here}",
            f"pulsar://{here}?x", f"{here}#x", f" {here}", f"pulsar:/{here}", f"127.0.0.1:{stage.broker.port:06}x",
        ):  # fmt: skip
            await refused(stage, target)


@pytest.mark.threat("name-of-inner-address")
async def test_a_name_leads_only_to_those_of_its_addresses_that_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = socket.getaddrinfo

    def both(host: Any, *rest: Any, **more: Any) -> Any:
        if host != "rebound.example":
            return real(host, *rest, **more)
        return [*real("127.0.0.2", *rest, **more), *real("127.0.0.1", *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    async with (
        staged(brokerProxyAllowedIPAddresses="127.0.0.1") as stage,
        # An inner service at the same port of another address.
        raw_broker(silence, host="127.0.0.2", port=stage.broker.port) as inner,
    ):
        client = await stage.client()
        await client.connect(target=f"rebound.example:{stage.broker.port}")
        assert stage.broker.record.connections_accepted == 1
        assert inner.peers == []
