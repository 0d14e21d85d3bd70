"""A drain that is called off: by the admin API, before it is over, and never after a signal."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.integration.test_leaving import embedded, refused, relayed, status
from tests.support.clients.async_client import LOOPBACK, AsyncClient, eventually
from tests.support.proxies.running_proxy import Running, child_proxy
from tests.support.web.admin_api import Answered, ask

LONG_MILLIS = 3_600_000


async def admin(proxy: Running, path: str, body: object = None) -> Answered:
    return await ask(proxy.config.parent / "control.sock", "POST", path, body)


async def test_before_the_ports_close_nothing_has_happened(tmp_path: Path) -> None:
    async with (
        embedded() as broker,
        child_proxy(tmp_path, broker, shutdownPreDrainMillis=LONG_MILLIS) as proxy,
    ):
        client = await proxy.connected()
        begun = await admin(proxy, "/v1/drain")
        assert (begun.status, begun.document["phase"], await status(proxy, "/readyz")) == (200, "leaving", 503)
        undone = await admin(proxy, "/v1/undrain")
        assert (undone.status, undone.document) == (200, {"phase": "serving", "connections": 1})
        assert await status(proxy, "/readyz") == 200
        await client.ping()
        # The next drain is a whole one.
        assert (await admin(proxy, "/v1/drain")).document["phase"] == "leaving"
        assert (await admin(proxy, "/v1/undrain")).status == 200
        os.kill(proxy.child.pid, signal.SIGINT)
        assert await proxy.exit_code() == 0
        assert proxy.said("stopped") == 1
        assert proxy.said("drain undone") == 2


async def test_ports_that_were_closed_open_again_and_relays_have_noticed_nothing(tmp_path: Path) -> None:
    async with (
        embedded() as broker,
        child_proxy(
            tmp_path, broker, shutdownDrainMillis=LONG_MILLIS, brokerProxyAllowedTargetPorts="*",
            overloadThrottleEnabled="true", haProxyProtocolEnabled="true", brokerHaProxyProtocolVersion="none",
        ) as proxy,
    ):  # fmt: skip
        busy, idle = await relayed(proxy, broker), await proxy.connected()
        for _ in range(2):
            begun = await admin(proxy, "/v1/drain", {"at_once": True})
            assert begun.document["phase"] == "draining"
            assert await idle.rest() == b""
            with pytest.raises(ConnectionRefusedError):
                await AsyncClient.open(proxy.port)
            undone = await admin(proxy, "/v1/undrain")
            assert (undone.status, undone.document["phase"]) == (200, "serving")
            assert await status(proxy, "/readyz") == 200
            await busy.ping()
            idle = await proxy.connected()
            await idle.ping()
        assert proxy.said("unexpected error") == 0
        # A reload works again, and so does the end.
        assert (await admin(proxy, "/v1/reload")).document["result"] == "applied"
        busy.close()
        os.kill(proxy.child.pid, signal.SIGTERM)
        assert await proxy.exit_code() == 0


async def test_a_port_that_somebody_else_has_taken_lets_the_drain_go_on(tmp_path: Path) -> None:
    async with (
        embedded() as broker,
        child_proxy(
            tmp_path, broker, shutdownDrainMillis=LONG_MILLIS, brokerProxyAllowedTargetPorts="*"
        ) as proxy,
    ):  # fmt: skip
        busy = await relayed(proxy, broker)
        await admin(proxy, "/v1/drain", {"at_once": True})
        # The drain is answered before the port closes.
        await eventually(lambda: refused(proxy.port), "a closed port")
        taken = await asyncio.start_server(lambda _, writer: writer.close(), LOOPBACK, proxy.port)
        try:
            undone = await admin(proxy, "/v1/undrain")
            assert undone.status == 409
            assert f"cannot listen on {LOOPBACK}:{proxy.port}" in undone.document["reason"]
            assert await status(proxy, "/readyz") == 503
        finally:
            taken.close()
            await taken.wait_closed()
        busy.close()
        assert await proxy.exit_code() == 0


async def test_what_a_signal_began_cannot_be_undone_nor_can_nothing(tmp_path: Path) -> None:
    async with (
        embedded() as broker,
        child_proxy(tmp_path, broker, shutdownPreDrainMillis=LONG_MILLIS) as proxy,
    ):
        await proxy.connected()
        nothing = await admin(proxy, "/v1/undrain")
        assert (nothing.status, "there is no drain to undo" in nothing.document["reason"]) == (409, True)
        os.kill(proxy.child.pid, signal.SIGTERM)
        await eventually(lambda: proxy.said("stopping"), "the drain")
        late = await admin(proxy, "/v1/undrain")
        assert (late.status, "because of a signal" in late.document["reason"]) == (409, True)
        os.kill(proxy.child.pid, signal.SIGTERM)
        assert await proxy.exit_code() == 0


async def test_a_second_signal_ends_a_drain_that_the_admin_api_began(tmp_path: Path) -> None:
    async with (
        embedded() as broker,
        child_proxy(
            tmp_path, broker, shutdownDrainMillis=LONG_MILLIS, brokerProxyAllowedTargetPorts="*"
        ) as proxy,
    ):  # fmt: skip
        await relayed(proxy, broker)
        await admin(proxy, "/v1/drain", {"at_once": True})
        os.kill(proxy.child.pid, signal.SIGTERM)
        assert await proxy.exit_code() == 0
