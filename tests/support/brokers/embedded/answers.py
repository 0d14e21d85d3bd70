"""Build the embedded broker's answers: a decoded request in, the pieces of a frame out.

Rule: answers are those of Pulsar's broker 4.x, so that a client that works here works there. This module does no I/O.
Faults of content (errors, redirects, wrong request ids) happen here; faults of time and bytes happen in `session`.
"""

from collections.abc import Iterable, Iterator
from typing import Final, cast

from protocol import commands
from protocol.command_type import CommandType, request_id_field
from protocol.errors import ServerError
from protocol.frames import answer_prefix
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.brokers.embedded.script import Failure, Redirect, Script
from tests.support.brokers.embedded.topics import BadRequest, DeadlyRequest, TopicStore, namespace_of, topic_list
from tests.support.brokers.embedded.watchers import Watchers

MAX_MESSAGE_BYTES: Final = 5 * 1024 * 1024
SERVER_VERSION: Final = "embedded-broker"
MOST_SCHEMAS: Final = 1000
SCHEMA_VERSION_BYTES: Final = 8
_FOREIGN_REQUEST_ID: Final = 1 << 40
_NOT_SERVED: Final = Failure(
    ServerError.NotAllowedError, "the embedded broker serves lookups, topic lists, watchers and schemas only"
)


class Answers:
    """Answers the requests on all connections of a broker.

    `schemas` holds the versions of each topic's schema, oldest first; a version is an index into that list.
    """

    def __init__(self, store: TopicStore, script: Script) -> None:
        self.store = store
        self.script = script
        self.service_url = ""
        self.schemas: dict[str, list[pb.Schema]] = {}

    def connected(self, connect: pb.CommandConnect) -> bytes:
        """Build CONNECTED with the feature flags of a broker."""
        command = pb.BaseCommand(type=pb.BaseCommand.CONNECTED)
        connected = command.connected
        connected.server_version = SERVER_VERSION
        connected.protocol_version = commands.negotiated_version(connect.protocol_version)
        connected.max_message_size = MAX_MESSAGE_BYTES
        flags = connected.feature_flags
        flags.supports_topic_watchers = True
        flags.supports_get_partitioned_metadata_without_auto_creation = True
        return commands.frame(command)

    def answer(self, command: pb.BaseCommand, watchers: Watchers) -> Iterable[bytes]:
        """Build the answer to a command; `watchers` are those of its connection.

        The answer is empty if the command has no request id. Raises DeadlyRequest, perhaps only when the first piece
        is iterated.
        """
        kind = command.type
        if kind == CommandType.PING:
            return (commands.PONG_FRAME,)
        field = request_id_field(kind)
        if field is None:
            return ()
        request = getattr(command, field)
        if kind in self.script.unknown_request_id:
            request.request_id += _FOREIGN_REQUEST_ID
        failure = self.script.failures.get(cast(CommandType, kind))
        if failure is not None:
            return (_failed(kind, request.request_id, failure),)
        return self._served(command, request.request_id, watchers)

    def _served(self, command: pb.BaseCommand, request_id: int, watchers: Watchers) -> Iterable[bytes]:
        kind = command.type
        if kind == CommandType.WATCH_TOPIC_LIST:
            return watchers.start(command.watchTopicList)
        if kind == CommandType.WATCH_TOPIC_LIST_CLOSE:
            return (watchers.close(command.watchTopicListClose),)
        if kind == CommandType.GET_TOPICS_OF_NAMESPACE:
            return self._topics(command.getTopicsOfNamespace)
        if kind == CommandType.LOOKUP:
            return (self._lookup(command.lookupTopic),)
        if kind == CommandType.PARTITIONED_METADATA:
            return (self._partitions(command.partitionMetadata),)
        if kind == CommandType.GET_SCHEMA:
            return (self._schema(command.getSchema),)
        if kind == CommandType.GET_OR_CREATE_SCHEMA:
            return (self._new_schema(command.getOrCreateSchema),)
        return (_failed(kind, request_id, _NOT_SERVED),)

    def _topics(self, request: pb.CommandGetTopicsOfNamespace) -> Iterator[bytes]:
        try:
            body = topic_list(self.store, request)
        except BadRequest as error:
            yield commands.error(request.request_id, error.code, str(error))
            return
        yield answer_prefix(CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE, request.request_id, body.rest_bytes)
        yield from body.pieces

    def _lookup(self, request: pb.CommandLookupTopic) -> bytes:
        namespace = namespace_of(request.topic)
        if namespace is None:
            invalid = f"invalid topic name {request.topic!r}"
            return commands.lookup_failed(request.request_id, ServerError.InvalidTopicName, invalid)
        if not self.store.has_namespace(namespace):
            missing = f"namespace {namespace} not found"
            return commands.lookup_failed(request.request_id, ServerError.TopicNotFound, missing)
        if self.script.redirects:
            return _redirected(request.request_id, self.script.redirects.popleft())
        command = pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE)
        response = command.lookupTopicResponse
        response.request_id = request.request_id
        response.response = pb.CommandLookupTopicResponse.Connect
        response.authoritative = True
        _name_broker(response, self.service_url)
        return commands.frame(command)

    def _partitions(self, request: pb.CommandPartitionedTopicMetadata) -> bytes:
        count = self.store.partitions(request.topic)
        if count is None and not request.metadata_auto_creation_enabled:
            missing = f"topic {request.topic} not found"
            return commands.partition_metadata_failed(request.request_id, ServerError.TopicNotFound, missing)
        return commands.partition_metadata_success(request.request_id, count or 0)

    def _schema(self, request: pb.CommandGetSchema) -> bytes:
        if request.HasField("schema_version") and len(request.schema_version) < SCHEMA_VERSION_BYTES:
            raise DeadlyRequest(f"schema version: got {len(request.schema_version)} bytes, expected 8")
        command = pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA_RESPONSE)
        response = command.getSchemaResponse
        response.request_id = request.request_id
        versions = self.schemas.get(request.topic, [])
        wanted = int.from_bytes(request.schema_version, "big") if request.schema_version else len(versions) - 1
        if not 0 <= wanted < len(versions):
            response.error_code = pb.TopicNotFound
            response.error_message = f"topic {request.topic} has no such schema"
        else:
            response.schema.CopyFrom(versions[wanted])
            response.schema_version = wanted.to_bytes(SCHEMA_VERSION_BYTES, "big")
        return commands.frame(command)

    def _new_schema(self, request: pb.CommandGetOrCreateSchema) -> bytes:
        if namespace_of(request.topic) is None:
            raise DeadlyRequest(f"invalid topic name {request.topic!r}")
        command = pb.BaseCommand(type=pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE)
        response = command.getOrCreateSchemaResponse
        response.request_id = request.request_id
        versions = self.schemas.get(request.topic, [])
        if request.schema not in versions:
            if sum(map(len, self.schemas.values())) >= MOST_SCHEMAS:
                response.error_code = pb.PersistenceError
                response.error_message = f"the embedded broker keeps {MOST_SCHEMAS} schemas at most"
                return commands.frame(command)
            versions = self.schemas.setdefault(request.topic, versions)
            versions.append(request.schema)
        response.schema_version = versions.index(request.schema).to_bytes(SCHEMA_VERSION_BYTES, "big")
        return commands.frame(command)


def _redirected(request_id: int, redirect: Redirect) -> bytes:
    command = pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE)
    response = command.lookupTopicResponse
    response.request_id = request_id
    response.response = pb.CommandLookupTopicResponse.Redirect
    _name_broker(response, redirect.url)
    response.authoritative = redirect.authoritative
    response.proxy_through_service_url = redirect.proxy_through_service_url
    return commands.frame(command)


def _name_broker(response: pb.CommandLookupTopicResponse, url: str) -> None:
    response.brokerServiceUrl = url
    if url.startswith("pulsar+ssl:"):
        response.brokerServiceUrlTls = url


def _failed(kind: int, request_id: int, failure: Failure) -> bytes:
    if kind == CommandType.LOOKUP:
        return commands.lookup_failed(request_id, failure.code, failure.message)
    if kind == CommandType.PARTITIONED_METADATA:
        return commands.partition_metadata_failed(request_id, failure.code, failure.message)
    return commands.error(request_id, failure.code, failure.message)
