"""Command numbers up to Pulsar 5.0, and which commands carry a request id.

The generated module is loaded only for the latter.
"""

from enum import IntEnum
from functools import cache


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
