"""The generated module is what the .proto gives, and the .proto keeps the wire contract."""

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from scripts import generate_proto
from tests.support.each import each


def test_committed_modules_are_what_the_proto_gives() -> None:
    given = generate_proto.files()
    assert {path: path.read_text(encoding="utf-8") for path in given} == given


def test_stub_types_enum_fields_as_the_ints_they_are() -> None:
    stub = (
        "class Colour(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):\n"
        "    first: Colour\n"
        "    second: Outer.Colour\n"
        "    other: Colourful\n"
        "    def __init__(self, first: _Optional[_Union[Outer.Colour, str]] = ...) -> None: ...\n"
    )
    widened = generate_proto.widen_enums(stub).splitlines()
    assert widened[1:4] == ["    first: int", "    second: int", "    other: Colourful"]
    assert "_Optional[_Union[int, str]]" in widened[4]


def test_every_command_number_is_also_its_field_number() -> None:
    fields = {field.number for field in pb.BaseCommand.DESCRIPTOR.fields} - {1}
    assert fields == set(pb.BaseCommand.Type.values())


def test_server_errors_are_the_same_with_and_without_the_generated_module() -> None:
    assert {error.name: error.value for error in ServerError} == dict(pb.ServerError.items())


def test_protocol_versions_are_their_own_numbers() -> None:
    assert dict(pb.ProtocolVersion.items()) == {f"v{number}": number for number in range(22)}


# (message, field) -> (number, kind, required, default), as brokers 4.2 and 5.0 have them on the wire.
WIRE = {
    ("CommandConnect", "client_version"): (1, "string", True, ""),
    ("CommandConnect", "auth_data"): (3, "bytes", False, b""),
    ("CommandConnect", "protocol_version"): (4, "int32", False, 0),
    ("CommandConnect", "auth_method_name"): (5, "string", False, ""),
    ("CommandConnect", "proxy_to_broker_url"): (6, "string", False, ""),
    ("CommandConnect", "original_principal"): (7, "string", False, ""),
    ("CommandConnect", "feature_flags"): (10, "message", False, None),
    ("CommandConnect", "proxy_version"): (11, "string", False, ""),
    ("CommandConnected", "server_version"): (1, "string", True, ""),
    ("CommandConnected", "max_message_size"): (3, "int32", False, 0),
    ("FeatureFlags", "supports_topic_watchers"): (4, "bool", False, False),
    ("FeatureFlags", "supports_topic_watcher_reconcile"): (7, "bool", False, False),
    ("FeatureFlags", "supports_scalable_topics"): (8, "bool", False, False),
    ("FeatureFlags", "supports_tc_metadata_discovery"): (9, "bool", False, False),
    ("CommandLookupTopic", "request_id"): (2, "uint64", True, 0),
    ("CommandLookupTopic", "advertised_listener_name"): (7, "string", False, ""),
    ("CommandLookupTopic", "properties"): (8, "message", False, []),
    ("CommandLookupTopicResponse", "request_id"): (4, "uint64", True, 0),
    ("CommandLookupTopicResponse", "proxy_through_service_url"): (8, "bool", False, False),
    ("CommandPartitionedTopicMetadata", "metadata_auto_creation_enabled"): (6, "bool", False, True),
    ("CommandPartitionedTopicMetadataResponse", "partitions"): (1, "uint32", False, 0),
    ("CommandGetTopicsOfNamespace", "topics_hash"): (5, "string", False, ""),
    ("CommandGetTopicsOfNamespace", "properties"): (6, "message", False, []),
    ("CommandGetTopicsOfNamespaceResponse", "topics"): (2, "string", False, []),
    ("CommandGetTopicsOfNamespaceResponse", "filtered"): (3, "bool", False, False),
    ("CommandGetTopicsOfNamespaceResponse", "changed"): (5, "bool", False, True),
    ("CommandWatchTopicListSuccess", "topic"): (3, "string", False, []),
    ("CommandWatchTopicUpdate", "deleted_topics"): (3, "string", False, []),
    ("CommandGetSchema", "schema_version"): (3, "bytes", False, b""),
    ("CommandGetOrCreateSchema", "producer_name"): (4, "string", False, ""),
    ("Schema", "schema_data"): (3, "bytes", True, b""),
    ("CommandError", "request_id"): (1, "uint64", True, 0),
    ("MessageIdData", "partition"): (3, "int32", False, -1),
    ("MessageMetadata", "entry_hash_min"): (33, "uint32", False, 0),
    ("MessageMetadata", "entry_hash_max"): (34, "uint32", False, 0),
    ("KeySharedMeta", "entry_bucket_dispatch"): (5, "bool", False, False),
    ("SegmentInfoProto", "entry_bucket_splits"): (12, "uint32", False, []),
    ("ScalableAssignedSegment", "bucket_ranges"): (5, "message", False, []),
    ("CommandScalableTopicLookup", "create_if_missing"): (3, "bool", False, True),
    ("CommandScalableTopicUnsubscribe", "request_id"): (1, "uint64", True, 0),
    ("CommandScalableTopicUnsubscribe", "consumer_id"): (2, "uint64", True, 0),
}


@each(("message", "field"), WIRE)
def test_field_is_what_the_wire_has(message: str, field: str) -> None:
    declared = pb.DESCRIPTOR.message_types_by_name[message].fields_by_name[field]
    kind = {name[5:].lower(): number for name, number in vars(type(declared)).items() if name.startswith("TYPE_")}
    number, expected_kind, required, default = WIRE[message, field]
    assert (declared.number, declared.type, declared.is_required) == (number, kind[expected_kind], required)
    assert declared.default_value == default
