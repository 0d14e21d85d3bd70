"""Forward the small requests: LOOKUP with its redirects, PARTITIONED_METADATA, and the creation of a schema.

Each method sends one frame to the client, failures included: an error never leaves a request without an answer.
`maxConcurrentLookupRequests` is held until the broker has answered (upstream releases it as soon as it has asked).
"""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from limiter.clock import Clock
from limiter.errors import PermitAcquireError
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.discovery import BrokerChoice
from proxy.brokers.known_brokers import KnownBrokers
from proxy.brokers.pool import BrokerPool, PoolKey, Purpose
from proxy.brokers.request import SmallRequest
from proxy.brokers.target import BrokerAddress, parse_address
from proxy.core.errors import FAIL_OVER, OverLimit, ProxyError, RequestFailed, request_failure
from proxy.requests.broker_turns import BrokerTurns, Turn
from proxy.requests.client import ClientView
from proxy.requests.counters import RequestCounters
from proxy.requests.validation import check_get_or_create_schema

MAX_REDIRECTS = 10
TOO_MANY_LOOKUPS = "too many concurrent lookup requests (maxConcurrentLookupRequests)"

# This part of the places is kept for lookups and schemas, and then for connections that have FEW_OUTSTANDING of them.
KEPT_OF: Final = 4
FEW_OUTSTANDING: Final = 16
# When this part of the limit waits, each connection may let only FEW_WAITING lists wait.
CROWDED_SHARE: Final = 8
FEW_WAITING: Final = 2

MakeFrame = Callable[[int], bytes]


class Slot:
    """Holds one of `maxConcurrentLookupRequests` until the request and every question asked for it are over.

    A client that leaves does not end what a broker is still doing for it; otherwise a client could ask without bound by
    connecting again and again.
    """

    __slots__ = ("_permit", "_users", "asker")

    def __init__(self, permit: Permit, asker: Hashable) -> None:
        # The connection that asks, by which requests take turns.
        self.asker = asker
        self._permit = permit
        self._users = 1

    def share(self) -> Callable[[], None]:
        """Add a user; return the callable that ends its use, to be called exactly once."""
        self._users += 1
        return self.release

    def release(self) -> None:
        """End one use."""
        self._users -= 1
        if not self._users:
            self._permit.release()


class ListPlaces:
    """The places of topic lists that have begun, in turns by role, and the number of those that wait.

    A list that waits, for an earlier list of its connection or a place, holds none of `maxConcurrentLookupRequests`:
    otherwise a client that pipelines lists would take the places of all lookups. Lists that wait cost memory: once many
    of all connections do, a connection may let few of its own wait, and is not read meanwhile.
    """

    __slots__ = ("_begun", "_limit", "waiting")

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._begun = AsyncSemaphore("lists", _share(limit), max_queue=0, timeout_seconds=0, clock=clock)
        self.waiting = 0

    def set_limit(self, limit: int) -> None:
        """Change `maxConcurrentLookupRequests`; lists that have begun go on."""
        self._limit = limit
        self._begun.set_limit(_share(limit))

    @property
    def held(self) -> int:
        """Count the lists that have begun."""
        return self._begun.held

    @property
    def queue_size(self) -> int:
        """Count the lists that wait for a place, of the first of their connections."""
        return self._begun.queue_size

    @property
    def crowded(self) -> bool:
        """Return whether so many lists wait that no connection may let many wait."""
        return self.waiting > self._limit // CROWDED_SHARE

    def try_begin(self, role: Hashable) -> Permit | None:
        """Return a place for a list of `role`; None if there is none, or others wait. The caller releases it."""
        return self._begun.try_acquire(1, key=role)

    async def begin(self, role: Hashable, seconds: float) -> Permit | None:
        """Return a place for a list of `role`, or None if none was free in `seconds`. The caller releases it."""
        # Turns cost something: nobody pays for them until a list has to wait.
        self._begun.set_sharing(True, 100)
        try:
            return await self._begun.acquire(1, key=role, timeout_seconds=seconds)
        except PermitAcquireError:
            return None


class LookupService:
    """Forwards small requests to brokers, over connections pooled by principal."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: BrokerPool,
        brokers: BrokerChoice,
        concurrency: AsyncSemaphore,
        counters: RequestCounters,
        timeout_seconds: float,
        *,
        tls: bool = False,
        known: KnownBrokers | None = None,
    ) -> None:
        # Records the brokers that answers name.
        self._known = known
        self._loop = loop
        self._pool = pool
        self._brokers = brokers
        self._concurrency = concurrency
        self.list_places = ListPlaces(concurrency.limit, loop)
        self.turns = BrokerTurns(loop, counters)
        self._counters = counters
        self._timeout_seconds = timeout_seconds
        self._tls = tls

    def apply(self, concurrency: int, timeout_seconds: float) -> None:
        """Change the limits for requests from now on; below the number under way, new requests are refused until enough
        have ended.
        """
        self._concurrency.set_limit(concurrency)
        self.list_places.set_limit(concurrency)
        self._timeout_seconds = timeout_seconds

    @property
    def concurrency(self) -> AsyncSemaphore:
        """Return the semaphore of `maxConcurrentLookupRequests`, for readers only."""
        return self._concurrency

    @property
    def crowded(self) -> bool:
        """Return whether the last places are for connections that have few of them."""
        return self._concurrency.held > _share(self._concurrency.limit)

    def try_begin(self, asker: Hashable) -> Slot | None:
        """Return one of `maxConcurrentLookupRequests`, or None if all are taken; the caller releases the slot."""
        permit = self._concurrency.try_acquire(1)
        return None if permit is None else Slot(permit, asker)

    def full(self) -> OverLimit:
        """Return the failure of a request that may not begin now."""
        held, limit = self._concurrency.held, self._concurrency.limit
        key = "maxConcurrentLookupRequests"
        return OverLimit(ServerError.TooManyRequests, TOO_MANY_LOOKUPS, "lookups", key, held + 1, limit)

    async def lookup(self, client: ClientView, request: pb.CommandLookupTopic, slot: Slot) -> None:
        """Find a topic's owner by following redirects; the answer makes the client come back through this proxy."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                owner_url = await self._find_owner(client.principal, request, slot)
            answer = commands.lookup_connect(request.request_id, owner_url)
        except Exception as error:
            failure = self._failure(error, "lookup")
            answer = commands.lookup_failed(request.request_id, failure.code, failure.message)
        client.output.send(answer)

    async def partition_metadata(
        self, client: ClientView, request: pb.CommandPartitionedTopicMetadata, slot: Slot
    ) -> None:
        """Ask how many partitions a topic has."""
        try:
            found = await self._ask(
                client.principal,
                CommandType.PARTITIONED_METADATA_RESPONSE,
                lambda request_id: commands.partition_metadata_request(request, request_id),
                slot,
            )
            answer = commands.relay_answer(found, request.request_id)
        except Exception as error:
            failure = self._failure(error, "partition metadata")
            answer = commands.partition_metadata_failed(request.request_id, failure.code, failure.message)
        client.output.send(answer)

    async def get_or_create_schema(self, client: ClientView, request: pb.CommandGetOrCreateSchema, slot: Slot) -> None:
        """Register a schema, or find the schema registered."""
        try:
            check_get_or_create_schema(request)
            found = await self._ask(
                client.principal,
                CommandType.GET_OR_CREATE_SCHEMA_RESPONSE,
                lambda request_id: commands.get_or_create_schema_request(request, request_id),
                slot,
            )
            answer = commands.relay_answer(found, request.request_id)
        except Exception as error:
            failure = self._failure(error, "get or create schema")
            answer = commands.error(request.request_id, failure.code, failure.message)
        client.output.send(answer)

    async def _find_owner(self, principal: Hashable, request: pb.CommandLookupTopic, slot: Slot) -> str:
        """Follow redirects, and once more from the beginning if a broker fails: its topics have other owners then."""
        broker = await self._brokers.pick()
        try:
            return await self._follow(broker, principal, request, slot)
        except FAIL_OVER:
            broker = await self._brokers.pick(avoid=broker)
            return await self._follow(broker, principal, request, slot)

    async def _follow(
        self, broker: BrokerAddress, principal: Hashable, request: pb.CommandLookupTopic, slot: Slot
    ) -> str:
        authoritative = False
        for _ in range(MAX_REDIRECTS):
            answer = await self._ask_once(
                PoolKey(broker, principal, Purpose.LOOKUPS),
                CommandType.LOOKUP_RESPONSE,
                partial(_lookup_frame, request, authoritative),
                slot,
            )
            found = answer.lookupTopicResponse
            if not found.HasField("response"):
                raise RequestFailed(ServerError.UnknownError, "the broker's lookup answer is of an unknown kind")
            if found.response == pb.CommandLookupTopicResponse.Failed:
                raise RequestFailed(found.error, found.message)
            url = found.brokerServiceUrlTls if self._tls else found.brokerServiceUrl
            if not url:
                kind = "with" if self._tls else "without"
                text = f"the broker names no address {kind} TLS for this topic's owner (tlsEnabledWithBroker)"
                raise RequestFailed(ServerError.MetadataError, text)
            if self._known is not None:
                # The answer came from a broker that got the proxy's credentials, so the broker may name others.
                self._known.note_url(url)
            if found.response == pb.CommandLookupTopicResponse.Connect:
                return url
            broker = self._redirect_target(url)
            authoritative = found.authoritative
        raise RequestFailed(ServerError.ServiceNotReady, f"reached max number of redirections ({MAX_REDIRECTS})")

    def _redirect_target(self, url: str) -> BrokerAddress:
        scheme = "pulsar+ssl://" if self._tls else "pulsar://"
        if not url.startswith(scheme):
            raise RequestFailed(ServerError.MetadataError, f"the broker redirected to {url[:200]!r}, expected {scheme}")
        return parse_address(url, "the broker's redirect", tls=self._tls)

    async def _ask(self, principal: Hashable, expected: CommandType, make: MakeFrame, slot: Slot) -> pb.BaseCommand:
        """Ask a broker, and once more, another broker if there is one, if the first broker failed."""
        async with asyncio.timeout(self._timeout_seconds):
            broker = await self._brokers.pick()
            try:
                return await self._ask_once(PoolKey(broker, principal, Purpose.LOOKUPS), expected, make, slot)
            except FAIL_OVER:
                broker = await self._brokers.pick(avoid=broker)
                return await self._ask_once(PoolKey(broker, principal, Purpose.LOOKUPS), expected, make, slot)

    async def _ask_once(self, key: PoolKey, expected: CommandType, make: MakeFrame, slot: Slot) -> pb.BaseCommand:
        connection = await self._pool.connection(key)
        turn = await self.turns.begin(key.broker, slot.asker, self._timeout_seconds)
        try:
            request_id = connection.new_request_id()
            frame = make(request_id)
            question = SmallRequest(self._loop, expected, partial(_over, slot.share(), turn))
        except BaseException:
            turn.release()
            raise
        connection.ask(question, request_id, frame)
        return await question.answer

    def _failure(self, error: Exception, where: str) -> RequestFailed:
        self._counters.request_failed(where)
        if not isinstance(error, ProxyError | PermitAcquireError | TimeoutError):
            self._counters.internal_error(error, where)
        return request_failure(error)


def _lookup_frame(request: pb.CommandLookupTopic, authoritative: bool, request_id: int) -> bytes:
    return commands.lookup_request(request, request_id, authoritative=authoritative)


def _over(end_use: Callable[[], None], turn: Turn) -> None:
    end_use()
    turn.release()


def _share(limit: int) -> int:
    return max(1, limit - limit // KEPT_OF)
