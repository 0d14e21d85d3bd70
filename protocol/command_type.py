"""Command numbers up to Pulsar 5.0, and how to read a number without decoding the command.

Works on raw bytes; the generated module is loaded only for the question which sub-message carries a request id.
"""

from enum import IntEnum
from functools import cache
from typing import Final


class CommandType(IntEnum):
    """The values of BaseCommand.Type; a number above or between them is a command of a newer release."""

    CONNECT = 2
    CONNECTED = 3
    SUBSCRIBE = 4
    PRODUCER = 5
    SEND = 6
    SEND_RECEIPT = 7
    SEND_ERROR = 8
    MESSAGE = 9
    ACK = 10
    FLOW = 11
    UNSUBSCRIBE = 12
    SUCCESS = 13
    ERROR = 14
    CLOSE_PRODUCER = 15
    CLOSE_CONSUMER = 16
    PRODUCER_SUCCESS = 17
    PING = 18
    PONG = 19
    REDELIVER_UNACKNOWLEDGED_MESSAGES = 20
    PARTITIONED_METADATA = 21
    PARTITIONED_METADATA_RESPONSE = 22
    LOOKUP = 23
    LOOKUP_RESPONSE = 24
    CONSUMER_STATS = 25
    CONSUMER_STATS_RESPONSE = 26
    REACHED_END_OF_TOPIC = 27
    SEEK = 28
    GET_LAST_MESSAGE_ID = 29
    GET_LAST_MESSAGE_ID_RESPONSE = 30
    ACTIVE_CONSUMER_CHANGE = 31
    GET_TOPICS_OF_NAMESPACE = 32
    GET_TOPICS_OF_NAMESPACE_RESPONSE = 33
    GET_SCHEMA = 34
    GET_SCHEMA_RESPONSE = 35
    AUTH_CHALLENGE = 36
    AUTH_RESPONSE = 37
    ACK_RESPONSE = 38
    GET_OR_CREATE_SCHEMA = 39
    GET_OR_CREATE_SCHEMA_RESPONSE = 40
    NEW_TXN = 50
    NEW_TXN_RESPONSE = 51
    ADD_PARTITION_TO_TXN = 52
    ADD_PARTITION_TO_TXN_RESPONSE = 53
    ADD_SUBSCRIPTION_TO_TXN = 54
    ADD_SUBSCRIPTION_TO_TXN_RESPONSE = 55
    END_TXN = 56
    END_TXN_RESPONSE = 57
    END_TXN_ON_PARTITION = 58
    END_TXN_ON_PARTITION_RESPONSE = 59
    END_TXN_ON_SUBSCRIPTION = 60
    END_TXN_ON_SUBSCRIPTION_RESPONSE = 61
    TC_CLIENT_CONNECT_REQUEST = 62
    TC_CLIENT_CONNECT_RESPONSE = 63
    WATCH_TOPIC_LIST = 64
    WATCH_TOPIC_LIST_SUCCESS = 65
    WATCH_TOPIC_UPDATE = 66
    WATCH_TOPIC_LIST_CLOSE = 67
    TOPIC_MIGRATED = 68
    SCALABLE_TOPIC_LOOKUP = 70
    SCALABLE_TOPIC_UPDATE = 71
    SCALABLE_TOPIC_CLOSE = 72
    SCALABLE_TOPIC_SUBSCRIBE = 73
    SCALABLE_TOPIC_SUBSCRIBE_RESPONSE = 74
    SCALABLE_TOPIC_ASSIGNMENT_UPDATE = 75
    WATCH_SCALABLE_TOPICS = 76
    WATCH_SCALABLE_TOPICS_UPDATE = 77
    WATCH_SCALABLE_TOPICS_CLOSE = 78
    WATCH_TC_ASSIGNMENTS = 79
    WATCH_TC_ASSIGNMENTS_UPDATE = 80
    WATCH_TC_ASSIGNMENTS_CLOSE = 81
    SCALABLE_TOPIC_UNSUBSCRIBE = 82


_TYPE_TAG: Final = 0x08
_TYPE_FIELD: Final = 1
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES: Final = 10


def peek_command_type(command: bytes | bytearray | memoryview) -> int | None:
    """Return a command's type, or None if these bytes hold no type (or not yet).

    Every known encoder writes the type first; any other order is legal protobuf and is searched.
    """
    if len(command) >= 2 and command[0] == _TYPE_TAG and command[1] < 0x80:
        return command[1]
    return _search_type(command)


def _search_type(command: bytes | bytearray | memoryview) -> int | None:
    position = 0
    while True:
        tag, position = _read_varint(command, position)
        if tag is None:
            return None
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, position = _read_varint(command, position)
            if value is None or tag >> 3 == _TYPE_FIELD:
                return value
        elif wire_type == _LENGTH_DELIMITED:
            length, position = _read_varint(command, position)
            if length is None:
                return None
            position += length
        elif wire_type == _FIXED64:
            position += 8
        elif wire_type == _FIXED32:
            position += 4
        else:
            return None


def _read_varint(data: bytes | bytearray | memoryview, position: int) -> tuple[int | None, int]:
    value = shift = 0
    for index in range(position, min(len(data), position + _MAX_VARINT_BYTES)):
        value |= (data[index] & 0x7F) << shift
        if data[index] < 0x80:
            return value, index + 1
        shift += 7
    return None, position


@cache
def _request_id_fields() -> dict[int, tuple[str, int]]:
    from protocol.pb import PulsarApi_pb2 as pb

    return {
        field.number: (field.name, field.message_type.fields_by_name["request_id"].number)
        for field in pb.BaseCommand.DESCRIPTOR.fields
        if field.message_type is not None and "request_id" in field.message_type.fields_by_name
    }


def request_id_field(command_type: int) -> str | None:
    """Return the name of the sub-message of BaseCommand that carries this command's request id; None without one."""
    name, _ = _request_id_fields().get(command_type, (None, 0))
    return name


def request_id_number(command_type: int) -> int | None:
    """Return the number of the request id among the fields of this command's sub-message; None without one.

    None for a command of a newer release, too: the first number in it could be a consumer's, as in half of the known
    commands, and a refusal with that number would end a request that has nothing to do with it.
    """
    _, number = _request_id_fields().get(command_type, (None, None))
    return number
