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


# (message, field) -> (number, kind, required, default), as brokers 4.2 and 5.0 have them on the wire.
WIRE = {
    ("CommandConnect", "proxy_to_broker_url"): (6, "string", False, ""),
    ("CommandConnect", "proxy_version"): (11, "string", False, ""),
    ("CommandConnected", "max_message_size"): (3, "int32", False, 0),
    ("FeatureFlags", "supports_topic_watcher_reconcile"): (7, "bool", False, False),
    ("FeatureFlags", "supports_scalable_topics"): (8, "bool", False, False),
    ("FeatureFlags", "supports_tc_metadata_discovery"): (9, "bool", False, False),
    ("CommandLookupTopic", "advertised_listener_name"): (7, "string", False, ""),
    ("CommandPartitionedTopicMetadata", "metadata_auto_creation_enabled"): (6, "bool", False, True),
    ("CommandGetTopicsOfNamespaceResponse", "changed"): (5, "bool", False, True),
    ("MessageIdData", "partition"): (3, "int32", False, -1),
    ("MessageMetadata", "entry_hash_max"): (34, "uint32", False, 0),
    ("CommandScalableTopicLookup", "create_if_missing"): (3, "bool", False, True),
}


@each(("message", "field"), WIRE)
def test_field_is_what_the_wire_has(message: str, field: str) -> None:
    declared = pb.DESCRIPTOR.message_types_by_name[message].fields_by_name[field]
    kind = {name[5:].lower(): number for name, number in vars(type(declared)).items() if name.startswith("TYPE_")}
    number, expected_kind, required, default = WIRE[message, field]
    assert (declared.number, declared.type, declared.is_required) == (number, kind[expected_kind], required)
    assert declared.default_value == default
