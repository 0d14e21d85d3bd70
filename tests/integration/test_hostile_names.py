"""Names that clients choose, from the wire to everything that an operator reads: events, log, metrics and `top`."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from protocol.commands import frame
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.app.metrics.prometheus import ProxyMetrics
from proxy.auth.identity import Authenticated
from proxy.cli.admin.terminal_text import plain, width
from proxy.cli.top.screen import render
from proxy.core.log import open_log
from tests.support.clients.async_client import topics_frame
from tests.support.proxies import proxy_under_test
from tests.support.proxies.proxy_under_test import staged
from tests.unit.eventlog.parts import read_events

NAMES = [
    "\x1b[2J\x1b[31mred", 'a"\n{"seq":1}\n', "\r\nHTTP/1.1 200 OK", "\u202egnp", "\u2066x\u2069", "e" + "\u0301" * 9,
    "日" * 60, "\u05d0\u05d1", "\x7f\x85\u2028\u2029", '{label="x"} 1\n', "\\", "x" * 3000,
]  # fmt: skip


class Anybody:
    """Believes any role that the proxy itself would take."""

    def user_to_check(self, method: str, data: bytes) -> str | None:
        return None

    async def authenticate(self, method: str, data: bytes, certificate: bytes | None, network: str) -> Authenticated:
        return Authenticated(data.decode())


@pytest.mark.threat("log-injection")
@pytest.mark.parametrize("identities", ["plain", "hashed"])
async def test_what_clients_call_themselves_breaks_no_line_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identities: str
) -> None:
    log = io.BytesIO()
    monkeypatch.setattr(proxy_under_test, "_log", lambda: open_log("debug", "json", log))
    keys: dict[str, Any] = {
        "eventLogDirectory": tmp_path / "log",
        "eventLogIdentities": identities,
        "authenticationEnabled": "true",
    }
    async with staged(role_finder=Anybody(), **keys) as stage:
        for name in NAMES:
            client = await stage.client()
            flags = pb.FeatureFlags(supports_auth_refresh=True)
            connect = pb.CommandConnect(
                client_version=name, protocol_version=21, auth_method_name="token", auth_data=name.encode(),
                feature_flags=flags,
            )  # fmt: skip
            await client.send(frame(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=connect)))
            await client.answer()
            await client.send(topics_frame(1, "demo/ns-00"))
            await client.answer()
            await client.send(topics_frame(2, name))
            # A name that is no namespace is refused at the door.
            assert (await client.error(2)).error in (ServerError.InvalidTopicName, ServerError.NotAllowedError)
            client.close()
        await stage.until(lambda: not len(stage.proxy.sessions), "the end of the clients")
        page = ProxyMetrics("test", stage.proxy.counters).render().decode()
        shown = render(stage.proxy.shown(), 100)
    for line in log.getvalue().splitlines():
        assert json.loads(line)["event"]
    found = [event for path in (tmp_path / "log").glob("events-*.jsonl.gz") for event in read_events(path)]
    assert len(found) >= len(NAMES)
    assert {event["seq"] for event in found} == set(range(1, len(found) + 1))
    assert all(plain(line) == line and width(line) <= 100 for line in shown)
    assert all(line.startswith(("#", "pulsar", "process_", "python_", "topic_")) for line in page.splitlines() if line)
