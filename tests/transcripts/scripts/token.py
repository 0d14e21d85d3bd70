"""Authentication by token: which tokens are taken, what a refused client is told, and what the broker is told."""

from typing import Any, Final

from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.commands import command
from tests.transcripts import tokens
from tests.transcripts.script import BROKER, Script, Step
from tests.transcripts.scripts.connect import PING, READ, connect
from tests.transcripts.scripts.requests import ask, found

_PONG: Final = {pb.BaseCommand.PING: (command("PONG"),)}
_MODES: Final = ("token", "token forwarded", "token or anonymous")


def _with(token: str, **fields: Any) -> pb.BaseCommand:
    return connect(auth_method_name="token", auth_data=token.encode(), **fields)


def _script(name: str, settings: str, *steps: Step) -> Script:
    lookup = {pb.BaseCommand.LOOKUP: (found(),)}
    partitions = command(
        "PARTITIONED_METADATA_RESPONSE",
        request_id=0,
        response=pb.CommandPartitionedTopicMetadataResponse.Success,
        partitions=2,
    )
    topics = command("GET_TOPICS_OF_NAMESPACE_RESPONSE", request_id=0, topics=["persistent://tenant/namespace/a"])
    schema = command("GET_SCHEMA_RESPONSE", request_id=0, error_code=pb.TopicNotFound, error_message="no schema")
    answers = {
        **_PONG,
        **lookup,
        pb.BaseCommand.PARTITIONED_METADATA: (partitions,),
        pb.BaseCommand.GET_TOPICS_OF_NAMESPACE: (topics,),
        pb.BaseCommand.GET_SCHEMA: (schema,),
    }
    return Script(f"{settings}: {name}", steps, answers, settings=settings)


def _refused() -> tuple[Script, ...]:
    """Build what is no proof of a role."""
    bad = {
        "signed with another key": tokens.FOREIGN,
        "unsigned": tokens.UNSIGNED,
        "expired": tokens.EXPIRED,
        "without a subject": tokens.NO_SUBJECT,
        "that is no token": "no token",
        "of no characters": "",
    }
    made = [_script(f"a token {name}", "token", _with(token), READ, PING, READ) for name, token in bad.items()]
    for settings in ("token", "token or anonymous"):
        made += [
            _script("no credentials", settings, connect(), READ, PING, READ),
            _script("no credentials, direct", settings, connect(proxy_to_broker_url=BROKER), READ, PING, READ),
            _script("method none", settings, connect(auth_method_name="none"), READ, PING, READ),
            _script(
                "a method without a provider",
                settings,
                connect(auth_method_name="basic", auth_data=b"alice:password"),
                READ,
                PING,
                READ,
            ),
            _script("a bad token, direct", settings, _with("no token", proxy_to_broker_url=BROKER), READ, PING, READ),
        ]
    return tuple(made)


def _taken() -> tuple[Script, ...]:
    """Build what a client with a good token may do, and see what the broker learns of it."""
    smuggled = {"original_principal": "eve", "original_auth_data": "x", "original_auth_method": "token"}
    made = []
    for settings in _MODES:
        alice = _with(tokens.ALICE)
        made += [
            _script("direct", settings, _with(tokens.ALICE, proxy_to_broker_url=BROKER), READ, PING, READ),
            _script(
                "direct with original fields of the client",
                settings,
                _with(tokens.ALICE, proxy_to_broker_url=BROKER, **smuggled),
                READ,
                PING,
                READ,
            ),
            _script("lookup", settings, alice, READ, ask("LOOKUP"), READ),
            _script("lookup with original fields", settings, alice, READ, ask("LOOKUP", **smuggled), READ),
            _script("partitions", settings, alice, READ, ask("PARTITIONED_METADATA"), READ),
            _script("topics", settings, alice, READ, ask("GET_TOPICS_OF_NAMESPACE"), READ),
            _script("schema", settings, alice, READ, ask("GET_SCHEMA"), READ),
            _script("a proxy_version", settings, _with(tokens.ALICE, proxy_version="5.0.0"), READ, READ),
        ]
    return tuple(made)


TOKEN: Final = (
    *_taken(),
    *_refused(),
    _script(
        "the old field for the method",
        "token",
        command(
            "CONNECT",
            client_version="transcript",
            protocol_version=21,
            auth_method=pb.AuthMethodYcaV1,
            auth_data=b"x",
        ),
        READ,
        READ,
    ),
    _script("the proxy's own token", "token", _with(tokens.PROXY, proxy_to_broker_url=BROKER), READ),
    _script(
        "an unasked answer to a challenge",
        "token",
        _with(tokens.ALICE),
        READ,
        command(
            "AUTH_RESPONSE",
            client_version="transcript",
            response=pb.AuthData(auth_method_name="token", auth_data=tokens.ALICE.encode()),
        ),
        PING,
        READ,
    ),
)
