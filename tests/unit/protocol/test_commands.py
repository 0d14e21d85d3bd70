import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import (
    LocalProtocolError,
    MalformedFrame,
    RemoteProtocolError,
    ServerError,
    UnexpectedCommand,
)
from protocol.pb import PulsarApi_pb2 as pb

NEW_FIELD = b"\xd2\x0f\x03new"  # field 250, a string: nothing of today's protocol
SPEAKER = commands.Credentials("token", b"proxy", "alice", "alice-data", "token")


def content(framed: bytes) -> pb.BaseCommand:
    """Decode a built frame, checking both sizes."""
    total, size = int.from_bytes(framed[:4], "big"), int.from_bytes(framed[4:8], "big")
    assert (total, size) == (len(framed) - 4, len(framed) - 8)
    return commands.decode_command(framed[8:])


def raw(kind: int, sub_message: bytes) -> bytes:
    """Encode a command whose sub-message has a field number up to 127 and fewer than 128 bytes."""
    tag = kind << 3 | 2
    return bytes([0x08, kind, tag & 0x7F | 0x80, tag >> 7, len(sub_message)]) + sub_message


# ---- Decoding ----


def test_ping_without_its_empty_message_is_a_ping() -> None:
    assert commands.decode_command(b"\x08\x12").type == CommandType.PING


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        (b"", "without a type"),
        (raw(CommandType.LOOKUP, b"\x0a\x01a\x10\x01")[:-1], "no pulsar command"),
        (b"\xff" * 20, "no pulsar command"),
        (b"\x08\x17", "LOOKUP command without topic"),
        (raw(CommandType.LOOKUP, b"\x10\x01"), "LOOKUP command without topic"),
        (raw(CommandType.LOOKUP, b"\x0a\x01\xff\x10\x01"), "topic is not utf-8"),
        (b"\x08\x12\x08\x17", "two types, 18 and 23"),
    ],
    ids=["empty", "cut", "garbage", "no sub-message", "no topic", "bad text", "two types"],
)
def test_bytes_that_are_no_whole_command_are_malformed(encoded: bytes, message: str) -> None:
    with pytest.raises(MalformedFrame, match=message):
        commands.decode_command(encoded)


def test_unknown_command_number_is_told_apart_from_garbage() -> None:
    with pytest.raises(UnexpectedCommand, match="unknown type 99"):
        commands.decode_command(b"\x08\x63")


def test_error_code_of_a_newer_broker_reads_as_unknown_error() -> None:
    command = commands.decode_command(raw(CommandType.ERROR, b"\x08\x07\x10\x63\x1a\x02hi"))
    assert (command.error.request_id, command.error.error, command.error.message) == (
        7,
        ServerError.UnknownError,
        "hi",
    )


@given(st.binary(max_size=80))
def test_any_bytes_decode_or_are_the_peers_fault(encoded: bytes) -> None:
    try:
        command = commands.decode_command(encoded)
    except RemoteProtocolError:
        return
    assert commands.frame(command)


def test_incomplete_command_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError, match="topic"):
        commands.frame(pb.BaseCommand(type=pb.BaseCommand.LOOKUP, lookupTopic=pb.CommandLookupTopic(request_id=1)))


# ---- Handshake ----


def client_connect(version: int = 19) -> pb.CommandConnect:
    flags = pb.FeatureFlags(supports_auth_refresh=True, supports_partial_producer=True)
    flags.MergeFromString(NEW_FIELD)
    return pb.CommandConnect(client_version="C++ 3.5", protocol_version=version, feature_flags=flags)


@pytest.mark.parametrize(("client", "spoken"), [(10, 10), (19, 19), (21, 21), (99, 21)])
def test_lookup_mode_speaks_the_lower_of_both_versions(client: int, spoken: int) -> None:
    connected = content(commands.connected_lookup(client_connect(client), "4.2"))
    assert connected.connected.protocol_version == spoken


def test_connected_in_lookup_mode_promises_only_what_is_served() -> None:
    connected = content(commands.connected_lookup(client_connect(), " 0.1")).connected
    assert connected.server_version == "Pulsar Server 0.1"
    assert not connected.HasField("max_message_size")
    assert {field.name: value for field, value in connected.feature_flags.ListFields()} == {
        "supports_topic_watchers": False,
        "supports_topic_watcher_reconcile": False,
        "supports_get_partitioned_metadata_without_auto_creation": True,
        "supports_repl_dedup_by_lid_and_eid": True,
    }


def broker_flags(**flags: bool) -> pb.FeatureFlags:
    found = pb.FeatureFlags(**flags)
    found.MergeFromString(NEW_FIELD)
    return found


@pytest.mark.parametrize(
    "flags",
    [
        # 4.0, 4.2, 5.0, and one of which this release knows nothing.
        broker_flags(supports_topic_watchers=True),
        broker_flags(supports_topic_watchers=True, supports_topic_watcher_reconcile=True),
        broker_flags(supports_scalable_topics=True, supports_tc_metadata_discovery=True),
        broker_flags(supports_repl_dedup_by_lid_and_eid=False),
    ],
    ids=["watchers", "reconciling watchers", "5.0", "no deduplication of replicated messages"],
)
def test_connected_in_direct_mode_promises_exactly_what_the_broker_does(flags: pb.FeatureFlags) -> None:
    broker = pb.CommandConnected(
        server_version="Pulsar Server4.2.4",
        protocol_version=20,
        max_message_size=5_242_880,
        feature_flags=flags,
    )
    connected = content(commands.connected_direct(broker, "0.1")).connected
    assert (connected.server_version, connected.protocol_version) == ("Pulsar Server0.1", 20)
    assert connected.max_message_size == 5_242_880
    assert connected.feature_flags.SerializeToString() == flags.SerializeToString()


def test_connected_in_direct_mode_promises_nothing_for_a_broker_without_features() -> None:
    broker = pb.CommandConnected(server_version="Pulsar Server2.10", protocol_version=19)
    assert not content(commands.connected_direct(broker, "0.1")).connected.HasField("feature_flags")


def test_connected_in_direct_mode_never_speaks_above_the_own_version() -> None:
    broker = pb.CommandConnected(server_version="new", protocol_version=30)
    connected = content(commands.connected_direct(broker, "0.1")).connected
    assert connected.protocol_version == commands.PROTOCOL_VERSION
    assert not connected.HasField("max_message_size")


def test_relayed_client_is_introduced_with_its_own_version_and_features() -> None:
    client = client_connect()
    client.proxy_to_broker_url = "broker:6650"
    client.auth_data = b"client secret"
    client.original_principal = "root"
    connect = content(commands.connect_direct(client, "0.1")).connect
    assert (connect.client_version, connect.protocol_version, connect.proxy_version) == ("C++ 3.5", 19, "0.1")
    assert connect.feature_flags.SerializeToString() == client.feature_flags.SerializeToString()
    for field in ("proxy_to_broker_url", "auth_data", "original_principal"):
        assert not connect.HasField(field)


def test_what_is_kept_of_a_connect_gives_the_same_introduction_and_no_credentials() -> None:
    client = client_connect()
    client.proxy_to_broker_url = "broker:6650"
    client.auth_data = b"client secret"
    kept = commands.connect_kept(client)
    assert commands.connect_direct(kept, "0.1", SPEAKER) == commands.connect_direct(client, "0.1", SPEAKER)
    assert kept.proxy_to_broker_url == "broker:6650"
    assert b"secret" not in kept.SerializeToString()
    assert not commands.connect_kept(pb.CommandConnect(client_version="v")).HasField("feature_flags")


def test_proxy_speaks_for_its_client() -> None:
    connect = content(commands.connect_direct(client_connect(), "0.1", SPEAKER)).connect
    assert (connect.auth_method_name, connect.auth_data, connect.original_principal) == (
        "token",
        b"proxy",
        "alice",
    )
    assert (connect.original_auth_data, connect.original_auth_method) == ("alice-data", "token")


# ---- Requests ----


def test_lookup_goes_on_as_it_came() -> None:
    client = pb.CommandLookupTopic(topic="persistent://public/default/.*", request_id=1, authoritative=True)
    client.advertised_listener_name = "internal"
    client.properties.add(key="rack", value="a")
    client.MergeFromString(NEW_FIELD)
    before = client.SerializeToString()
    sent = content(commands.lookup_request(client, 77, authoritative=False)).lookupTopic
    assert (sent.request_id, sent.authoritative) == (77, False)
    sent.request_id, sent.authoritative = 1, True
    assert sent.SerializeToString() == before == client.SerializeToString()


def test_client_cannot_claim_a_principal() -> None:
    lookup = pb.CommandLookupTopic(topic="t", request_id=1, original_principal="root", original_auth_data="x")
    lookup.original_auth_method = "tls"
    metadata = pb.CommandPartitionedTopicMetadata(topic="t", request_id=1, original_principal="root")
    for sent in (
        content(commands.lookup_request(lookup, 2, authoritative=False)).lookupTopic,
        content(commands.partition_metadata_request(metadata, 2)).partitionMetadata,
    ):
        assert {field.name for field, _ in sent.ListFields()} <= {"topic", "request_id", "authoritative"}


def test_other_requests_change_their_request_id_only() -> None:
    topics = pb.CommandGetTopicsOfNamespace(request_id=1, namespace="a/b", mode=2, topics_pattern="x", topics_hash="0")
    topics.properties.add(key="k", value="v")
    schema = pb.CommandGetSchema(request_id=1, topic="t", schema_version=b"\x01")
    body = pb.Schema(name="", schema_data=b"{}", type=pb.Schema.Json)
    create = pb.CommandGetOrCreateSchema(request_id=1, topic="t", schema=body, producer_name="p")
    for client in (topics, schema, create):
        client.MergeFromString(NEW_FIELD)
    for client, sent in (
        (
            topics,
            content(commands.forwarded_request(CommandType.GET_TOPICS_OF_NAMESPACE, topics, 8)).getTopicsOfNamespace,
        ),
        (schema, content(commands.forwarded_request(CommandType.GET_SCHEMA, schema, 8)).getSchema),
        (create, content(commands.forwarded_request(CommandType.GET_OR_CREATE_SCHEMA, create, 8)).getOrCreateSchema),
    ):
        assert sent.request_id == 8
        sent.request_id = 1
        assert sent.SerializeToString() == client.SerializeToString()


def test_topic_list_mode_of_a_newer_client_is_not_lost() -> None:
    request = raw(CommandType.GET_TOPICS_OF_NAMESPACE, b"\x08\x01\x12\x03a/b\x18\x09")
    client = commands.decode_command(request).getTopicsOfNamespace
    assert b"\x18\x09" in commands.forwarded_request(CommandType.GET_TOPICS_OF_NAMESPACE, client, 1)


# ---- Answers ----


def test_lookup_answer_sends_the_client_through_the_proxy() -> None:
    answer = content(commands.lookup_connect(4, "pulsar://b1:6650")).lookupTopicResponse
    assert answer.response == pb.CommandLookupTopicResponse.Connect
    assert answer.brokerServiceUrl == answer.brokerServiceUrlTls == "pulsar://b1:6650"
    assert (answer.request_id, answer.authoritative, answer.proxy_through_service_url) == (4, True, True)


def test_partition_count_of_zero_is_sent() -> None:
    answer = content(commands.partition_metadata_success(4, 0)).partitionMetadataResponse
    assert answer.HasField("partitions")
    assert answer.response == pb.CommandPartitionedTopicMetadataResponse.Success


def test_brokers_answer_keeps_all_but_its_request_id() -> None:
    answer = pb.CommandGetSchemaResponse(request_id=900, schema_version=b"\x02")
    answer.MergeFromString(NEW_FIELD)
    relayed = commands.relay_answer(
        pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA_RESPONSE, getSchemaResponse=answer), 3
    )
    sent = content(relayed).getSchemaResponse
    assert (sent.request_id, sent.schema_version) == (3, b"\x02")
    assert NEW_FIELD in relayed


def test_answer_without_request_id_cannot_be_relayed() -> None:
    with pytest.raises(LocalProtocolError, match="PONG"):
        commands.relay_answer(content(commands.PONG_FRAME), 3)


@pytest.mark.parametrize("nobody", [-1, commands.REQUEST_ID_NONE])
def test_error_about_the_connection_has_the_largest_id(nobody: int) -> None:
    assert content(commands.error(nobody, ServerError.NotAllowedError, "no")).error.request_id == 2**64 - 1


def test_control_characters_and_lone_surrogates_are_escaped() -> None:
    message = content(commands.error(1, 0, "topic a\nb\x00\x1b[31m\ud800 é")).error.message
    assert message == r"topic a\nb\x00\x1b[31m\ud800 é"


@given(st.text(st.characters()))
@example("é" * 100_000)
def test_any_message_can_be_sent(message: str) -> None:
    shown = content(commands.error(1, 0, message)).error.message
    assert len(shown) <= commands.MAX_ERROR_CHARS
    assert shown.isprintable()
