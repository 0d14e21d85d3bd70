"""Own what a transcript is: the events of each side in order, in words that name no port, version or drawn number.

Rule: two transcripts of the same behaviour are equal, whichever proxy, machine or run they come from.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from protocol.pb import PulsarApi_pb2 as pb
from tests.transcripts.tokens import TOKENS

RECORDED: Final = Path(__file__).parent / "recorded"
CLIENT: Final = "client"
END: Final = "END"
# The Java proxy says nothing and goes on; how long the recorder waits for that is its own affair.
SILENCE: Final = "SILENCE"
_LONGEST_HEX_BYTES: Final = 64
_LONGEST_TEXT: Final = 120
_ADDRESS: Final = re.compile(r"(?:127\.0\.0\.1)?/?127\.0\.0\.1:(\d+)")
_REQUEST_ID: Final = re.compile(r"(reqId\W+)\d+")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that one side got (or, for the reader's sake, sent): a command with its fields, bytes, or the end."""

    side: str
    way: str
    what: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """Give the line of JSON that is committed."""
        return json.dumps({"side": self.side, self.way: self.what, **({"fields": self.fields} if self.fields else {})})

    @staticmethod
    def of_line(line: str) -> "Event":
        """Read a line of JSON."""
        read = json.loads(line)
        way = "got" if "got" in read else "sent"
        return Event(read["side"], way, read[way], read.get("fields", {}))


Transcript = tuple[Event, ...]


class Words:
    """Put names for what differs from run to run: ports, versions, numbers that a proxy draws, credentials."""

    def __init__(self, ports: Mapping[int, str], versions: Iterable[str]) -> None:
        self._ports = dict(ports)
        self._versions = re.compile("|".join(map(re.escape, sorted(versions, key=len, reverse=True))))

    def text(self, text: str) -> str:
        """Give `text` with the names put in."""
        text = TOKENS.get(text, text)
        text = _ADDRESS.sub(self._address, text)
        text = _REQUEST_ID.sub(r"\1<drawn>", text)
        text = self._versions.sub("<version>", text)
        return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}... ({len(text)} characters)"

    def _address(self, found: "re.Match[str]") -> str:
        port = int(found[1])
        # Ports that no machine hands out are the script's own.
        return self._ports.get(port, "<some address>" if 1024 <= port < 65536 else found[0])

    def data(self, data: bytes) -> str:
        """Show bytes: known credentials by their name, text as text, else as hexadecimal digits."""
        if data.isascii() and (text := data.decode("ascii")).isprintable():
            return self.text(text)
        if len(data) > _LONGEST_HEX_BYTES:
            return f"{data[:_LONGEST_HEX_BYTES].hex()}... ({len(data)} bytes)"
        return data.hex()

    def event(self, side: str, way: str, frame: bytes) -> Event:
        """Show one frame, its size included."""
        size = int.from_bytes(frame[4:8], "big")
        command, payload = frame[8 : 8 + size], frame[8 + size :]
        try:
            decoded = pb.BaseCommand.FromString(command)
        except DecodeError:
            return Event(side, way, "BYTES", {"bytes": self.data(frame)})
        if not decoded.HasField("type"):
            return Event(side, way, "BYTES", {"bytes": self.data(frame)})
        fields = {}
        for descriptor, content in decoded.ListFields():
            if descriptor.message_type is not None:
                fields = self._fields(content, keep_ids=side == CLIENT)
        if payload:
            fields["payload"] = self.data(payload)
        return Event(side, way, pb.BaseCommand.Type.Name(decoded.type), fields)

    def _fields(self, message: Message, keep_ids: bool) -> dict[str, Any]:
        return {descriptor.name: self._value(descriptor, value, keep_ids) for descriptor, value in message.ListFields()}

    def _value(self, descriptor: FieldDescriptor, value: Any, keep_ids: bool) -> Any:
        if descriptor.is_repeated:
            return [self._one(descriptor, item, keep_ids) for item in value]
        return self._one(descriptor, value, keep_ids)

    def _one(self, descriptor: FieldDescriptor, value: Any, keep_ids: bool) -> Any:
        if descriptor.message_type is not None:
            return self._fields(value, keep_ids)
        if descriptor.enum_type is not None:
            known = descriptor.enum_type.values_by_number.get(value)
            return known.name if known is not None else value
        if isinstance(value, bytes):
            return self.data(value)
        if isinstance(value, str):
            return self.text(value)
        if descriptor.name == "request_id":
            if value == (1 << 64) - 1:
                return -1
            return value if keep_ids else "<drawn>"
        return value


def read_recorded(group: str) -> dict[str, Transcript]:
    """Read the Java proxy's transcripts of one group."""
    found: dict[str, list[Event]] = {}
    for line in (RECORDED / f"{group}.jsonl").read_text().splitlines():
        read = json.loads(line)
        if "script" in read:
            events = found.setdefault(read["script"], [])
        else:
            events.append(Event.of_line(line))
    return {name: tuple(events) for name, events in found.items()}


def write_recorded(group: str, transcripts: Mapping[str, Transcript]) -> None:
    """Write the transcripts of one group."""
    lines = []
    for name, transcript in transcripts.items():
        lines += [json.dumps({"script": name}), *(event.line() for event in transcript)]
    (RECORDED / f"{group}.jsonl").write_text("\n".join(lines) + "\n")
