"""Own commands as tests write them: by the name of their type and their fields."""

from typing import Any

from protocol.pb import PulsarApi_pb2 as pb


def command(kind: str, **fields: Any) -> pb.BaseCommand:
    """Build a command of the type that is named."""
    built = pb.BaseCommand(type=pb.BaseCommand.Type.Value(kind))
    content = getattr(built, content_of(built.type))
    content.SetInParent()
    content.CopyFrom(type(content)(**fields))
    return built


def content_of(kind: int) -> str:
    """Name the field of a command's content."""
    return pb.BaseCommand.DESCRIPTOR.fields_by_number[kind].name
