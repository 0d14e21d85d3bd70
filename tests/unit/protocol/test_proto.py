"""The generated module is what the .proto gives, and the .proto keeps the wire contract."""

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from scripts import generate_proto


def test_committed_modules_are_what_the_proto_gives() -> None:
    given = generate_proto.files()
    assert {path: path.read_text(encoding="utf-8") for path in given} == given


def test_every_command_number_is_also_its_field_number() -> None:
    fields = {field.number for field in pb.BaseCommand.DESCRIPTOR.fields} - {1}
    assert fields == set(pb.BaseCommand.Type.values())


def test_server_errors_are_the_same_with_and_without_the_generated_module() -> None:
    assert {error.name: error.value for error in ServerError} == dict(pb.ServerError.items())
