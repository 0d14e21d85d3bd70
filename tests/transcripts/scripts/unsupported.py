"""Commands that have no place on a lookup connection; a PING behind each shows whether the connection lives."""

from typing import Any, Final

from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.commands import command
from tests.transcripts.script import BROKER, Script
from tests.transcripts.scripts.connect import PING, READ, connect

_TOPIC: Final = "persistent://tenant/namespace/topic"
_SCHEMA: Final = pb.Schema(name="s", type=pb.Schema.String, schema_data=b"")
_SUBSCRIPTION: Final[dict[str, Any]] = {"subscription": "sub", "subType": 0, "consumer_id": 3, "request_id": 7}
_COMMANDS: Final = (
    command("GET_OR_CREATE_SCHEMA", request_id=7, topic=_TOPIC, schema=_SCHEMA),
    command("WATCH_TOPIC_LIST", request_id=7, watcher_id=1, namespace="tenant/namespace", topics_pattern=".*"),
    command("WATCH_TOPIC_LIST_CLOSE", request_id=7, watcher_id=1),
    command("PRODUCER", topic=_TOPIC, producer_id=3, request_id=7),
    command("SUBSCRIBE", topic=_TOPIC, **_SUBSCRIPTION),
    command("SEND", producer_id=3, sequence_id=1),
    command("FLOW", consumer_id=3, messagePermits=10),
    command("ACK", consumer_id=3, ack_type=0, message_id=[pb.MessageIdData(ledgerId=1, entryId=1)]),
    command("UNSUBSCRIBE", consumer_id=3, request_id=7),
    command("CLOSE_PRODUCER", producer_id=3, request_id=7),
    command("CLOSE_CONSUMER", consumer_id=3, request_id=7),
    command("SEEK", consumer_id=3, request_id=7),
    command("CONSUMER_STATS", consumer_id=3, request_id=7),
    command("GET_LAST_MESSAGE_ID", consumer_id=3, request_id=7),
    command("NEW_TXN", request_id=7),
    command("TC_CLIENT_CONNECT_REQUEST", request_id=7, tc_id=0),
    command("LOOKUP_RESPONSE", request_id=7),
    command("CONNECTED", server_version="not a server"),
    command("SUCCESS", request_id=7),
)
# Ours asks the broker for a schema's creation.
_NEW_SCHEMA: Final = {
    pb.BaseCommand.GET_OR_CREATE_SCHEMA: (
        command("GET_OR_CREATE_SCHEMA_RESPONSE", request_id=0, schema_version=bytes(7) + b"\1"),
    )
}
# What only a client of 5.0 sends; its flag says so.
_NEWER: Final = (
    command("SCALABLE_TOPIC_LOOKUP", session_id=7, topic="topic://tenant/namespace/topic"),
    command("SCALABLE_TOPIC_CLOSE", session_id=7),
    command("SCALABLE_TOPIC_UNSUBSCRIBE", request_id=7, consumer_id=3),
)
_SCALABLE_TOPICS: Final = command(
    "WATCH_SCALABLE_TOPICS_UPDATE",
    watch_id=7,
    snapshot=pb.ScalableTopicsSnapshot(topics=["topic://tenant/namespace/topic"]),
)


def _refused(unsupported: pb.BaseCommand) -> Script:
    name = pb.BaseCommand.Type.Name(unsupported.type)
    return Script(f"unsupported: {name}", (connect(), READ, unsupported, READ, PING, READ), _NEW_SCHEMA)


UNSUPPORTED: Final = (
    *map(_refused, _COMMANDS),
    *map(_refused, _NEWER),
    Script("unsupported: number 99", (connect(), READ, b"\0\0\0\x06\0\0\0\x02\x08\x63", READ, PING, READ)),
    Script(
        "relayed: SCALABLE_TOPIC_LOOKUP",
        (
            connect(proxy_to_broker_url=BROKER, feature_flags=pb.FeatureFlags(supports_scalable_topics=True)),
            READ,
            _NEWER[0],
            PING,
            READ,
        ),
        {pb.BaseCommand.PING: (command("PONG"),)},
    ),
    Script(
        "relayed: WATCH_SCALABLE_TOPICS",
        (
            connect(proxy_to_broker_url=BROKER),
            READ,
            command("WATCH_SCALABLE_TOPICS", watch_id=7, namespace="tenant/namespace"),
            READ,
        ),
        {pb.BaseCommand.WATCH_SCALABLE_TOPICS: (_SCALABLE_TOPICS,)},
    ),
    Script(
        "relayed: number 99",
        (connect(proxy_to_broker_url=BROKER), READ, b"\0\0\0\x06\0\0\0\x02\x08\x63", PING, READ),
        {pb.BaseCommand.PING: (command("PONG"),)},
    ),
)
