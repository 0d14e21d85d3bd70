"""A proxy in a process of its own leaves as its role says: real signals, clients that are there, a service manager."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from protocol.command_type import CommandType
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.clients.async_client import LOOPBACK, AsyncClient, eventually
from tests.support.patience import in_time
from tests.support.proxies.running_proxy import Running, child_proxy

LISTS = CommandType.GET_TOPICS_OF_NAMESPACE
NEVER_MILLIS = 3_600_000
FOR_EVER = {"shutdownPreDrainMillis": NEVER_MILLIS, "shutdownDrainMillis": NEVER_MILLIS}


def embedded() -> EmbeddedBroker:
    return EmbeddedBroker(GeneratedTopics(1, 100, 100))


async def relayed(proxy: Running, broker: EmbeddedBroker) -> AsyncClient:
    client = await proxy.client()
    await client.connect(target=f"{LOOPBACK}:{broker.port}")
    return client


async def told(proxy: Running, number: signal.Signals, phase: str) -> None:
    os.kill(proxy.child.pid, number)
    await reached(proxy, phase)


async def reached(proxy: Running, phase: str) -> None:
    await eventually(lambda: phase in [line["new"] for line in proxy.lines("shutdown phase")], phase)


def phases(proxy: Running) -> list[str]:
    return [line["new"] for line in proxy.lines("shutdown phase")]


def refused(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port)).close()
    except ConnectionRefusedError:
        return True
    return False


async def status(proxy: Running, path: str) -> int:
    return int((await proxy.get(path)).split(b" ")[1])


# --- gateway --------------------------------------------------------------------------------------


async def test_a_gateway_is_not_ready_but_serves_new_clients_until_its_balancer_knows(tmp_path: Path) -> None:
    keys = {**FOR_EVER, "brokerProxyAllowedTargetPorts": "*"}
    async with embedded() as broker, child_proxy(tmp_path, broker, **keys) as proxy:
        early = await relayed(proxy, broker)
        assert await status(proxy, "/readyz") == 200
        await told(proxy, signal.SIGTERM, "leaving")
        assert await status(proxy, "/readyz") == await status(proxy, "/status.html") == 503
        assert await status(proxy, "/healthz") == 200
        late = await proxy.connected()
        assert len((await late.topics("demo/ns-0")).topics) == 100
        await early.ping()
        os.kill(proxy.child.pid, signal.SIGTERM)
        assert await proxy.exit_code() == 0
        assert phases(proxy) == ["leaving", "closing"]
        assert proxy.said("stopped") == 1


async def test_a_gateway_s_whole_end_is_in_order(tmp_path: Path) -> None:
    keys = {"shutdownPreDrainMillis": 300, "shutdownDrainMillis": NEVER_MILLIS}
    async with embedded() as broker, child_proxy(tmp_path, broker, **keys) as proxy:
        gate = broker.script.hold(LISTS)
        busy, idle = await proxy.connected(), await proxy.connected()
        request = asyncio.gather(busy.topics("demo/ns-0"))
        async with in_time():
            await broker.record.seen(LISTS)
        await told(proxy, signal.SIGTERM, "draining")
        # The phase is told before the port closes.
        await eventually(lambda: refused(proxy.port), "a closed port")
        assert await idle.rest() == b""
        assert await status(proxy, "/healthz") == 200
        assert not request.done()
        gate.set()
        assert len((await request)[0].topics) == 100
        assert await proxy.exit_code() == 0
        assert phases(proxy)[:2] == ["leaving", "draining"]


async def test_ctrl_c_does_not_wait_for_a_balancer(tmp_path: Path) -> None:
    keys = {"shutdownPreDrainMillis": NEVER_MILLIS, "shutdownDrainMillis": 200}
    async with embedded() as broker, child_proxy(tmp_path, broker, **keys) as proxy:
        await proxy.connected()
        await told(proxy, signal.SIGINT, "draining")
        assert await proxy.exit_code() == 0
        assert phases(proxy)[0] == "draining"


async def test_a_reload_is_ignored_by_a_proxy_that_is_leaving(tmp_path: Path) -> None:
    async with embedded() as broker, child_proxy(tmp_path, broker, **FOR_EVER) as proxy:
        await told(proxy, signal.SIGTERM, "leaving")
        os.kill(proxy.child.pid, signal.SIGHUP)
        await eventually(lambda: proxy.said("reload ignored: the proxy is stopping"), "a reload ignored")
        os.kill(proxy.child.pid, signal.SIGINT)
        assert await proxy.exit_code() == 0


# --- sidecar --------------------------------------------------------------------------------------


async def test_a_sidecar_serves_its_application_until_that_is_gone(tmp_path: Path) -> None:
    keys = {**FOR_EVER, "proxyRole": "sidecar", "brokerProxyAllowedTargetPorts": "*"}
    async with embedded() as broker, child_proxy(tmp_path, broker, **keys) as proxy:
        application = await relayed(proxy, broker)
        await told(proxy, signal.SIGTERM, "leaving")
        assert await status(proxy, "/readyz") == await status(proxy, "/status.html") == 200
        # It closes one connection and opens another on its way out.
        last = await proxy.client()
        application.close()
        await last.connect()
        assert len((await last.topics("demo/ns-0")).topics) == 100
        assert phases(proxy) == ["leaving"]
        last.close()
        assert await proxy.exit_code() == 0
        assert phases(proxy) == ["leaving", "closing"]


async def test_a_sidecar_does_not_outlive_its_time_for_an_application_that_stays(tmp_path: Path) -> None:
    keys = {"proxyRole": "sidecar", "shutdownDrainMillis": 300, "brokerProxyAllowedTargetPorts": "*"}
    async with embedded() as broker, child_proxy(tmp_path, broker, **keys) as proxy:
        stays = await relayed(proxy, broker)
        os.kill(proxy.child.pid, signal.SIGTERM)
        assert await stays.rest() == b""
        assert await proxy.exit_code() == 0


# --- the service manager --------------------------------------------------------------------------


Messages = SimpleQueue[str]


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Messages]:
    """Give what a service manager hears; a thread hears it, since the kernel keeps 10 messages, 5 s of them."""
    messages = Messages()

    def listen() -> None:
        while message := listening.recv(4096):
            messages.put(message.decode())

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield messages
        finally:
            listening.shutdown(socket.SHUT_RD)
            thread.join()


async def heard(manager: Messages, beginning: str) -> list[str]:
    """Take messages until one begins so; give all of them."""
    found: list[str] = []
    while not found or not found[-1].startswith(beginning):
        await eventually(lambda: not manager.empty(), beginning)
        found.append(manager.get())
    return found


async def test_the_service_manager_hears_of_start_reload_and_end(tmp_path: Path, manager: Messages) -> None:
    async with embedded() as broker, child_proxy(tmp_path, broker) as proxy:
        (ready,) = await heard(manager, "READY=1")
        assert f"STATUS=serving on port {proxy.port}" in ready
        assert await heard(manager, "WATCHDOG=1")
        os.kill(proxy.child.pid, signal.SIGHUP)
        assert "MONOTONIC_USEC=" in (await heard(manager, "RELOADING=1"))[-1]
        assert "configuration applied" in (await heard(manager, "READY=1"))[-1]
        with proxy.config.open("a") as file:
            file.write("servicePort=wrong\n")
        os.kill(proxy.child.pid, signal.SIGHUP)
        assert "configuration refused" in (await heard(manager, "READY=1"))[-1]
        os.kill(proxy.child.pid, signal.SIGTERM)
        assert "EXTEND_TIMEOUT_USEC=20000000" in (await heard(manager, "STOPPING=1"))[-1]
        assert await proxy.exit_code() == 0


async def test_the_watchdog_is_fed_while_the_proxy_leaves(tmp_path: Path, manager: Messages) -> None:
    async with embedded() as broker, child_proxy(tmp_path, broker, **FOR_EVER) as proxy:
        await told(proxy, signal.SIGTERM, "leaving")
        await heard(manager, "STOPPING=1")
        for _ in range(3):
            await heard(manager, "WATCHDOG=1")
        os.kill(proxy.child.pid, signal.SIGTERM)
        assert await proxy.exit_code() == 0
