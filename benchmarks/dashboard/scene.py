"""The scene before the camera: tenants that list topics now and then, relayed clients, an admin tool, three storms.

Rule: everything is on 127.0.0.1 and ends with the scene. The broker and the clients share this process, so that figures
of speed mean nothing here; the proxy has a process of its own.
"""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from protocol.pb import PulsarApi_pb2 as pb
from proxy.cli.demo.broker import LOOPBACK
from proxy.cli.demo.names import GeneratedNames, ListedNames, NameTemplate, TopicNames
from proxy.cli.demo.storm import Storm, StormPlan
from tests.support.clients.async_client import AsyncClient, Closed, connect_frame, lookup_frame
from tests.support.web.web_pages import get

TOPICS: Final = 5_000
NAME_BYTES: Final = 100
CONNECT_SECONDS: Final = 20.0
# Namespaces of each tenant. The namespaces of `analytics` are many, so that nothing can be shared in its storm.
TENANTS: Final[Mapping[str, int]] = {"analytics": 80, "orders": 3, "billing": 2, "sensors": 30}
# Keys, two of them at a tenth of their defaults, so that minutes of an evening pass in seconds.
KEYS: Final[Mapping[str, object]] = {
    "maxTopicListInFlightHeapMemSizeMB": 16,
    "maxTopicListInFlightDirectMemSizeMB": 16,
    "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis": 4_000,
    "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis": 4_000,
    "topicListWriteStallTimeoutMillis": 6_000,
    "clientSocketSendBufferBytes": 65_536,
    "brokerProxyAllowedTargetPorts": "*",
    # The other parts of the worst case of memory, for a sidecar's few clients.
    "maxConcurrentInboundConnections": 1_000,
    "maxConcurrentLookupRequests": 2_000,
    "brokerConnectionsTotal": 16,
    "maxHttpServerConnections": 64,
    "maxConcurrentHttpRequests": 32,
}
RELAYS: Final = 24
CERTIFICATE_DAYS: Final = 40


class TenantTopics:
    """Namespaces `tenant/app-0...` with as many topics each (`proxy.cli.demo.topics.TopicStore`)."""

    def __init__(self, tenants: Mapping[str, int]) -> None:
        names = [f"{tenant}/app-{number:02}" for tenant, count in tenants.items() for number in range(count)]
        self._names: dict[str, TopicNames] = {
            name: GeneratedNames(NameTemplate(TOPICS, NAME_BYTES, len(name)), name) for name in names
        }

    def of(self, tenant: str) -> list[str]:
        """List the namespaces of a tenant."""
        return [name for name in self._names if name.startswith(f"{tenant}/")]

    def has_namespace(self, namespace: str) -> bool:
        """Return whether a namespace exists."""
        return namespace in self._names

    def names(self, namespace: str) -> TopicNames:
        """Return a namespace's topics."""
        return self._names.get(namespace, ListedNames(()))

    def partitions(self, topic: str) -> int | None:
        """Count a topic's partitions: none has any."""
        return 0


class Scene:
    """The clients of one proxy, for about `SECONDS`."""

    SECONDS: Final = 105.0

    def __init__(self, store: TenantTopics, proxy_port: int, tls_port: int, web_port: int, broker_port: int) -> None:
        self._store = store
        self._proxy_port = proxy_port
        self._tls_port = tls_port
        self._web_port = web_port
        self._broker_port = broker_port

    async def play(self) -> None:
        """Run it from beginning to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.SECONDS), asyncio.TaskGroup() as group:
                for tenant, seconds in (("orders", 0.7), ("billing", 1.3), ("sensors", 2.1), ("analytics", 2.9)):
                    group.create_task(self._visits(tenant, seconds))
                for number in range(RELAYS):
                    group.create_task(self._relayed(number))
                group.create_task(self._lookups())
                group.create_task(self._mistaken())
                group.create_task(self._administers())
                group.create_task(self._storms())

    async def _storms(self) -> None:
        analytics, sensors = self._store.of("analytics"), self._store.of("sensors")
        await asyncio.sleep(25)
        await self._storm(analytics, StormPlan(160, 3, TOPICS, 0.1, 2.0), 20)
        await asyncio.sleep(15)
        await self._storm(analytics + sensors, StormPlan(220, 4, TOPICS, 0.35, 5.0), 30)
        await asyncio.sleep(15)
        # Clients that never read: the proxy closes them.
        await self._storm(sensors, StormPlan(60, 2, TOPICS, 1.0, 40.0), 20)

    async def _visits(self, tenant: str, seconds: float) -> None:
        """Run a handful of clients of a tenant that come, list and leave, again and again."""
        namespaces = self._store.of(tenant)
        for number in itertools.count():
            chosen = [namespaces[(number + place) % len(namespaces)] for place in range(2)]
            await self._storm(chosen, StormPlan(6, 1, TOPICS, 0.0, 0.0), 15)
            await asyncio.sleep(seconds)

    async def _storm(self, namespaces: Sequence[str], plan: StormPlan, seconds: float) -> None:
        storm = Storm(plan, list(namespaces))
        try:
            await storm.connect(LOOPBACK, self._proxy_port, CONNECT_SECONDS)
            await storm.ask(seconds)
        finally:
            storm.close()

    async def _relayed(self, number: int) -> None:
        """Watch a namespace through the relay, as a Java consumer with a pattern does."""
        client = await AsyncClient.open(self._proxy_port)
        namespace = self._store.of("orders")[number % TENANTS["orders"]]
        try:
            await client.connect(target=f"{LOOPBACK}:{self._broker_port}")
            await asyncio.sleep(number / 10)
            for watcher_id in range(500):
                request = pb.CommandWatchTopicList(
                    request_id=client.next_id(), watcher_id=watcher_id, namespace=namespace, topics_pattern=".*"
                )
                await client.send_command(pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_LIST, watchTopicList=request))
                await client.answer(pong=True)
                await asyncio.sleep(2.5)
        finally:
            client.close()

    async def _lookups(self) -> None:
        """Look topics up, as producers do that connect."""
        client = await AsyncClient.open(self._proxy_port)
        try:
            await client.connect()
            for number in itertools.count():
                request_id = client.next_id()
                await client.send(lookup_frame(request_id, f"persistent://orders/app-00/t-{number % 1000}"))
                await client.answer(pong=True)
                await asyncio.sleep(0.05)
        finally:
            client.close()

    async def _administers(self) -> None:
        """Ask for statistics of topics over HTTP, some of which are not there."""
        for number in itertools.count():
            await get(self._web_port, f"/admin/v2/persistent/orders/app-00/t-{number % 10}/stats")
            await asyncio.sleep(0.1 if number % 100 < 60 else 0.4)

    async def _mistaken(self) -> None:
        """Connect to the TLS port without TLS, as clients with a wrong URL do."""
        while True:
            client = await AsyncClient.open(self._tls_port)
            try:
                await client.send(connect_frame())
                await client.rest()
            except (OSError, Closed):
                pass
            finally:
                client.close()
            await asyncio.sleep(7)
