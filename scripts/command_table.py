"""Every command of PulsarApi.proto: who sends it, what it belongs to, and what this proxy does with it.

What is served where stands in `protocol.states` alone; here is what serving means, in words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from protocol.command_type import CommandType as C
from protocol.states import DEFAULT_VERDICTS, VERDICTS, Role, State, Verdict, close_cause


class Sender(StrEnum):
    """Who sends a command to whom; brokers are clients of each other when they replicate or end transactions."""

    CLIENT = "client"
    BROKER = "broker"
    BOTH = "both"


class Theme(StrEnum):
    """What a command belongs to."""

    SESSION = "session"
    LOOKUP = "lookup"
    PRODUCE = "producing"
    CONSUME = "consuming"
    SCHEMA = "schemas"
    TRANSACTION = "transactions"
    WATCH = "topic lists for watchers"
    GEO = "geo-replication"
    SCALABLE = "scalable topics (5.0)"
    DISCOVERY = "transaction coordinators (5.0)"


@dataclass(frozen=True, slots=True)
class Row:
    """A command with its row of the table."""

    command: C
    sender: Sender
    theme: Theme


def _rows(
    theme: Theme, *, client: tuple[C, ...] = (), broker: tuple[C, ...] = (), both: tuple[C, ...] = ()
) -> list[Row]:
    named = ((Sender.CLIENT, client), (Sender.BROKER, broker), (Sender.BOTH, both))
    return [Row(command, sender, theme) for sender, commands in named for command in commands]


COMMANDS: Final = (
    *_rows(
        Theme.SESSION,
        client=(C.CONNECT, C.AUTH_RESPONSE),
        broker=(C.CONNECTED, C.AUTH_CHALLENGE, C.SUCCESS, C.ERROR),
        both=(C.PING, C.PONG),
    ),
    *_rows(
        Theme.LOOKUP,
        client=(C.LOOKUP, C.PARTITIONED_METADATA, C.GET_TOPICS_OF_NAMESPACE),
        broker=(C.LOOKUP_RESPONSE, C.PARTITIONED_METADATA_RESPONSE, C.GET_TOPICS_OF_NAMESPACE_RESPONSE),
    ),
    *_rows(
        Theme.PRODUCE,
        client=(C.PRODUCER, C.SEND),
        broker=(C.PRODUCER_SUCCESS, C.SEND_RECEIPT, C.SEND_ERROR),
        both=(C.CLOSE_PRODUCER,),
    ),
    *_rows(
        Theme.CONSUME,
        client=(
            C.SUBSCRIBE, C.FLOW, C.ACK, C.REDELIVER_UNACKNOWLEDGED_MESSAGES, C.UNSUBSCRIBE, C.SEEK,
            C.GET_LAST_MESSAGE_ID, C.CONSUMER_STATS,
        ),
        broker=(
            C.MESSAGE, C.ACK_RESPONSE, C.REACHED_END_OF_TOPIC, C.ACTIVE_CONSUMER_CHANGE,
            C.GET_LAST_MESSAGE_ID_RESPONSE, C.CONSUMER_STATS_RESPONSE,
        ),
        both=(C.CLOSE_CONSUMER,),
    ),
    *_rows(
        Theme.SCHEMA,
        client=(C.GET_SCHEMA, C.GET_OR_CREATE_SCHEMA),
        broker=(C.GET_SCHEMA_RESPONSE, C.GET_OR_CREATE_SCHEMA_RESPONSE),
    ),
    *_rows(
        Theme.TRANSACTION,
        client=(
            C.TC_CLIENT_CONNECT_REQUEST, C.NEW_TXN, C.ADD_PARTITION_TO_TXN, C.ADD_SUBSCRIPTION_TO_TXN, C.END_TXN,
            C.END_TXN_ON_PARTITION, C.END_TXN_ON_SUBSCRIPTION,
        ),
        broker=(
            C.TC_CLIENT_CONNECT_RESPONSE, C.NEW_TXN_RESPONSE, C.ADD_PARTITION_TO_TXN_RESPONSE,
            C.ADD_SUBSCRIPTION_TO_TXN_RESPONSE, C.END_TXN_RESPONSE, C.END_TXN_ON_PARTITION_RESPONSE,
            C.END_TXN_ON_SUBSCRIPTION_RESPONSE,
        ),
    ),
    *_rows(
        Theme.WATCH,
        client=(C.WATCH_TOPIC_LIST, C.WATCH_TOPIC_LIST_CLOSE),
        broker=(C.WATCH_TOPIC_LIST_SUCCESS, C.WATCH_TOPIC_UPDATE),
    ),
    *_rows(Theme.GEO, broker=(C.TOPIC_MIGRATED,)),
    *_rows(
        Theme.SCALABLE,
        client=(
            C.SCALABLE_TOPIC_LOOKUP, C.SCALABLE_TOPIC_CLOSE, C.SCALABLE_TOPIC_SUBSCRIBE, C.SCALABLE_TOPIC_UNSUBSCRIBE,
            C.WATCH_SCALABLE_TOPICS, C.WATCH_SCALABLE_TOPICS_CLOSE,
        ),
        broker=(
            C.SCALABLE_TOPIC_UPDATE, C.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE, C.SCALABLE_TOPIC_ASSIGNMENT_UPDATE,
            C.WATCH_SCALABLE_TOPICS_UPDATE,
        ),
    ),
    *_rows(
        Theme.DISCOVERY,
        client=(C.WATCH_TC_ASSIGNMENTS, C.WATCH_TC_ASSIGNMENTS_CLOSE),
        broker=(C.WATCH_TC_ASSIGNMENTS_UPDATE,),
    ),
)  # fmt: skip

# What the proxy does with a command that it serves on a lookup connection.
SERVED: Final[Mapping[C, str]] = {
    C.LOOKUP: "answered: a broker is asked, redirects are followed, the answer names the proxy",
    C.PARTITIONED_METADATA: "answered: a broker is asked",
    C.GET_TOPICS_OF_NAMESPACE: "answered: a broker is asked, under memory limits, once for equal requests",
    C.GET_SCHEMA: "answered: a broker is asked, under memory limits",
    C.GET_OR_CREATE_SCHEMA: "answered: a broker is asked",
    C.AUTH_RESPONSE: "taken: credentials that the proxy asked for",
    C.PING: "answered with PONG",
    C.PONG: "taken",
}
# What a broker may send on a connection that the proxy asks its questions on.
TAKEN: Final[Mapping[C, str]] = {
    C.LOOKUP_RESPONSE: "taken as an answer",
    C.PARTITIONED_METADATA_RESPONSE: "taken as an answer",
    C.GET_TOPICS_OF_NAMESPACE_RESPONSE: "taken as an answer, memory before its body",
    C.GET_SCHEMA_RESPONSE: "taken as an answer",
    C.GET_OR_CREATE_SCHEMA_RESPONSE: "taken as an answer",
    C.ERROR: "taken as an answer",
    C.AUTH_CHALLENGE: "answered with the credentials of the connection",
    C.PING: "answered with PONG",
    C.PONG: "taken",
}
# What is looked at while the bytes of a relay pass, and for which key.
LOOKED_AT: Final[Mapping[C, str]] = {
    C.WATCH_TOPIC_LIST_SUCCESS: "passed on, under memory limits (`watchTopicListLimitEnabled`)",
    C.WATCH_TOPIC_UPDATE: "passed on, under memory limits (`watchTopicListLimitEnabled`)",
    C.WATCH_SCALABLE_TOPICS_UPDATE: "passed on, under memory limits (`watchTopicListLimitEnabled`)",
    C.PRODUCER: "passed on; its topic is learnt while a throttle is on",
    C.SEND: "passed on; counted, and held back with its connection, while a throttle is on",
    C.CLOSE_PRODUCER: "passed on; a client's is counted while a throttle is on",
    C.SUBSCRIBE: "passed on; while a throttle is on, its connection is known to consume",
}
PASSED: Final = "passed on"
REFUSED: Final = "refused by name"
IGNORED: Final = "ignored: nobody asked for it"
OPENING: Final = "opens the connection; a second one closes it (`second_connect`)"
OPENED: Final = "opens the connection; a second one closes it (`second_connected`)"


def from_client(command: C) -> str:
    """Return what happens to a command that a client sends on a lookup connection."""
    if command is C.CONNECT:
        return OPENING
    return _words(Role.CLIENT, State.LOOKUP, command, SERVED)


def from_broker(command: C) -> str:
    """Return what happens to a command that a broker sends on a connection for requests."""
    if command is C.CONNECTED:
        return OPENED
    return _words(Role.BROKER, State.READY, command, TAKEN)


def relayed(command: C) -> str:
    """Return what happens to a command on a relayed connection."""
    return LOOKED_AT.get(command, PASSED)


def _words(role: Role, state: State, command: C, served: Mapping[C, str]) -> str:
    verdict = VERDICTS[role, state].get(command, DEFAULT_VERDICTS[role, state])
    if verdict is Verdict.SERVE:
        return served[command]
    if verdict is Verdict.CLOSE:
        return f"closes the connection (`{close_cause(state, command)}`)"
    return REFUSED if verdict is Verdict.REFUSE else IGNORED
