"""CONNECT without a target in its variants, what may not come before or after it, and bytes that are no command."""

from typing import Any, Final

from protocol.commands import REQUEST_ID_NONE, frame
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.commands import command
from tests.transcripts.script import Do, Script, Step

READ: Final = Do.READ
PING: Final = command("PING")


def connect(**fields: Any) -> pb.BaseCommand:
    return command("CONNECT", **{"client_version": "transcript", "protocol_version": 21, **fields})


def _script(name: str, *steps: Step) -> Script:
    return Script(name, steps)


def _framed(body: bytes) -> bytes:
    return (len(body) + 4).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body


_FEATURES: Final = pb.FeatureFlags(
    supports_auth_refresh=True, supports_topic_watchers=True, supports_scalable_topics=True
)
_PARTITIONS: Final = command("PARTITIONED_METADATA", topic="persistent://t/n/topic", request_id=1)

CONNECT: Final = (
    _script("connect v21", connect(), READ, PING, READ),
    _script("connect v22 of a newer client", connect(protocol_version=22), READ, PING, READ),
    _script("connect v19", connect(protocol_version=19), READ, PING, READ),
    _script("connect v10", connect(protocol_version=10), READ, PING, READ),
    _script("connect v9", connect(protocol_version=9), READ),
    _script("connect v0", connect(protocol_version=0), READ),
    _script("connect without a version", command("CONNECT", client_version="transcript"), READ),
    _script("connect with features", connect(feature_flags=_FEATURES), READ, PING, READ),
    _script("connect with a proxy_version", connect(proxy_version="5.0.0"), READ, READ),
    _script(
        "connect with a proxy_version and a principal",
        connect(proxy_version="5.0.0", original_principal="eve"),
        READ,
        READ,
    ),
    _script("connect with original_principal", connect(original_principal="eve"), READ, PING, READ),
    _script(
        "connect with a token though nobody asks",
        connect(auth_method_name="token", auth_data=b"anything"),
        READ,
        PING,
        READ,
    ),
    _script("connect with method none", connect(auth_method_name="none"), READ, PING, READ),
    _script("connect twice", connect(), READ, connect(), READ),
    _script("ping before connect", PING, READ),
    _script("request before connect", _PARTITIONS, READ),
    _script("auth response before connect", command("AUTH_RESPONSE", client_version="transcript"), READ),
    _script("pong that nobody asked for", connect(), READ, command("PONG"), PING, READ),
    _script(
        "auth response that nobody asked for",
        connect(),
        READ,
        command(
            "AUTH_RESPONSE",
            client_version="transcript",
            response=pb.AuthData(auth_method_name="token", auth_data=b"anything"),
        ),
        PING,
        READ,
    ),
    _script(
        "error from a client",
        connect(),
        READ,
        command("ERROR", request_id=REQUEST_ID_NONE, error=pb.UnknownError, message="from a client"),
        PING,
        READ,
    ),
    _script("garbage before connect", _framed(b"\xff" * 12), READ),
    _script("garbage after connect", connect(), READ, _framed(b"\xff" * 12), READ),
    _script("an http request", b"GET / HTTP/1.1\r\nHost: proxy\r\n\r\n", READ),
    _script("a frame of 2 GiB before connect", b"\x7f\xff\xff\xff" + bytes(8), READ),
    _script("a frame of 2 GiB after connect", connect(), READ, b"\x7f\xff\xff\xff" + bytes(8), READ),
    _script("a frame of no bytes", connect(), READ, bytes(4), PING, READ),
    _script("a command longer than its frame", connect(), READ, b"\0\0\0\x06\0\0\0\x20\x08\x12", READ),
    _script("a command without its required field", connect(), READ, _framed(bytes((0x08, 23, 0xBA, 0x01, 0))), READ),
    _script("a command without a type", connect(), READ, _framed(b"\x12\x00"), READ),
    _script("connect and ping in one segment", frame(connect()) + frame(PING), READ, READ),
)
