"""Frames that clients send to brokers, byte by byte, and what the scanner of the extension finds in them."""

from tests.support.native import offered

# Kind, producer, messages, size of the frame, topic.
Found = tuple[str, int | None, int, int, bytes | None]


def number(value: int) -> bytes:
    """Encode a varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def bare(command: bytes, payload: bytes = b"") -> bytes:
    """Return a frame of a command."""
    total = 4 + len(command) + len(payload)
    return total.to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + payload


def part(tag: int, *fields: bytes) -> bytes:
    """Return a message in a field, with what stands in it."""
    content = b"".join(fields)
    return number(tag) + number(len(content)) + content


def send_frame(
    producer: int,
    *,
    sequence: int = 0,
    messages: int | None = None,
    highest: int | None = None,
    is_chunk: bool = False,
    payload: bytes = b"message",
) -> bytes:
    """Return a SEND as clients encode one."""
    part = b"\x08" + number(producer) + b"\x10" + number(sequence)
    part += b"" if messages is None else b"\x18" + number(messages)
    part += b"" if highest is None else b"\x30" + number(highest)
    part += b"\x38\x01" if is_chunk else b""
    return bare(b"\x08\x06\x32" + number(len(part)) + part, payload)


def producer_frame(topic: bytes, producer: int, *, schema: bytes = b"") -> bytes:
    """Return a PRODUCER as clients encode one."""
    part = b"\x0a" + number(len(topic)) + topic + b"\x10" + number(producer) + b"\x18\x01"
    part += b"\x3a" + number(len(schema)) + schema if schema else b""
    return bare(b"\x08\x05\x2a" + number(len(part)) + part)


def close_frame(producer: int) -> bytes:
    """Return a CLOSE_PRODUCER."""
    part = b"\x08" + number(producer) + b"\x10\x07"
    return bare(b"\x08\x0f\x7a" + number(len(part)) + part)


def subscribe_frame(topic: bytes) -> bytes:
    """Return the beginning of a SUBSCRIBE, which is all that a scanner reads."""
    part = b"\x0a" + number(len(topic)) + topic + b"\x12\x01s\x18\x00\x20\x01\x28\x01"
    return bare(b"\x08\x04\x22" + number(len(part)) + part)


def _sent(command: str, payload: int, producer: int, messages: int) -> tuple[bytes, list[Found]]:
    frame = bare(bytes.fromhex(command), bytes(payload))
    return frame, [("send", producer, messages, len(frame), None)]


_TOPIC = b"persistent://public/default/t"
# The commands as Java and C++ clients were seen to send them.
CLIENT_FRAMES: dict[str, tuple[bytes, list[Found]]] = {
    "single message": _sent("0806320408001000", 30, 0, 1),
    "C++ batch of ten": _sent("0806320608011000180a", 300, 1, 10),
    "Java batch of ten": _sent("0806320808011000180a3009", 300, 1, 10),
    "chunk": _sent("08063206080210003801", 1000, 2, 1),
    "a late sequence": _sent("08063207080310ffffff7f", 40, 3, 1),
    "with a message id": _sent("0806328f01" + "0805" + "1001" + "4a8801" + "0801" * 68, 10, 5, 1),
    "PRODUCER": (producer_frame(_TOPIC, 4), [("producer", 4, 0, 0, _TOPIC)]),
    "CLOSE_PRODUCER": (close_frame(4), [("closed", 4, 0, 0, None)]),
}


def found_in(reads: list[bytes]) -> list[Found]:
    """Return what the extension's scanner finds, or skip the test and record the gap."""
    scanner = offered("ProducerScanner")()
    return [found for read in reads for found in scanner.scan(read)]
