"""Direct mode's first step: which brokers a client may be joined to, and what it is told when it may not."""

from typing import Any

import pytest

from protocol.command_type import CommandType
from protocol.errors import ServerError
from proxy.brokers.handshake import BrokerHandshake
from proxy.core.errors import DisconnectCause
from tests.support.brokers.embedded.script import Failure
from tests.support.brokers.raw_broker import CONNECTED, raw_broker, silence
from tests.support.clients.async_client import AsyncClient, connect_frame
from tests.support.patience import patient_millis
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.proxies.targets import refused_target
from tests.support.sockets.ports import free_port


async def refused(stage: Stage, target: str, cause: str) -> str:
    """See that a target is refused for `cause`, and give the log's detail."""
    detail = await refused_target(stage, target)
    await stage.until(lambda: stage.caused(cause) == 1, f"one end for {cause}")
    return detail


@pytest.mark.threat("any-host-as-broker")
@pytest.mark.parametrize(
    ("target", "keys", "says"),
    [
        ("127.0.0.1:9999", {"brokerProxyAllowedTargetPorts": "6650"}, "brokerProxyAllowedTargetPorts"),
        ("127.0.0.1:9999", {"brokerProxyAllowedHostNames": "*.example.org"}, "brokerProxyAllowedHostNames"),
        ("localhost:9999", {"brokerProxyAllowedIPAddresses": "10.0.0.0/8"}, "brokerProxyAllowedIPAddresses"),
        ("[::ffff:127.0.0.1]:9999", {"brokerProxyAllowedIPAddresses": "10.0.0.0/8"}, "brokerProxyAllowedIPAddresses"),
        ("127.0.0.1:port", {}, "is not host:port"),
        ("pulsar+ssl://127.0.0.1:6651", {}, "asks for TLS"),
        ("no-such-host.invalid:6650", {}, "cannot be resolved"),
    ],
)
async def test_a_target_that_is_not_allowed_or_none_is_refused(target: str, keys: dict[str, Any], says: str) -> None:
    async with staged(**keys) as stage:
        detail = await refused(stage, target, "target_refused")
        assert detail.startswith("target broker cannot be validated: ")
        assert says in detail
        assert stage.broker.record.connections_accepted == 0


@pytest.mark.parametrize(
    "form", ["127.0.0.1:{}", "pulsar://127.0.0.1:{}", "pulsar://127.0.0.1:{}/", "localhost:{}", ""]
)
async def test_a_target_may_be_named_in_every_form_clients_use(form: str) -> None:
    async with staged() as stage:
        client = await stage.client()
        connected = await client.connect(target=form.format(stage.broker.port))
        assert connected.max_message_size == 5 * 1024 * 1024
        assert connected.feature_flags.supports_topic_watchers
        assert stage.broker.record.commands(CommandType.CONNECT)[0].connect.proxy_version


async def test_a_broker_that_refuses_tcp_is_named_in_the_log() -> None:
    async with staged() as stage:
        port = free_port()
        detail = await refused(stage, f"127.0.0.1:{port}", "broker_unreachable")
        assert detail == f"cannot connect to broker 127.0.0.1:{port}: connection refused"


async def test_a_broker_that_does_not_answer_connect_is_given_up_after_the_timeout() -> None:
    # The same clock bounds the connect before.
    async with raw_broker(silence) as broker, staged(brokerProxyConnectTimeoutMs=patient_millis(150)) as stage:
        detail = await refused(stage, f"127.0.0.1:{broker.port}", "broker_silent")
        assert "brokerProxyConnectTimeoutMs" in detail
        await stage.until(lambda: broker.peers[0].sock.fileno() == -1, "the broker's side closed")


async def test_a_broker_that_refuses_connect_has_its_code_and_text_passed_on() -> None:
    async with staged() as stage:
        stage.broker.script.refuse_connect = Failure(ServerError.AuthenticationError, "no such user")
        client = await stage.client()
        await client.send(connect_frame(f"127.0.0.1:{stage.broker.port}"))
        error = (await client.last_command()).error
        assert (error.error, error.message) == (ServerError.AuthenticationError, "no such user")
        await stage.until(lambda: stage.caused("broker_refused") == 1, "a broker that refused")


@pytest.mark.parametrize(
    ("sent", "stays"),
    [
        (b"", False),
        (CONNECTED[:10], False),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", True),
        (CONNECTED[:8] + b"\xff" * (len(CONNECTED) - 8), True),
        (bytes(32), True),
    ],
    ids=["closes at once", "closes in mid-frame", "HTTP", "no protobuf", "zeros"],
)
async def test_a_target_that_closes_before_connected_or_is_no_broker_is_given_up(sent: bytes, stays: bool) -> None:
    async def serve(peer: AsyncClient) -> None:
        await peer.frame()
        await peer.send(sent)
        if stays:
            await peer.rest()

    async with raw_broker(serve) as broker, staged() as stage:
        detail = await refused(stage, f"127.0.0.1:{broker.port}", "broker_closed")
        assert f"127.0.0.1:{broker.port}" in detail


async def test_a_broker_lost_between_connected_and_the_relay_ends_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    # What the loop may do when CONNECTED and the hang-up arrive in one turn, other hang-ups being dispatched between.
    converse = BrokerHandshake.converse

    async def converse_then_lost(handshake: BrokerHandshake, respond: Any) -> Any:
        connected = await converse(handshake, respond)
        handshake.abort(DisconnectCause.BROKER_CLOSED)
        return connected

    monkeypatch.setattr(BrokerHandshake, "converse", converse_then_lost)
    async with staged() as stage:
        await refused(stage, f"127.0.0.1:{stage.broker.port}", "broker_closed")
