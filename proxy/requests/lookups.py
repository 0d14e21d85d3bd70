"""Forward the small requests: LOOKUP with its redirects, PARTITIONED_METADATA, and the creation of a schema.

Each request gets one frame, failures included: an error never leaves a request without an answer (`forwarding`).
`maxConcurrentLookupRequests` is held until the broker has answered (upstream releases it as soon as it has asked).
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from limiter.semaphore import AsyncSemaphore
from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.side import BrokerSide
from proxy.brokers.target import BrokerAddress, parse_address
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.errors import OverLimit, RequestFailed
from proxy.requests.broker_turns import Asker
from proxy.requests.forwarding import ForwardedRequest, Forwarder, RequestParts
from proxy.requests.places import KEPT_OF, ListPlaces, Slot
from proxy.requests.validation import check_get_or_create_schema

if TYPE_CHECKING:
    from proxy.requests.request_bytes import RequestBytes

# The Java proxy asks ten brokers for a lookup, and so follows nine redirects; over HTTP ten are followed.
MOST_ASKED: Final = 10
TOO_MANY_LOOKUPS = "too many concurrent lookup requests (maxConcurrentLookupRequests)"
WAITED_TOO_LONG = "the proxy has more requests than it can serve in time"

# What of the places is kept (KEPT_OF) is for connections that have FEW_OUTSTANDING of them, fewer as it fills: so
# thousands of connections take all places together only if each has LEAST_OUTSTANDING of them.
FEW_OUTSTANDING: Final = 16
LEAST_OUTSTANDING: Final = 2
_Request: TypeAlias = pb.CommandPartitionedTopicMetadata | pb.CommandGetOrCreateSchema


class _Lookup(ForwardedRequest):
    """Finds a topic's owner by following redirects; the answer makes the client come back through this proxy."""

    __slots__ = ("_authoritative", "_redirects", "_request", "_request_id", "_service")

    kind = "lookup"

    def __init__(self, service: "LookupService", parts: RequestParts, request: pb.CommandLookupTopic) -> None:
        super().__init__(CommandType.LOOKUP_RESPONSE, service.forwarder, parts)
        self._service = service
        self._request: pb.CommandLookupTopic | None = request
        self._request_id = request.request_id
        self._authoritative = False
        self._redirects = 0

    def question(self, request_id: int) -> bytes:
        """Return the LOOKUP for the broker."""
        assert self._request is not None
        return commands.lookup_request(self._request, request_id, authoritative=self._authoritative)

    def answer(self, found: pb.BaseCommand) -> bytes | None:
        """Return the answer that names the owner, or follow a redirect."""
        url, redirected = self._service.followed(found.lookupTopicResponse)
        if not redirected:
            return commands.lookup_connect(self._request_id, url)
        broker = self._service.redirect_target(url)
        self._authoritative = found.lookupTopicResponse.authoritative
        if self._redirects + 1 == MOST_ASKED:
            text = f"reached max number of redirections ({MOST_ASKED})"
            raise RequestFailed(ServerError.ServiceNotReady, text)
        self._redirects += 1
        self.ask(broker)
        return None

    def begins_anew(self) -> None:
        """Begin at a configured broker: the topics of a broker that failed have other owners then."""
        self._authoritative = False
        self._redirects = 0

    def refusal(self, failure: RequestFailed) -> bytes:
        """Return the LOOKUP_RESPONSE of a lookup that failed."""
        return commands.lookup_failed(self._request_id, failure.code, failure.message)

    def done(self) -> None:
        """Forget the client's LOOKUP."""
        self._request = None


class _Kind(NamedTuple):
    """A kind of request that one question answers: its name, the answer's type, and how its frames are made."""

    name: str
    expected: CommandType
    question: Callable[[Any, int], bytes]
    refusal: Callable[[int, int, str], bytes]
    check: Callable[[Any], None] | None = None


_PARTITION_METADATA: Final = _Kind(
    "partition metadata",
    CommandType.PARTITIONED_METADATA_RESPONSE,
    commands.partition_metadata_request,
    commands.partition_metadata_failed,
)
_SCHEMA_CREATION: Final = _Kind(
    "get or create schema",
    CommandType.GET_OR_CREATE_SCHEMA_RESPONSE,
    partial(commands.forwarded_request, CommandType.GET_OR_CREATE_SCHEMA),
    commands.error,
    check_get_or_create_schema,
)


class _OneQuestion(ForwardedRequest):
    """Asks how many partitions a topic has, or registers a schema; the broker's answer goes on as it came."""

    __slots__ = ("_of", "_request", "_request_id", "kind")

    def __init__(self, of: _Kind, forwarder: Forwarder, parts: RequestParts, request: _Request) -> None:
        super().__init__(of.expected, forwarder, parts)
        self.kind = of.name
        self._of = of
        self._request: _Request | None = request
        self._request_id = request.request_id

    def check(self) -> None:
        """Raise RequestFailed for a request that no broker must get."""
        if self._of.check is not None:
            self._of.check(self._request)

    def question(self, request_id: int) -> bytes:
        """Return the frame for the broker."""
        return self._of.question(self._request, request_id)

    def answer(self, found: pb.BaseCommand) -> bytes:
        """Return the broker's answer under the client's request id."""
        return commands.relay_answer(found, self._request_id)

    def refusal(self, failure: RequestFailed) -> bytes:
        """Return the answer of a request that failed."""
        return self._of.refusal(self._request_id, failure.code, failure.message)

    def done(self) -> None:
        """Forget the client's request, which may be large."""
        self._request = None


class LookupService:
    """Forwards small requests to brokers, over connections pooled by principal."""

    def __init__(
        self,
        core: Core,
        side: BrokerSide,
        concurrency: AsyncSemaphore,
        request_bytes: "RequestBytes | None" = None,
    ) -> None:
        # None without a limit of bytes.
        self.request_bytes = request_bytes
        # Records the brokers that answers name.
        self._known = side.known
        self._loop = core.loop
        # The semaphore of `maxConcurrentLookupRequests`.
        self.concurrency = concurrency
        self.list_places = ListPlaces(concurrency.limit, core.loop)
        self.forwarder = Forwarder(core.loop, side.pool, side.brokers, core.counters)
        self._timeout_seconds = core.config.seconds(Config.topic_list_request_timeout_millis)
        self._tls = core.config.tls_enabled_with_broker

    def apply(self, concurrency: int, timeout_seconds: float) -> None:
        """Change the limits for requests from now on; below the number under way, new requests are refused until enough
        have ended.
        """
        self.concurrency.set_limit(concurrency)
        self.list_places.set_limit(concurrency)
        self._timeout_seconds = timeout_seconds

    def enough_for_one(self, outstanding: int) -> bool:
        """Return whether a connection has so many requests outstanding that the last places are not for it."""
        limit = self.concurrency.limit
        free = limit - self.concurrency.held
        return free < limit // KEPT_OF and outstanding * limit >= FEW_OUTSTANDING * KEPT_OF * free

    def try_begin(self, asker: Asker, since: float, size: int = 0) -> Slot | None:
        """Return one of `maxConcurrentLookupRequests`, or None if all are taken; the caller releases the slot.

        `size`: the bytes of the command, which the slot charges. The request has waited `since` then; 0.0: it has
        just come.
        """
        permit = self.concurrency.try_acquire(1)
        if permit is None:
            return None
        return Slot(permit, asker, since or self._loop.time(), self.request_bytes, size)

    def too_late(self, since: float) -> bool:
        """Return whether the time of a request that has waited since then is over."""
        return since + self._timeout_seconds <= self._loop.time()

    def late(self) -> OverLimit:
        """Return the failure of a request that is too late."""
        key, seconds = "topicListRequestTimeoutMillis", int(self._timeout_seconds)
        return OverLimit(ServerError.TooManyRequests, WAITED_TOO_LONG, "turns", key, seconds, seconds)

    def full(self) -> OverLimit:
        """Return the failure of a request that may not begin now."""
        held, limit = self.concurrency.held, self.concurrency.limit
        key = "maxConcurrentLookupRequests"
        return OverLimit(ServerError.TooManyRequests, TOO_MANY_LOOKUPS, "lookups", key, held + 1, limit)

    def start(self, command: pb.BaseCommand, parts: RequestParts) -> ForwardedRequest:
        """Begin to serve a request, in the next iteration of the loop; the slot is released when it is over."""
        started: ForwardedRequest
        if command.type == CommandType.LOOKUP:
            started = _Lookup(self, parts, command.lookupTopic)
        elif command.type == CommandType.PARTITIONED_METADATA:
            started = _OneQuestion(_PARTITION_METADATA, self.forwarder, parts, command.partitionMetadata)
        else:
            assert command.type == CommandType.GET_OR_CREATE_SCHEMA
            started = _OneQuestion(_SCHEMA_CREATION, self.forwarder, parts, command.getOrCreateSchema)
        started.begin(parts.slot.arrived + self._timeout_seconds)
        return started

    async def close(self) -> None:
        """Cancel the waits that are still under way: no client is left."""
        await self.forwarder.close()

    def followed(self, found: pb.CommandLookupTopicResponse) -> tuple[str, bool]:
        """Return the address in a broker's answer, and whether that broker is to be asked; raise RequestFailed."""
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
        return url, found.response != pb.CommandLookupTopicResponse.Connect

    def redirect_target(self, url: str) -> BrokerAddress:
        """Return the broker that a redirect names; raise RequestFailed or TargetRefused."""
        scheme = "pulsar+ssl://" if self._tls else "pulsar://"
        if not url.startswith(scheme):
            raise RequestFailed(ServerError.MetadataError, f"the broker redirected to {url[:200]!r}, expected {scheme}")
        return parse_address(url, "the broker's redirect", tls=self._tls)
