"""Refuse requests that make a broker close the connection they arrive on.

Request connections are shared: a broker (seen with 4.2.4) that closes one because of a single client's malformed name
would cost every other client its question, and the repetition on another connection would cost that one too. So what
brokers answer by closing is answered here.

Not every topic list comes this way: lists over HTTP go to web services (`proxy/web/forward/topic_list_permits.py`), and
watchers of topic lists are on relays, each with a broker connection of its own (`proxy/relay/native_engine.py`).
"""

import re
from typing import Final

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.core.errors import RequestFailed

_NAME: Final = r"[-=:.\w]+"
_NAMESPACE: Final = re.compile(rf"{_NAME}/{_NAME}", re.ASCII)
_TOPIC: Final = re.compile(rf"(?:(?:non-)?persistent://)?{_NAME}/{_NAME}/[^/].*|[^/:]+", re.ASCII | re.DOTALL)
_SCHEMA_VERSION_BYTES: Final = 8
# A list's memory is charged under this name, also while a broker keeps the question of clients that have left.
LONGEST_NAMESPACE: Final = 4096


def check_get_topics(request: pb.CommandGetTopicsOfNamespace) -> None:
    """Refuse a namespace that is not `tenant/namespace`; raises RequestFailed."""
    if len(request.namespace) > LONGEST_NAMESPACE:
        text = f"namespace has {len(request.namespace)} characters, expected at most {LONGEST_NAMESPACE}"
        raise RequestFailed(ServerError.InvalidTopicName, text)
    if not _NAMESPACE.fullmatch(request.namespace):
        raise RequestFailed(
            ServerError.InvalidTopicName, f"namespace {request.namespace[:200]!r} is not of the form tenant/namespace"
        )


def check_get_schema(request: pb.CommandGetSchema) -> None:
    """Refuse an invalid topic name, and a schema version too short to be one; raises RequestFailed."""
    _check_topic(request.topic)
    if 0 < len(request.schema_version) < _SCHEMA_VERSION_BYTES:
        raise RequestFailed(
            ServerError.MetadataError,
            f"schema version has {len(request.schema_version)} bytes, expected none or {_SCHEMA_VERSION_BYTES}",
        )


def check_get_or_create_schema(request: pb.CommandGetOrCreateSchema) -> None:
    """Refuse an invalid topic name; raises RequestFailed."""
    _check_topic(request.topic)


def _check_topic(topic: str) -> None:
    if not _TOPIC.fullmatch(topic):
        raise RequestFailed(
            ServerError.InvalidTopicName,
            f"topic {topic[:200]!r} is not of the form tenant/namespace/topic or persistent://tenant/namespace/topic",
        )
