"""The requests of lookup mode: what the broker is asked, what the client is answered, and every code of failure."""

from typing import Any, Final

from protocol.commands import REQUEST_ID_NONE
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.commands import command
from tests.transcripts.script import BROKER, NOBODY, OTHER, Answer, Answers, Broker, Script
from tests.transcripts.scripts.connect import READ, connect

TOPIC: Final = "persistent://tenant/namespace/topic"
_NAMESPACE: Final = "tenant/namespace"
_CONNECT: Final = pb.BaseCommand.CONNECT
_PROPERTIES: Final = [pb.KeyValue(key="key", value="value")]


def ask(kind: str, **fields: Any) -> pb.BaseCommand:
    """Build one of the four requests; `request_id` is 1."""
    about = {"namespace": _NAMESPACE} if kind == "GET_TOPICS_OF_NAMESPACE" else {"topic": TOPIC}
    return command(kind, **{**about, "request_id": 1, **fields})


def script(
    name: str,
    request: pb.BaseCommand,
    *answers: Answer,
    settings: str = "plain",
    more: Answers | None = None,
    other: tuple[Answer, ...] = (),
) -> Script:
    """One request and its answer; a broker that answers nothing is not asked."""
    return Script(
        name,
        (connect(), READ, request, READ),
        {request.type: answers, **(more or {})} if answers else dict(more or {}),
        {request.type: other} if other else {},
        settings,
    )


def found(url: str = f"pulsar://{BROKER}", kind: str = "Connect", **fields: Any) -> pb.BaseCommand:
    """Build a broker's answer to a lookup."""
    response = pb.CommandLookupTopicResponse.LookupType.Value(kind)
    return command("LOOKUP_RESPONSE", request_id=0, response=response, brokerServiceUrl=url, **fields)


def _partitions(count: int) -> pb.BaseCommand:
    response = pb.CommandPartitionedTopicMetadataResponse.Success
    return command("PARTITIONED_METADATA_RESPONSE", request_id=0, response=response, partitions=count)


def _topics(*names: str, **fields: Any) -> pb.BaseCommand:
    topics = [f"persistent://{_NAMESPACE}/{name}" for name in names]
    return command("GET_TOPICS_OF_NAMESPACE_RESPONSE", request_id=0, topics=topics, **fields)


def _schema(**fields: Any) -> pb.BaseCommand:
    return command("GET_SCHEMA_RESPONSE", request_id=0, **fields)


def _failures() -> tuple[Script, ...]:
    """Build one script for each request and each code that a broker may answer with."""
    made = []
    for name, code in pb.ServerError.items():
        failed: dict[str, Any] = {"request_id": 0, "error": code, "message": "because"}
        lookup = command("LOOKUP_RESPONSE", response=pb.CommandLookupTopicResponse.Failed, **failed)
        partitions = command(
            "PARTITIONED_METADATA_RESPONSE", response=pb.CommandPartitionedTopicMetadataResponse.Failed, **failed
        )
        error = command("ERROR", **failed)
        schema = _schema(error_code=code, error_message="because")
        made += [
            script(f"lookup fails with {name}", ask("LOOKUP"), lookup),
            script(f"partitions fail with {name}", ask("PARTITIONED_METADATA"), partitions),
            script(f"topics fail with {name}", ask("GET_TOPICS_OF_NAMESPACE"), error),
            script(f"schema fails with {name}", ask("GET_SCHEMA"), schema),
            script(f"schema fails by an ERROR with {name}", ask("GET_SCHEMA"), error),
        ]
    return tuple(made)


def _troubles() -> tuple[Script, ...]:
    """Build what can go wrong on the way to the broker, for each request."""
    refusal = command("ERROR", request_id=REQUEST_ID_NONE, error=pb.AuthorizationError, message="not you")
    made = []
    for kind in ("LOOKUP", "PARTITIONED_METADATA", "GET_TOPICS_OF_NAMESPACE", "GET_SCHEMA"):
        made += [
            script(f"{kind}: nobody listens at the broker's address", ask(kind), settings="nobody"),
            script(f"{kind}: the broker refuses the proxy", ask(kind), more={_CONNECT: (refusal,)}),
            script(f"{kind}: the broker leaves before CONNECTED", ask(kind), more={_CONNECT: (Broker.LEAVES,)}),
            script(f"{kind}: the broker leaves instead of answering", ask(kind), Broker.LEAVES),
        ]
    return tuple(made)


LOOKUPS: Final = (
    script("lookup: connect", ask("LOOKUP"), found()),
    script("lookup: connect with a TLS url", ask("LOOKUP"), found(brokerServiceUrlTls="pulsar+ssl://broker:6651")),
    script("lookup: connect to another broker", ask("LOOKUP"), found(f"pulsar://{OTHER}", authoritative=True)),
    script("lookup: authoritative", ask("LOOKUP", authoritative=True), found()),
    script("lookup: listener name", ask("LOOKUP", advertised_listener_name="external"), found()),
    script("lookup: properties", ask("LOOKUP", properties=_PROPERTIES), found()),
    script(
        "lookup: original fields of the client",
        ask("LOOKUP", original_principal="eve", original_auth_data="x", original_auth_method="token"),
        found(),
    ),
    script("lookup: a pattern as topic", ask("LOOKUP", topic="persistent://tenant/namespace/.*"), found()),
    script("lookup: a name that is no topic", ask("LOOKUP", topic="no/topic"), found()),
    script(
        "lookup: redirected", ask("LOOKUP"), found(f"pulsar://{OTHER}", "Redirect"), other=(found(f"pulsar://{OTHER}"),)
    ),
    script(
        "lookup: redirected with authority",
        ask("LOOKUP"),
        found(f"pulsar://{OTHER}", "Redirect", authoritative=True),
        other=(found(f"pulsar://{OTHER}"),),
    ),
    script(
        "lookup: redirected and failed",
        ask("LOOKUP"),
        found(f"pulsar://{OTHER}", "Redirect"),
        other=(
            command(
                "LOOKUP_RESPONSE",
                request_id=0,
                response=pb.CommandLookupTopicResponse.Failed,
                error=pb.AuthorizationError,
                message="because",
            ),
        ),
    ),
    script("lookup: redirected in a circle", ask("LOOKUP"), found(kind="Redirect")),
    script("lookup: redirected to nobody", ask("LOOKUP"), found(f"pulsar://{NOBODY}", "Redirect")),
    script("lookup: redirected to no url", ask("LOOKUP"), found("no url", "Redirect")),
    script("lookup: redirected without a scheme", ask("LOOKUP"), found(OTHER, "Redirect")),
)
_OTHERS: Final = (
    script("partitions: 5", ask("PARTITIONED_METADATA"), _partitions(5)),
    script("partitions: none", ask("PARTITIONED_METADATA"), _partitions(0)),
    script(
        "partitions: without creation",
        ask("PARTITIONED_METADATA", metadata_auto_creation_enabled=False),
        _partitions(2),
    ),
    script(
        "partitions: with creation", ask("PARTITIONED_METADATA", metadata_auto_creation_enabled=True), _partitions(2)
    ),
    script(
        "partitions: original fields of the client",
        ask("PARTITIONED_METADATA", original_principal="eve", original_auth_data="x", original_auth_method="token"),
        _partitions(2),
    ),
    script("topics: some", ask("GET_TOPICS_OF_NAMESPACE"), _topics("a", "b-partition-0")),
    script("topics: none", ask("GET_TOPICS_OF_NAMESPACE"), _topics()),
    script("topics: filtered", ask("GET_TOPICS_OF_NAMESPACE", topics_pattern="a.*"), _topics("a", filtered=True)),
    script(
        "topics: unchanged",
        ask("GET_TOPICS_OF_NAMESPACE", topics_pattern="a.*", topics_hash="11223344"),
        _topics(filtered=True, changed=False, topics_hash="11223344"),
    ),
    script("topics: mode all", ask("GET_TOPICS_OF_NAMESPACE", mode=2), _topics("a", topics_hash="11223344")),
    script("topics: mode non-persistent", ask("GET_TOPICS_OF_NAMESPACE", mode=1), _topics()),
    script("topics: properties", ask("GET_TOPICS_OF_NAMESPACE", properties=_PROPERTIES), _topics("a")),
    script("topics: a name that is no namespace", ask("GET_TOPICS_OF_NAMESPACE", namespace="no-namespace"), _topics()),
    script(
        "schema: found",
        ask("GET_SCHEMA"),
        _schema(
            schema=pb.Schema(name="s", type=pb.Schema.Json, schema_data=b"{}", properties=_PROPERTIES),
            schema_version=bytes(7) + b"\1",
        ),
    ),
    script(
        "schema: of a version",
        ask("GET_SCHEMA", schema_version=bytes(7) + b"\2"),
        _schema(schema=pb.Schema(name="s", type=pb.Schema.String, schema_data=b""), schema_version=bytes(7) + b"\2"),
    ),
    script("schema: a version that is too short", ask("GET_SCHEMA", schema_version=b"short"), _schema()),
    script("schema: a name that is no topic", ask("GET_SCHEMA", topic="no/topic"), _schema()),
)
REQUESTS: Final = (*LOOKUPS, *_OTHERS, *_troubles(), *_failures())
