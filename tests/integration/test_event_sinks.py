"""The event log in a whole proxy: where events go, what the metrics say, and that nothing holds up its end."""

import asyncio
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from protocol.commands import request_id_of
from protocol.pb import PulsarApi_pb2 as pb
from proxy.app.metrics.prometheus import ProxyMetrics
from proxy.app.proxy import Proxy
from proxy.telemetry.events import log
from tests.support.auth.tls import PemFiles, server_context
from tests.support.brokers.raw_broker import handshake, raw_broker, silence
from tests.support.clients.async_client import LOOPBACK, AsyncClient, Closed, command_of, topics_frame
from tests.support.patience import in_time, patient
from tests.support.proxies.proxy_under_test import MIB, staged
from tests.support.proxies.running_proxy import proxy_and_broker
from tests.support.web.web_pages import Scrape, scrape
from tests.unit.eventlog.parts import events_in
from tests.unit.eventlog.test_schema import faults

ROOT = Path(__file__).parents[2]
EVENT = {"kind": "get_topics", "tenant": "public", "namespace": "public/default", "outcome": "ok"}
# An event log alone, with a topic at a broker of the test; it ends as `serve` does.
LONE_LOG = """
import asyncio, sys
from pathlib import Path
from proxy.auth.own.broker_credentials import Plain
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.counters import Counters
from proxy.core.log import open_log
from proxy.core.loop_budget import LoopBudget
from proxy.core.threads import EVENT_LOG, leave
from proxy.telemetry.events import log as event_log
from proxy.telemetry.events.log import EventLog

async def main() -> None:
    event_log.LEAST_CLOSE_SECONDS = float(sys.argv[3])
    loop = asyncio.get_running_loop()
    config = Config.load(None, {}, {
        "brokerServiceURL": sys.argv[1], "eventLogTopic": "persistent://public/log/events",
        "eventLogDirectory": sys.argv[2],
    })
    core = Core(loop, config, Counters(), open_log("warning", "json"), LoopBudget(loop, loop.time))
    log = EventLog(core, Plain(lambda: None), lambda: None)
    log.start()
    for number in range(100):
        log.sink({"kind": "get_topics", "ts_us": number})
    print("put", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    await log.close(0.1)
    print("closed", flush=True)

asyncio.run(main())
leave(0, EVENT_LOG)
"""


Rude = Callable[[AsyncClient], Awaitable[None]]


@pytest.fixture(autouse=True)
def time_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the writer's thread the time of this machine for what is left at the end."""
    monkeypatch.setattr(log, "LEAST_CLOSE_SECONDS", patient(log.LEAST_CLOSE_SECONDS))


def put(proxy: Proxy, count: int) -> None:
    sink = None if proxy.event_log is None else proxy.event_log.sink
    assert sink is not None
    for number in range(count):
        sink(EVENT | {"ts_us": number})


def metrics_of(proxy: Proxy) -> Scrape:
    return Scrape(ProxyMetrics("test", proxy.counters).render().decode(), "test")


async def test_events_are_in_files_when_the_proxy_has_ended(tmp_path: Path) -> None:
    async with staged(eventLogDirectory=tmp_path / "log", eventLogProxyId="proxy/7") as stage:
        put(stage.proxy, 1000)
    events = events_in(tmp_path / "log")
    assert [event["seq"] for event in events] == list(range(1, 1001))
    assert {event["proxy_id"] for event in events} == {"proxy/7"}
    assert stage.proxy.event_log is not None
    assert {event["boot_id"] for event in events} == {stage.proxy.event_log.boot_id}
    assert [event["ts_us"] for event in events] == list(range(1000))
    written = metrics_of(stage.proxy)
    assert written("event_log_written_total", sink="files") == 1000
    assert written("event_log_dropped_total", sink="files") == 0
    assert written("event_log_buffer_bytes", sink="files") == 0
    assert written("event_log_files_total", result="finished") == 1
    assert written("event_log_bytes_total", sink="files") == sum(
        path.stat().st_size for path in (tmp_path / "log").iterdir()
    )


async def test_events_of_requests_fit_the_schema(tmp_path: Path) -> None:
    async with staged(eventLogDirectory=tmp_path) as stage:
        client = await stage.connected()
        for number in range(3):
            await client.ask_topics(f"demo/ns-0{number}")
            await client.command()
    events = events_in(tmp_path)
    assert [event["outcome"] for event in events] == ["ok"] * 3
    assert [fault for event in events for fault in faults(event)] == []


async def test_what_does_not_fit_is_counted_and_said(tmp_path: Path) -> None:
    async with staged(eventLogDirectory=tmp_path, eventLogBufferMB=1) as stage:
        # The loop is not left in between: the writer cannot keep up with this, or takes some of it.
        put(stage.proxy, 5000)
    events = events_in(tmp_path)
    numbers = metrics_of(stage.proxy)
    dropped = numbers("event_log_dropped_total", sink="files")
    assert len(events) + dropped == 5000
    said = sum(event["dropped_before"] for event in events)
    assert said == events[-1]["seq"] - len(events)


@pytest.mark.threat("event-flood")
async def test_a_flood_of_lists_fills_neither_memory_nor_disk_with_events(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with staged(eventLogDirectory=tmp_path / "file", eventLogBufferMB=1) as stage:
        client = await stage.connected()
        for _ in range(20):
            # Refused at once, and an event each.
            await client.send(b"".join(topics_frame(each, "x" * 250) for each in range(200)))
            for _ in range(200):
                await client.answer()
        numbers = await scrape(stage.proxy.web_port)
        assert 0 < numbers("event_log_buffer_bytes", sink="files") <= MIB
        assert numbers("event_log_dropped_total", sink="files") > 0
    limits: dict[str, Any] = {"eventLogBufferMB": 64, "eventLogFilesMaxTotalMB": 2}
    async with staged(eventLogDirectory=tmp_path / "log", **limits) as stage:
        sink = None if stage.proxy.event_log is None else stage.proxy.event_log.sink
        assert sink is not None
        for _ in range(30_000):
            # Bytes that do not shrink.
            sink(EVENT | {"ts_us": 1, "namespace": os.urandom(128).hex()})
    written = metrics_of(stage.proxy)
    assert written("event_log_bytes_total", sink="files") > 3 * MIB
    assert written("event_log_files_total", result="deleted") > 0
    assert sum(path.stat().st_size for path in (tmp_path / "log").iterdir()) <= 2 * MIB


async def test_proxy_starts_and_ends_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with staged(eventLogDirectory=tmp_path / "file") as stage:
        put(stage.proxy, 10)
        await stage.until(lambda: metrics_of(stage.proxy)("event_log_errors_total", sink="files") > 0, "a failure")
        client = await stage.connected()
        await client.ask_topics("demo/ns-00")
    # Those, and that of the request.
    assert metrics_of(stage.proxy)("event_log_dropped_total", sink="files") == 11


async def deaf(peer: AsyncClient) -> None:
    await asyncio.Event().wait()


async def silent(peer: AsyncClient) -> None:
    await peer.command()
    await silence(peer)


async def garbage(peer: AsyncClient) -> None:
    await peer.send(os.urandom(64 * 1024))
    await peer.rest()


async def announcing(peer: AsyncClient) -> None:
    """Announce a frame of nearly 2 GiB and send a part of it."""
    await peer.command()
    await peer.send(b"\x7f\xff\xff\xfe" + bytes(64 * 1024))
    await peer.rest()


async def redirecting(peer: AsyncClient) -> None:
    """Answer each lookup with a redirect to itself, without end."""
    await handshake(peer)
    here = "pulsar://{}:{}".format(*peer.sock.getsockname())
    while True:
        asked = await peer.command()
        found = pb.CommandLookupTopicResponse(
            request_id=request_id_of(asked) or 0, response=pb.CommandLookupTopicResponse.Redirect,
            brokerServiceUrl=here, authoritative=False,
        )  # fmt: skip
        metadata = pb.CommandPartitionedTopicMetadataResponse(
            request_id=request_id_of(asked) or 0,
            partitions=0,
            response=pb.CommandPartitionedTopicMetadataResponse.Success,
        )
        if asked.type == pb.BaseCommand.LOOKUP:
            await peer.send_command(pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=found))
        elif asked.type == pb.BaseCommand.PARTITIONED_METADATA:
            kind = pb.BaseCommand.PARTITIONED_METADATA_RESPONSE
            await peer.send_command(pb.BaseCommand(type=kind, partitionMetadataResponse=metadata))


@pytest.mark.threat("credentials-to-event-cluster")
@pytest.mark.parametrize("own_cluster", [False, True])
async def test_another_cluster_for_events_is_shown_neither_credentials_nor_certificate(
    tmp_path: Path, own_cluster: bool
) -> None:
    files, context = PemFiles.write(tmp_path), server_context(clients_from="first")
    context.verify_mode = ssl.CERT_OPTIONAL
    shown: asyncio.Future[tuple[bytes, bool]] = asyncio.get_running_loop().create_future()

    async def cluster(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = await reader.readexactly(4)
        connect = command_of(size + await reader.readexactly(int.from_bytes(size, "big"))).connect
        if not shown.done():
            shown.set_result((connect.auth_data, bool(writer.get_extra_info("peercert"))))
        writer.close()

    async with await asyncio.start_server(cluster, LOOPBACK, 0, ssl=context) as server:
        url = f"pulsar+ssl://localhost:{server.sockets[0].getsockname()[1]}"
        keys = {
            "eventLogTopic": "persistent://public/log/events",
            "brokerClientAuthenticationPlugin": "token",
            "brokerClientAuthenticationParameters": "token:the-proxys-own",
            "brokerClientCertificateFilePath": files.certificate, "brokerClientKeyFilePath": files.key,
            "brokerServiceURLTLS" if own_cluster else "eventLogTopicServiceURL": url,
            **files.broker_keys, "tlsEnabledWithBroker": own_cluster,
        }  # fmt: skip
        async with proxy_and_broker(tmp_path, **keys) as (proxy, _):
            client = await proxy.connected()
            # It is answered or not: its event is written.
            await client.ask_topics("demo/ns-0")
            async with in_time(60):
                assert await shown == ((b"the-proxys-own", True) if own_cluster else (b"", False))


@pytest.mark.threat("rude-event-broker")
@pytest.mark.parametrize("rude", [deaf, silent, garbage, announcing, redirecting], ids=lambda each: each.__name__)
async def test_broker_that_is_rude_holds_up_neither_files_nor_the_end(tmp_path: Path, rude: Rude) -> None:
    reached = asyncio.Event()

    async def serve(peer: AsyncClient) -> None:
        reached.set()
        with suppress(Closed):
            await rude(peer)

    async with raw_broker(serve) as broker:
        url = f"pulsar://127.0.0.1:{broker.port}"
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", LONE_LOG, url, str(tmp_path), str(log.LEAST_CLOSE_SECONDS), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        try:
            async with in_time(60):
                await reached.wait()
                output, errors = await child.communicate(b"\n")
        finally:
            if child.returncode is None:
                child.send_signal(signal.SIGKILL)
                await child.wait()
    assert (child.returncode, output) == (0, b"put\nclosed\n"), errors.decode()
    assert b'"events were not written"' in errors or b'"events cannot be written"' in errors
    assert [event["seq"] for event in events_in(tmp_path)] == list(range(1, 101))
