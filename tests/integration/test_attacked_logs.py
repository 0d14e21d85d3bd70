"""What clients can make a proxy write: a log of a process of its own, read as an operator's tools do."""

import stat
import time
from pathlib import Path
from typing import Any

import pytest

from protocol.commands import frame
from protocol.pb import PulsarApi_pb2 as pb
from proxy.config.keys.log_components import COMPONENTS
from tests.integration.test_admin_command import admin
from tests.support.clients.async_client import connect_frame, eventually
from tests.support.proxies.running_proxy import Running, proxy_and_broker
from tests.support.sockets.producer_frames import send_frame

STORM = 200


def shown_topics(running: Running) -> list[Any]:
    """Give the topic of each PRODUCER that the log shows."""
    return [line.get("topic") for line in running.lines("relayed command") if line["command"] == "PRODUCER"]


@pytest.mark.threat("payload-in-log")
async def test_a_log_of_commands_has_neither_payloads_nor_credentials(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path, proxyLogLevel=2) as (running, behind):
        client = await running.client()
        await client.send(
            connect_frame(f"127.0.0.1:{behind.port}", auth_method_name="token", auth_data=b"a secret token")
        )
        assert (await client.command()).type == pb.BaseCommand.CONNECTED
        producer = pb.CommandProducer(topic="persistent://t/n/seen", producer_id=1, request_id=1)
        await client.send(frame(pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=producer)))
        await client.send(send_frame(1, payload=b"a secret message" * 10))
        await eventually(lambda: b"SEND" in running.log.read_bytes(), "a line about the message")
        text = running.log.read_bytes()
        assert b"persistent://t/n/seen" in text
        assert b"secret" not in text


@pytest.mark.threat("tiny-behind-large-frames")
async def test_a_command_with_more_fields_than_a_client_sends_is_shown_but_not_decoded(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path, proxyLogLevel=1) as (running, behind):
        client = await running.client()
        await client.connect(target=f"127.0.0.1:{behind.port}")
        producer = pb.CommandProducer(topic="persistent://t/n/seen", producer_id=1, request_id=1)
        made = pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=producer)
        await client.send(frame(made))
        for _ in range(500):
            made.producer.metadata.add(key="", value="")
        await client.send(frame(made))
        await eventually(lambda: len(shown_topics(running)) == 2, "a line about each")
        assert shown_topics(running) == ["persistent://t/n/seen", None]


@pytest.mark.threat("refusal-log-storm")
async def test_a_storm_of_refusals_is_a_line_a_second(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path) as (running, _):
        began = time.monotonic()
        for _ in range(STORM):
            client = await running.client()
            await client.send(connect_frame("no target at all"))
            await client.rest()
            client.close()
        seconds = time.monotonic() - began
        await eventually(lambda: running.said("client disconnected"), "a line about the refusals")
        assert running.said("client disconnected") <= seconds + 2


@pytest.mark.threat("control-socket-open")
async def test_the_control_socket_is_its_owner_s_alone(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path):
        assert stat.S_IMODE((tmp_path / "control.sock").stat().st_mode) == 0o600


@pytest.mark.threat("hidden-change")
async def test_no_level_of_a_part_of_the_log_hides_what_an_operator_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with proxy_and_broker(tmp_path) as (running, _):
        for part in COMPONENTS:
            code, _, err = await admin(running, capsys, "log-level", "error", "--component", part)
            assert (code, err) == (0, "")
        assert (await admin(running, capsys, "reload"))[0] == 0
        actions = [line["action"] for line in running.lines("admin change")]
        assert actions == ["log-level"] * len(COMPONENTS) + ["reload"]
