"""Decode the commands a proxy reads, and build the framed bytes of those it sends.

Rule: a forwarded command keeps all fields of its sender, fields of newer releases included. Only the request id and the
`original_*` fields are replaced, the latter because a client must not choose its own principal. Answers are those of
the Java proxy, so that no client sees a difference.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError

from protocol.command_type import CommandType, request_id_field
from protocol.errors import LocalProtocolError, MalformedFrame, ServerError, UnexpectedCommand
from protocol.field_walker import check_fields
from protocol.frames import answer_frame, bare_frame, frame_sizes, leading_type, varint
from protocol.pb import PulsarApi_pb2 as pb

PROTOCOL_VERSION: Final = 21
# proxy_to_broker_url came with version 10: an older client cannot be sent through a proxy.
OLDEST_CLIENT_VERSION: Final = 10
# -1 as an unsigned 64-bit number: the ERROR is about the connection, not about one request.
REQUEST_ID_NONE: Final = 0xFFFF_FFFF_FFFF_FFFF
MAX_ERROR_CHARS: Final = 512
# A challenge with this data asks a client for newer credentials of the same method (PIP-55).
REFRESH_DATA: Final = b"PulsarAuthRefresh"


@dataclass(slots=True, frozen=True)
class Credentials:
    """The credentials of the proxy and of the client it speaks for, sent to a broker; None leaves a field out."""

    auth_method_name: str | None = None
    auth_data: bytes | None = None
    original_principal: str | None = None
    original_auth_data: str | None = None
    original_auth_method: str | None = None


ANONYMOUS: Final = Credentials()


# ---- Decoding and framing ----


def decode_command(command: bytes | bytearray | memoryview) -> pb.BaseCommand:
    """Decode the bytes of one command, after counting its fields.

    Raises TooManyFields for a command that would grow when it is decoded, MalformedFrame for bytes that are no command
    or lack a required field, UnexpectedCommand for an unknown number. An ERROR with a code of a newer release is read
    as UnknownError.
    """
    check_fields(command)
    decoded = parse(command)
    _check_type(decoded, leading_type(command, 0)[0])
    if decoded.type == CommandType.ERROR and not decoded.error.HasField("error"):
        decoded.error.error = pb.UnknownError
    _check_fields(decoded)
    return decoded


def parse(command: bytes | bytearray | memoryview) -> pb.BaseCommand:
    """Parse bytes that were checked by `check_fields`; raises MalformedFrame for bytes that are no command."""
    try:
        return pb.BaseCommand.FromString(command)  # type: ignore[arg-type]  # any buffer will do
    except DecodeError as error:
        raise MalformedFrame(f"got {len(command)} bytes that are no pulsar command") from error


def _check_type(decoded: pb.BaseCommand, peeked: int | None) -> None:
    if decoded.HasField("type"):
        # The state tables judge the peeked number: a second type must not get past them.
        if peeked != decoded.type:
            raise MalformedFrame(f"got a command with two types, {peeked} and {decoded.type}")
    elif peeked is None:
        raise MalformedFrame("got a command without a type")
    else:
        raise UnexpectedCommand(f"got a command of unknown type {peeked}")


def _check_fields(decoded: pb.BaseCommand) -> None:
    name, text_fields = _sub_message(decoded.type)
    content = getattr(decoded, name)
    # A missing sub-message reads as an empty sub-message: fine for PING, not for LOOKUP.
    if not content.IsInitialized() or not decoded.IsInitialized():
        # protobuf's FindInitializationErrors makes a text for each field that is missing at any depth.
        missing = [name for name in _required_fields(decoded.type) if not content.HasField(name)]
        what = ", ".join(missing) or "a required field of a field"
        raise MalformedFrame(f"got a {_type_name(decoded.type)} command without {what}")
    for field in text_fields:
        # The protobuf runtime returns bytes, not str, for text that is not UTF-8.
        if isinstance(getattr(content, field), bytes):
            raise MalformedFrame(f"got a {_type_name(decoded.type)} command whose {field} is not utf-8")


@cache
def _sub_message(command_type: int) -> tuple[str, tuple[str, ...]]:
    field = pb.BaseCommand.DESCRIPTOR.fields_by_number[command_type]
    assert field.message_type is not None
    texts = (inner for inner in field.message_type.fields if inner.type == FieldDescriptor.TYPE_STRING)
    return field.name, tuple(inner.name for inner in texts if not inner.is_repeated)


@cache
def _required_fields(command_type: int) -> tuple[str, ...]:
    message_type = pb.BaseCommand.DESCRIPTOR.fields_by_number[command_type].message_type
    assert message_type is not None
    return tuple(inner.name for inner in message_type.fields if inner.is_required)


def _type_name(command_type: int) -> str:
    return CommandType(command_type).name


def frame(command: pb.BaseCommand) -> bytes:
    """Encode one command as a frame; raises LocalProtocolError if a required field is missing."""
    try:
        encoded = command.SerializeToString()
    except EncodeError as error:
        raise LocalProtocolError(f"cannot encode an incomplete command: {error}") from error
    return frame_sizes(len(encoded)) + encoded


def request_id_of(command: pb.BaseCommand) -> int:
    """Return the request id of any command, or REQUEST_ID_NONE for a command without a request id."""
    name = request_id_field(command.type)
    if name is None:
        return REQUEST_ID_NONE
    content = getattr(command, name)
    return cast(int, content.request_id) if content.HasField("request_id") else REQUEST_ID_NONE


# ---- Handshake and keep-alive ----


def negotiated_version(client_version: int) -> int:
    """Return the protocol version to speak with a client."""
    return min(client_version, PROTOCOL_VERSION)


def connected_lookup(client: pb.CommandConnect, server_version: str) -> bytes:
    """Build CONNECTED for lookup mode: no size limit, and no watchers, because lookup mode does not serve them."""
    connected = _connected(server_version, negotiated_version(client.protocol_version))
    flags = connected.connected.feature_flags
    flags.supports_topic_watchers = False
    flags.supports_topic_watcher_reconcile = False
    flags.supports_get_partitioned_metadata_without_auto_creation = True
    flags.supports_repl_dedup_by_lid_and_eid = True
    return frame(connected)


def connected_direct(broker: pb.CommandConnected, server_version: str) -> bytes:
    """Build CONNECTED for a relayed connection: version, message size and features are the broker's.

    A feature that this release does not know is passed on, too: what comes of it passes the relay.
    """
    connected = _connected(server_version, negotiated_version(broker.protocol_version))
    if broker.HasField("max_message_size"):
        connected.connected.max_message_size = broker.max_message_size
    if broker.HasField("feature_flags"):
        connected.connected.feature_flags.CopyFrom(broker.feature_flags)
    return frame(connected)


def _connected(server_version: str, protocol_version: int) -> pb.BaseCommand:
    command = _command(CommandType.CONNECTED)
    command.connected.server_version = f"Pulsar Server{server_version}"
    command.connected.protocol_version = protocol_version
    return command


def connect_direct(client: pb.CommandConnect, proxy_version: str, credentials: Credentials = ANONYMOUS) -> bytes:
    """Build CONNECT to a broker for a client that will be relayed: version and features are the client's."""
    command = _command(CommandType.CONNECT)
    command.connect.client_version = client.client_version
    command.connect.protocol_version = negotiated_version(client.protocol_version)
    command.connect.proxy_version = proxy_version
    if client.HasField("feature_flags"):
        command.connect.feature_flags.CopyFrom(client.feature_flags)
    _introduce(command.connect, credentials)
    return frame(command)


def connect_kept(client: pb.CommandConnect) -> pb.CommandConnect:
    """Copy what `connect_direct` takes of a client's CONNECT, and its target; credentials are not in the copy."""
    kept = pb.CommandConnect(
        client_version=client.client_version,
        protocol_version=client.protocol_version,
        proxy_to_broker_url=client.proxy_to_broker_url,
    )
    if client.HasField("feature_flags"):
        kept.feature_flags.CopyFrom(client.feature_flags)
    return kept


def connect_lookup(
    client_version: str, proxy_version: str | None = None, credentials: Credentials = ANONYMOUS
) -> bytes:
    """Build CONNECT to a broker for requests only.

    Without authentication the proxy is a plain client: after a `proxy_version` a broker expects a principal.
    """
    command = _command(CommandType.CONNECT)
    command.connect.client_version = client_version
    command.connect.protocol_version = PROTOCOL_VERSION
    if proxy_version is not None:
        command.connect.proxy_version = proxy_version
    flags = command.connect.feature_flags
    flags.supports_auth_refresh = True
    flags.supports_broker_entry_metadata = True
    flags.supports_partial_producer = True
    flags.supports_get_partitioned_metadata_without_auto_creation = True
    flags.supports_repl_dedup_by_lid_and_eid = True
    _introduce(command.connect, credentials)
    return frame(command)


def _introduce(connect: pb.CommandConnect, credentials: Credentials) -> None:
    if credentials.auth_method_name is not None:
        connect.auth_method_name = credentials.auth_method_name
    if credentials.auth_data is not None:
        connect.auth_data = credentials.auth_data
    if credentials.original_principal is not None:
        connect.original_principal = credentials.original_principal
    if credentials.original_auth_data is not None:
        connect.original_auth_data = credentials.original_auth_data
    if credentials.original_auth_method is not None:
        connect.original_auth_method = credentials.original_auth_method


def auth_response(client_version: str, credentials: Credentials) -> bytes:
    """Build the AUTH_RESPONSE to a broker's challenge, with the proxy's own credentials."""
    command = _command(CommandType.AUTH_RESPONSE)
    command.authResponse.client_version = client_version
    command.authResponse.protocol_version = PROTOCOL_VERSION
    response = command.authResponse.response
    response.auth_method_name = credentials.auth_method_name or "none"
    response.auth_data = credentials.auth_data or b""
    return frame(command)


def auth_challenge(server_version: str, method: str, protocol_version: int) -> bytes:
    """Build the AUTH_CHALLENGE that asks a client for newer credentials of the same method (PIP-55)."""
    command = _command(CommandType.AUTH_CHALLENGE)
    command.authChallenge.server_version = f"Pulsar Server{server_version}"
    command.authChallenge.protocol_version = protocol_version
    command.authChallenge.challenge.auth_method_name = method
    command.authChallenge.challenge.auth_data = REFRESH_DATA
    return frame(command)


def auth_method(connect: pb.CommandConnect) -> str:
    """Return the method of a client's credentials, or "none"; clients older than version 7 send a number."""
    if connect.HasField("auth_method_name"):
        return connect.auth_method_name
    if connect.HasField("auth_method"):
        return pb.AuthMethod.Name(connect.auth_method).removeprefix("AuthMethod").lower()
    return "none"


# ---- Requests to a broker ----


def lookup_request(client: pb.CommandLookupTopic, request_id: int, *, authoritative: bool) -> bytes:
    """Build LOOKUP from a client's: topic, listener name and properties are forwarded unchanged."""
    command = _command(CommandType.LOOKUP)
    command.lookupTopic.CopyFrom(client)
    command.lookupTopic.request_id = request_id
    command.lookupTopic.authoritative = authoritative
    _drop_original(command.lookupTopic)
    return frame(command)


def partition_metadata_request(client: pb.CommandPartitionedTopicMetadata, request_id: int) -> bytes:
    """Build PARTITIONED_METADATA from a client's."""
    command = _command(CommandType.PARTITIONED_METADATA)
    command.partitionMetadata.CopyFrom(client)
    command.partitionMetadata.request_id = request_id
    _drop_original(command.partitionMetadata)
    return frame(command)


def topic_list_question(request: pb.CommandGetTopicsOfNamespace) -> bytes:
    """Return everything that a topic-list request asks for: the request without its id."""
    question = pb.CommandGetTopicsOfNamespace()
    question.CopyFrom(request)
    question.request_id = 0
    return question.SerializeToString(deterministic=True)


_Forwarded = pb.CommandGetTopicsOfNamespace | pb.CommandGetSchema | pb.CommandGetOrCreateSchema


def forwarded_request(command_type: CommandType, client: _Forwarded, request_id: int) -> bytes:
    """Build a request from a client's, forwarded unchanged but for its request id."""
    command = _command(command_type)
    name, _ = _sub_message(command_type)
    content = getattr(command, name)
    content.CopyFrom(client)
    content.request_id = request_id
    return frame(command)


def _drop_original(request: pb.CommandLookupTopic | pb.CommandPartitionedTopicMetadata) -> None:
    request.ClearField("original_principal")
    request.ClearField("original_auth_data")
    request.ClearField("original_auth_method")


# ---- Answers to a client ----


def lookup_connect(request_id: int, broker_url: str) -> bytes:
    """Build the LOOKUP_RESPONSE that sends a client to `broker_url` through this proxy.

    Both fields carry the URL: the client sends it back as proxy_to_broker_url, whichever field it reads.
    """
    command = _command(CommandType.LOOKUP_RESPONSE)
    response = command.lookupTopicResponse
    response.request_id = request_id
    response.response = pb.CommandLookupTopicResponse.Connect
    response.authoritative = True
    response.proxy_through_service_url = True
    response.brokerServiceUrl = broker_url
    response.brokerServiceUrlTls = broker_url
    return frame(command)


def lookup_failed(request_id: int, code: int, message: str) -> bytes:
    """Build the LOOKUP_RESPONSE of a lookup that failed with a ServerError number."""
    command = _command(CommandType.LOOKUP_RESPONSE)
    response = command.lookupTopicResponse
    response.request_id = request_id
    response.response = pb.CommandLookupTopicResponse.Failed
    response.error = _server_error(code)
    response.message = presentable(message)
    return frame(command)


def partition_metadata_success(request_id: int, partitions: int) -> bytes:
    """Build the PARTITIONED_METADATA_RESPONSE with a count (0: the topic is not partitioned)."""
    command = _command(CommandType.PARTITIONED_METADATA_RESPONSE)
    response = command.partitionMetadataResponse
    response.request_id = request_id
    response.response = pb.CommandPartitionedTopicMetadataResponse.Success
    response.partitions = partitions
    return frame(command)


def partition_metadata_failed(request_id: int, code: int, message: str) -> bytes:
    """Build the PARTITIONED_METADATA_RESPONSE of a request that failed with a ServerError number."""
    command = _command(CommandType.PARTITIONED_METADATA_RESPONSE)
    response = command.partitionMetadataResponse
    response.request_id = request_id
    response.response = pb.CommandPartitionedTopicMetadataResponse.Failed
    response.error = _server_error(code)
    response.message = presentable(message)
    return frame(command)


def relay_answer(answer: pb.BaseCommand, request_id: int) -> bytes:
    """Build a client's answer from a broker's by changing its request id; `answer` is changed in place.

    A schema may be large, and a copy would be memory that no permit covers. Raises
    LocalProtocolError for a command that carries no request id.
    """
    name = request_id_field(answer.type)
    if name is None:
        raise LocalProtocolError(f"a {_type_name(answer.type)} command has no request id to change")
    getattr(answer, name).request_id = request_id
    return frame(answer)


def error(request_id: int, code: int, message: str) -> bytes:
    """Build ERROR with a ServerError number; request id REQUEST_ID_NONE (or -1) is about the connection."""
    # Written by hand: floods of refused commands are answered, too, and protobuf takes ten times as long.
    text = presentable(message).encode()
    request = varint(request_id & REQUEST_ID_NONE)
    content = b"\x08" + request + b"\x10" + varint(_server_error(code)) + b"\x1a" + varint(len(text)) + text
    return answer_frame(CommandType.ERROR, content)


def presentable(message: str) -> str:
    """Cut a message to MAX_ERROR_CHARS and escape control characters, because the message may quote a peer's bytes."""
    if len(message) > MAX_ERROR_CHARS:
        message = message[: MAX_ERROR_CHARS - 3] + "..."
    if message.isprintable():
        return message
    escaped = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in message)
    return escaped if len(escaped) <= MAX_ERROR_CHARS else escaped[: MAX_ERROR_CHARS - 3] + "..."


def _server_error(code: int) -> pb.ServerError:
    # A number that only a newer release knows must not make sending fail.
    known = code if code in ServerError._value2member_map_ else ServerError.UnknownError
    return cast("pb.ServerError", int(known))


def _command(command_type: CommandType) -> pb.BaseCommand:
    return pb.BaseCommand(type=cast("pb.BaseCommand.Type", int(command_type)))


PING_FRAME: Final = bare_frame(CommandType.PING)
PONG_FRAME: Final = bare_frame(CommandType.PONG)
