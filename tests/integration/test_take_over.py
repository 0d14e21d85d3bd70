"""A restart without a gap: one process hands its listening sockets to the next, and no client is refused."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from proxy.cli.admin.client import AdminClient, Refused, ask_top
from proxy.cli.demo.children import ChildFailed
from proxy.cli.inherited import TakeOverFailed, take_over_from
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.clients.async_client import LOOPBACK, AsyncClient, Closed, eventually
from tests.support.patience import in_time, patient
from tests.support.proxies.running_proxy import Running, child_proxy, proxy_and_broker
from tests.support.sockets.ports import free_port
from tests.support.web.fake_web_broker import fake_web_broker

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "demo/ns-0"
TOPIC = f"persistent://{NAMESPACE}/topic"
LOOKUP = f"/lookup/v2/topic/persistent/{NAMESPACE}/topic"
NEVER_MILLIS = 3_600_000
TAKES_OVER = ("--take-over",)
WORKERS = 8
# systemd gives its sockets from descriptor 3 on, to the process that it names.
AS_SYSTEMD = """
import os, sys
given, arguments = [int(text) for text in sys.argv[1].split(",")], sys.argv[2:]
for number in given:
    os.set_inheritable(number, True)
spare = [os.dup(number) for number in given]
for at, number in enumerate(spare):
    os.dup2(number, 3 + at)
    # If both are the same, dup2 leaves it as it is.
    os.set_inheritable(3 + at, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(given)), LISTEN_FDNAMES="x")
os.execv(sys.executable, [sys.executable, "-m", "proxy", "serve", *arguments])
"""


def embedded() -> EmbeddedBroker:
    return EmbeddedBroker(GeneratedTopics(1, 100, 100))


def made(directory: Path) -> None:
    directory.mkdir()


def there(path: object) -> bool:
    return Path(str(path)).exists()


@asynccontextmanager
async def successor(directory: Path, broker: EmbeddedBroker, before: Running, **keys: object) -> AsyncIterator[Running]:
    """Run a proxy that takes over from `before`, whose configuration it has, until the block ends."""
    made(directory)
    given = {"controlSocketPath": before.config.parent / "control.sock", **keys}
    async with child_proxy(directory, broker, options=TAKES_OVER, **given) as found:
        yield found


async def took_over(after: Running) -> None:
    await eventually(lambda: after.said("took over"), f"a take-over\n{after.child.tail()}", patient(60))


def ports_of(before: Running, **keys: object) -> dict[str, object]:
    return {"servicePort": before.port, "webServicePort": before.web_port, **keys}


@dataclass
class Load:
    """Clients that come one after the other, each with a new connection and a request."""

    port: int
    refused: list[str] = field(default_factory=list)
    served: int = 0
    # Those that the drain closed after their CONNECTED, as it closes every idle client.
    closed: int = 0

    async def run(self) -> None:
        while True:
            await self._one()

    async def _one(self) -> None:
        try:
            client = await AsyncClient.open(self.port)
        except OSError as error:
            self.refused.append(repr(error))
            return
        connected = False
        try:
            await client.connect()
            connected = True
            assert len((await client.topics(NAMESPACE)).topics) == 100
            self.served += 1
        except (Closed, OSError) as error:
            if connected:
                self.closed += 1
            else:
                self.refused.append(repr(error))
        finally:
            client.close()

    async def more(self, count: int) -> None:
        """Wait until so many more have been served."""
        wanted = self.served + count
        await eventually(lambda: self.served >= wanted, f"{count} more clients", patient(60))


@asynccontextmanager
async def load_on(port: int) -> AsyncIterator[Load]:
    load = Load(port)
    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(load.run()) for _ in range(WORKERS)]
        try:
            yield load
        finally:
            for worker in workers:
                worker.cancel()


async def test_under_load_no_client_is_refused_while_one_process_replaces_another(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path) as (first, broker), load_on(first.port) as load:
        await load.more(50)
        async with successor(tmp_path / "second", broker, first, **ports_of(first)) as second:
            await took_over(second)
            assert await first.exit_code() == 0
            await load.more(50)
            async with successor(tmp_path / "third", broker, second, **ports_of(first), **same(first)) as third:
                await took_over(third)
                assert await second.exit_code() == 0
                await load.more(50)
        assert load.refused == []
        # Connections that a drain closed between two requests: this request was on its way, and real clients ask again.
        assert load.closed <= 4 * WORKERS
        assert [each.said("internal_error") for each in (first, second, third)] == [0, 0, 0]


def same(first: Running) -> dict[str, object]:
    """Give the control socket of the first proxy, which all that follow have, too."""
    return {"controlSocketPath": first.config.parent / "control.sock"}


async def test_the_successor_answers_at_the_control_socket_and_the_other_beside_it_until_it_ends(
    tmp_path: Path,
) -> None:
    keys = {"shutdownDrainMillis": NEVER_MILLIS}
    control = tmp_path / "control.sock"
    async with proxy_and_broker(tmp_path, **keys) as (first, broker):
        relayed = await first.client()
        await relayed.connect(target=f"{LOOPBACK}:{broker.port}")
        async with successor(tmp_path / "second", broker, first, **ports_of(first), **keys) as second:
            await took_over(second)
            await eventually(lambda: second.said("listening for control"), "a control socket")
            assert (await top(control))["proxy"]["pid"] == second.child.pid
            aside = control.with_name(f"control.sock.{first.child.pid}")
            found = (await top(aside))["proxy"]
            assert (found["pid"], found["state"]) == (first.child.pid, "draining")
            # Relayed clients of the first go on, newcomers are the second's, over HTTP as well.
            await relayed.ping()
            assert (await second.connected()).sock.getpeername() == (LOOPBACK, first.port)
            assert (await first.get("/readyz")).startswith(b"HTTP/1.1 200 ")
            assert (await top(control))["clients"]["lookup_mode"] == 1
            relayed.close()
            assert await first.exit_code() == 0
            assert not there(aside)
            assert there(control)
            await left(second)
            assert not there(control)


async def left(proxy: Running) -> None:
    """Have a proxy end by itself, however long this machine takes for that."""
    os.kill(proxy.child.pid, signal.SIGTERM)
    assert await proxy.exit_code() == 0


async def top(path: Path) -> Any:
    return await asyncio.to_thread(ask_top, [path], patient(20))


async def test_a_successor_that_cannot_start_changes_nothing(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path) as (first, broker):
        with socket.create_server((LOOPBACK, 0)) as taken:
            keys = ports_of(first, webServicePort=taken.getsockname()[1])
            with pytest.raises(ChildFailed, match="cannot start"):
                async with successor(tmp_path / "second", broker, first, **keys):
                    pass
        client = await first.connected()
        assert len((await client.topics(NAMESPACE)).topics) == 100
        assert first.said("stopping") == 0
        assert (await top(tmp_path / "control.sock"))["proxy"]["pid"] == first.child.pid


async def test_with_nobody_to_take_over_from_it_is_a_start_like_any_other(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path, options=TAKES_OVER) as (proxy, _):
        assert proxy.said("nobody to take over from") == 1
        client = await proxy.connected()
        assert len((await client.topics(NAMESPACE)).topics) == 100


async def test_ports_that_the_kernel_chose_stay_the_same(tmp_path: Path) -> None:
    keys = {"metricsPort": 0, "serviceSocketPath": tmp_path / "clients.sock"}
    async with (
        proxy_and_broker(tmp_path, **keys) as (first, broker),
        successor(tmp_path / "second", broker, first, **keys) as second,
    ):
        await took_over(second)
        assert (second.port, second.web_port) == (first.port, first.web_port)
        metrics = [each.child.find("metrics_port") or {} for each in (first, second)]
        assert metrics[0]["metrics_port"] == metrics[1]["metrics_port"] > 0
        assert await first.exit_code() == 0
        assert there(keys["serviceSocketPath"])
        assert second.said("a listening socket that was handed over is not used") == 0
        await left(second)
        assert not there(keys["serviceSocketPath"])


async def test_a_socket_that_the_successor_does_not_want_is_closed_and_named(tmp_path: Path) -> None:
    port = free_port()
    async with (
        proxy_and_broker(tmp_path, metricsPort=port) as (first, broker),
        successor(tmp_path / "second", broker, first, **ports_of(first)) as second,
    ):
        await took_over(second)
        (line,) = second.lines("a listening socket that was handed over is not used")
        assert line["address"] == f"{LOOPBACK}:{port}"
        assert await first.exit_code() == 0
        with pytest.raises(ConnectionRefusedError):
            await AsyncClient.open(port)


async def test_a_client_in_its_handshake_is_served_by_the_process_that_accepted_it(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path, shutdownDrainMillis=NEVER_MILLIS) as (first, broker):
        slow = await first.client()
        await eventually_active(first, 1)
        async with successor(tmp_path / "second", broker, first, **ports_of(first)) as second:
            await took_over(second)
            await slow.connect()
            # In its turn it is closed like every idle client of a drain.
            assert await slow.rest() == b""
            assert await first.exit_code() == 0


async def eventually_active(proxy: Running, count: int) -> None:
    async with in_time():
        # Each look is an answer of the proxy: no wait in between is needed.
        while (await top(proxy.config.parent / "control.sock"))["clients"]["lookup_mode"] != count:
            continue


@pytest.mark.threat("stolen-listening-sockets")
async def test_only_the_control_socket_hands_anything_over(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a token of some length\n".replace(" ", "-"))
    keys = {"adminApiAddress": f"{LOOPBACK}:0", "adminApiTokenFilePath": token}
    async with proxy_and_broker(tmp_path, **keys) as (proxy, _):
        port = (await proxy.child.said("admin_port"))["admin_port"]
        asking = AdminClient(address=f"{LOOPBACK}:{port}", token=token.read_text().strip())
        for path in ("/v1/hand-over", "/v1/hand-over/done"):
            with pytest.raises(Refused) as refused:
                await asyncio.to_thread(asking.ask, "POST", path, {"to": "@0001f"}, patient(20))
            assert refused.value.status == 403
        asking = AdminClient([tmp_path / "control.sock"])
        for name, status in (("", 400), ("/etc/passwd", 400), ("@fffff", 409)):
            with pytest.raises(Refused) as refused:
                await asyncio.to_thread(asking.ask, "POST", "/v1/hand-over", {"to": name}, patient(20))
            assert refused.value.status == status
        await proxy.connected()


async def test_of_two_that_take_over_at_once_the_last_has_the_sockets_alone(tmp_path: Path) -> None:
    async with proxy_and_broker(tmp_path) as (first, broker):
        control = tmp_path / "control.sock"
        early, theirs = await asyncio.to_thread(take_over_from, control)
        async with successor(tmp_path / "second", broker, first, **ports_of(first)) as second:
            await took_over(second)
            with pytest.raises(TakeOverFailed, match="another process has got the sockets since"):
                await asyncio.to_thread(early.leave)
            assert second.said("stopping") == 0
        for each in theirs:
            each.listening.close()


# --- systemd --------------------------------------------------------------------------------------


def started(config: Path, log: Path, numbers: list[int]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", AS_SYSTEMD, ",".join(map(str, numbers)), "--config", str(config)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with log.open("ab") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=output, pass_fds=numbers, env=environment, process_group=0
        )


@asynccontextmanager
async def activated(
    directory: Path, broker: EmbeddedBroker, *given: socket.socket, **keys: object
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run a proxy that systemd has given listening sockets until the block ends; its log is in `proxy.log`."""
    settings = {
        "webServicePort": "", "bindAddress": LOOPBACK, "shutdownPreDrainMillis": 0,
        "controlSocketPath": directory / "control.sock", "brokerServiceURL": broker.service_url, **keys,
    }  # fmt: skip
    config, log = directory / "proxy.conf", directory / "proxy.log"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    process = started(config, log, [each.fileno() for each in given])
    try:
        yield process
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, patient(60))


async def test_clients_wait_in_a_socket_of_systemd_until_the_next_process_serves_them(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0), backlog=64) as given:
        port = given.getsockname()[1]
        async with embedded() as broker:
            async with activated(tmp_path, broker, given, servicePort=port):
                client = await AsyncClient.open(port)
                await client.connect()
                client.close()
            # Nobody runs, and nobody is refused.
            waiting = [await AsyncClient.open(port) for _ in range(5)]
            async with activated(tmp_path, broker, given, servicePort=port):
                for client in waiting:
                    await client.connect()
                    assert len((await client.topics(NAMESPACE)).topics) == 100
                    client.close()
        assert (tmp_path / "proxy.log").read_text().count('"event":"listening for clients"') == 2


async def test_the_ports_of_brokers_stay_with_their_brokers(tmp_path: Path) -> None:
    async with embedded() as broker, fake_web_broker() as web_service:

        async def found(_: web.BaseRequest) -> web.StreamResponse:
            return web.json_response({"brokerUrl": broker.service_url, "nativeUrl": broker.service_url})

        web_service.answer = found
        keys = {"brokerProxyAllowedTargetPorts": "*", "brokerWebServiceURL": web_service.url}
        async with child_proxy(tmp_path, broker, **keys) as first:
            before = await looked_up(first)
            async with successor(tmp_path / "second", broker, first, **ports_of(first), **keys) as second:
                await took_over(second)
                assert await first.exit_code() == 0
                # As a client that has looked up before the restart: without a word on which broker is meant.
                client = await AsyncClient.open(before)
                second.clients.append(client)
                await client.connect()
                assert not (await client.lookup(TOPIC)).proxy_through_service_url
                assert await looked_up(second) == before


async def looked_up(proxy: Running) -> int:
    answer = await proxy.get(LOOKUP)
    return int(json.loads(answer.partition(b"\r\n\r\n")[2])["brokerUrl"].rpartition(":")[2])
