"""The walkthroughs of docs/, walked: each block that is marked to be run is run as it stands, beside clients."""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.auth.tls import PemFiles, certificate, client_context
from tests.support.brokers.embedded.broker import EmbeddedBroker
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.clients.async_client import LOOPBACK, AsyncClient, eventually
from tests.support.patience import in_time
from tests.support.proxies.running_proxy import Running, child_proxy
from tests.support.sockets.ports import free_port, free_ports
from tests.support.walkthrough import BEFORE, ROOT, Walk, all_sections, walking
from tests.support.web.web_pages import scrape

LISTS = CommandType.GET_TOPICS_OF_NAMESPACE
WALKTHROUGHS = {
    "Install as a gateway",
    "Install as a sidecar",
    "Upgrade",
    "Restart without a gap",
    "Drain",
    "Reload",
    "Certificate rotation",
    "Storm",
    "Memory alert",
}
# 7,000 names of 100 bytes: 0.7 MiB, so that one such list fits into 1 MiB and two do not.
TOPICS, NAME_BYTES = 7_000, 100
SMALL_BUFFER = 4096
UNSENT_COLUMN = 8
LONG_MILLIS = 600_000


def environment(directory: Path, **more: object) -> dict[str, object]:
    """Give what a shell of the page has: nothing of ours but where programs and temporary files are."""
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "PIP_CONFIG_FILE", "PIP_INDEX_URL") if name in os.environ
    }
    return {
        **kept,
        "PYTHONPATH": ROOT,
        "TMPDIR": directory,
        "XDG_RUNTIME_DIR": directory,
        "PREFIX": Path(sys.executable).parents[1],
        "CONF": directory / "proxy.conf",
        "LOG": directory / "served.log",
        **more,
    }


def embedded(namespaces: int = 4) -> EmbeddedBroker:
    return EmbeddedBroker(GeneratedTopics(namespaces, TOPICS, NAME_BYTES))


@asynccontextmanager
async def on_call(
    section: str,
    directory: Path,
    broker: EmbeddedBroker,
    # A dictionary of variables; its type would be asked of every key that a dictionary brings.
    variables: Any = None,
    **keys: object,
) -> AsyncIterator[tuple[Running, Walk]]:
    """Run a proxy, and a shell whose reader has found it."""
    async with child_proxy(directory, broker, **keys) as proxy:
        more = {"PORT": proxy.port, "WEB_PORT": proxy.web_port, **(variables or {})}
        async with walking(section, directory, environment(directory, **more)) as walk:
            await walk.setting_out("running")
            assert await walk.value("PID") == str(proxy.child.pid)
            yield proxy, walk
            assert walk.at_its_end


@asynccontextmanager
async def at_first(section: str, directory: Path, broker: EmbeddedBroker, **more: object) -> AsyncIterator[Walk]:
    """Run a shell on a machine without a proxy."""
    port, web_port = free_ports(2)
    variables = {
        "BROKER": broker.service_url,
        "CLUSTER": "test",
        "PORT": port,
        "WEB_PORT": web_port,
        # The page's proxy is for everybody; a test's is not.
        "PULSAR_PREFIX_bindAddress": LOOPBACK,
        **more,
    }
    async with walking(section, directory, environment(directory, **variables)) as walk:
        await walk.setting_out()
        yield walk
        assert walk.at_its_end


async def connected(port: int) -> AsyncClient:
    client = await AsyncClient.open(port)
    await client.connect()
    return client


async def list_of(client: AsyncClient) -> int:
    """Read the answer to a list that was asked for, and give the number of its topics."""
    answer = await client.answer(pong=True)
    assert answer.type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, answer
    return len(answer.getTopicsOfNamespaceResponse.topics)


async def waiting_list(proxy: Running, namespace: str) -> AsyncClient:
    client = await proxy.connected()
    await client.ask_topics(namespace)
    return client


# --- install ----------------------------------------------------------------------------------------


async def test_a_gateway_is_installed_and_serves(tmp_path: Path) -> None:
    async with embedded() as broker, at_first("Install as a gateway", tmp_path, broker) as walk:
        walk.skip("install")
        await walk.rest()
        client = await connected(int(await walk.value("PORT")))
        assert len((await client.topics("demo/ns-0")).topics) == TOPICS
        client.close()


async def test_a_sidecar_is_installed_and_leaves_after_its_application(tmp_path: Path) -> None:
    # So that it is the application it waits for, not the clock.
    long = {"PULSAR_PREFIX_shutdownDrainMillis": LONG_MILLIS}
    async with embedded() as broker, at_first("Install as a sidecar", tmp_path, broker, **long) as walk:
        await walk.step()
        port = int(await walk.value("PORT"))
        application = await connected(port)
        await walk.step()
        assert len((await application.topics("demo/ns-0")).topics) == TOPICS
        another = await connected(port)
        another.close()
        application.close()
        await walk.step()
        with pytest.raises(ConnectionRefusedError):
            await AsyncClient.open(port)


# --- upgrade, drain, reload ---------------------------------------------------------------------------


async def test_an_upgrade_loses_no_request(tmp_path: Path) -> None:
    new_port, new_web_port = free_ports(2)
    new = {"NEW_PORT": new_port, "NEW_WEB_PORT": new_web_port, "NEW_PREFIX": Path(sys.executable).parents[1]}
    keys: dict[str, Any] = {"shutdownDrainMillis": LONG_MILLIS}
    async with embedded() as broker, on_call("Upgrade", tmp_path, broker, dict(new), **keys) as (old, walk):
        await walk.step()
        gate = broker.script.hold(LISTS)
        waiting = await waiting_list(old, "demo/ns-0")
        await eventually(lambda: broker.record.outstanding_topic_questions, "questions at the broker")
        await walk.step()
        newcomer = await connected(new_port)
        await newcomer.ask_topics("demo/ns-1")
        gate.set()
        assert await list_of(waiting) == TOPICS
        assert await list_of(newcomer) == TOPICS
        assert await old.exit_code() == 0
        await walk.step()
        await newcomer.ping()
        newcomer.close()


async def test_a_restart_refuses_nobody_and_loses_no_request(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"shutdownDrainMillis": LONG_MILLIS}
    async with embedded() as broker, on_call("Restart without a gap", tmp_path, broker, **keys) as (old, walk):
        gate = broker.script.hold(LISTS)
        waiting = await waiting_list(old, "demo/ns-0")
        await eventually(lambda: broker.record.outstanding_topic_questions, "a question at the broker")

        async def newcomer() -> None:
            # Accepted by the process that takes over, as the other only drains by then.
            await eventually(lambda: old.said("shutdown phase"), "a drain", 60)
            client = await connected(old.port)
            gate.set()
            assert await list_of(waiting) == TOPICS
            assert len((await client.topics("demo/ns-1")).topics) == TOPICS
            client.close()
            # The page waits for the end of the process, which is a child of this one.
            assert await old.exit_code() == 0

        async with asyncio.TaskGroup() as group:
            group.create_task(newcomer())
            await walk.step()


async def test_a_drain_answers_what_is_under_way_and_ends_with_0(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"shutdownDrainMillis": LONG_MILLIS}
    async with embedded() as broker, on_call("Drain", tmp_path, broker, **keys) as (proxy, walk):
        gate = broker.script.hold(LISTS)
        client = await waiting_list(proxy, "demo/ns-0")
        await eventually(lambda: broker.record.outstanding_topic_questions, "a question at the broker")
        await walk.step()
        assert proxy.child.running
        gate.set()
        assert await list_of(client) == TOPICS
        assert await proxy.exit_code() == 0
        phases = await walk.step()
        assert "draining" in phases


async def test_a_reload_reports_what_waits_for_a_restart_and_no_client_notices(tmp_path: Path) -> None:
    async with embedded() as broker, on_call("Reload", tmp_path, broker) as (proxy, walk):
        client = await proxy.connected()
        await walk.step()
        await walk.step()
        assert (await scrape(proxy.web_port))("config_reload_success") == 1
        await walk.step()
        await client.ping()
        assert [line["new"] for line in proxy.lines("configuration changed")] == ["60000", "70000"]


# --- certificates -------------------------------------------------------------------------------------


async def handshake(port: int, authority: str) -> None:
    async with in_time():
        _, writer = await asyncio.open_connection(
            LOOPBACK, port, ssl=client_context(authority), server_hostname="localhost"
        )
    writer.close()


async def test_a_new_certificate_is_for_new_connections(tmp_path: Path) -> None:
    now, new = PemFiles.write(tmp_path / "tls"), PemFiles.write(tmp_path / "new", certificate("second"))
    for source, name in ((now.certificate, "tls.crt"), (now.key, "tls.key")):
        source.rename(tmp_path / "tls" / name)
    tls_port = free_port()
    variables: dict[str, object] = {
        "TLS_DIR": tmp_path / "tls",
        "NEW_CERT": new.certificate,
        "NEW_KEY": new.key,
        "TLS_PORT": tls_port,
    }
    keys = {
        "servicePortTls": tls_port,
        "tlsCertificateFilePath": tmp_path / "tls/tls.crt",
        "tlsKeyFilePath": tmp_path / "tls/tls.key",
    }
    async with embedded() as broker, on_call("Certificate rotation", tmp_path, broker, variables, **keys) as (_, walk):
        await handshake(tls_port, "first")
        await walk.rest()
        with pytest.raises(ssl.SSLCertVerificationError):
            await handshake(tls_port, "first")
        await handshake(tls_port, "second")


# --- storm, memory ------------------------------------------------------------------------------------


async def until_it_waits(proxy: Running) -> None:
    async with in_time():
        while True:
            if (await scrape(proxy.web_port))("topic_list_direct_queue_size"):
                return
            await asyncio.sleep(0.02)


async def test_a_storm_is_rehearsed_looked_at_and_who_waits_is_served_when_the_limit_is_raised(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "maxTopicListInFlightDirectMemSizeMB": 1,
        "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis": LONG_MILLIS,
        "topicListRequestTimeoutMillis": LONG_MILLIS,
        "topicListWriteStallTimeoutMillis": LONG_MILLIS,
        "topicListWriteMinBytesPerSecond": 0,
        "tcpUserTimeoutMillis": 0,
        "clientSocketSendBufferBytes": 16_384,
    }
    async with embedded() as broker, on_call("Storm", tmp_path, broker, **keys) as (proxy, walk):
        await walk.step()
        silent = await AsyncClient.open(proxy.port, SMALL_BUFFER)
        proxy.clients.append(silent)
        await silent.connect()
        await silent.ask_topics("demo/ns-0")
        await eventually(lambda: broker.record.topic_questions, "the first question")
        waiting = await waiting_list(proxy, "demo/ns-1")
        await until_it_waits(proxy)
        rows = [line.split() for line in (await walk.step()).splitlines() if " lookup  " in line]
        assert [row[UNSENT_COLUMN] != "0B" for row in rows] == [True, False]
        await walk.step()
        assert await list_of(waiting) == TOPICS


async def test_a_memory_alert_ends_with_a_smaller_budget_and_no_client_cut(tmp_path: Path) -> None:
    async with embedded() as broker, on_call("Memory alert", tmp_path, broker) as (proxy, walk):
        client = await proxy.connected()
        before = (await scrape(proxy.web_port))("memory_budget_bytes")
        await walk.rest()
        assert (await scrape(proxy.web_port))("memory_budget_bytes") < before
        assert len((await client.topics("demo/ns-0")).topics) == TOPICS


# --- the page -----------------------------------------------------------------------------------------


def test_the_pages_have_these_walkthroughs_and_no_others_are_run() -> None:
    assert set(all_sections()) == WALKTHROUGHS | {BEFORE}
