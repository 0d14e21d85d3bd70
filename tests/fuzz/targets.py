"""The targets of the fuzzer: what is fed, from which seeds, and the sentence that must hold for every input.

Rule: a target takes any bytes, returns if its sentence holds, and raises otherwise. The first byte of an input says how
the rest is cut into reads, where the target reads a stream. Targets keep no state between inputs.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError

from protocol.command_head import CommandHead
from protocol.commands import decode_command
from protocol.errors import RemoteProtocolError
from protocol.field_walker import MAX_ENTRIES
from protocol.frames import Frame, read_head
from protocol.framing import FrameAnnounced, FrameDecoder, Signal
from protocol.pb import PulsarApi_pb2 as pb
from protocol.proxy_header import MAX_HEADER_BYTES, HeaderReader, HostPort, ProxyHeader, encode
from protocol.slabs import SlabPool
from protocol.topic_list import CountingScanner, DelegatingScanner, TopicListAnswer, TopicListScanner
from proxy.core import native
from proxy.net.tls.failures import TlsFailed
from proxy.net.tls.hello import LARGEST_HELLO_BYTES, MOST_HELLO_BYTES, bytes_after, hello_end, hello_progress
from tests.fuzz import documents, http_streams, tls_sessions
from tests.support.auth.tls import Sealer, client_context
from tests.support.native import found_by
from tests.support.sockets.frames import (
    list_frame,
    pieces_of,
    ping,
    scalable_diff,
    send,
    watch_success,
    watch_update,
)
from tests.support.sockets.producer_frames import CLIENT_FRAMES, bare, subscribe_frame

CAP: Final = 4096
LONGEST: Final = 4096
_LIST: Final = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE


@dataclass(frozen=True)
class Target:
    """One thing that reads foreign bytes; `modules` are those whose paths through the code guide the fuzzer."""

    name: str
    invariant: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    modules: tuple[str, ...]
    # How many inputs the short version tries: dear targets get fewer.
    short_runs: int = 3000


def cut(data: bytes) -> tuple[bytes, list[bytes]]:
    """Return the bytes behind the first, and the same in reads of as many bytes as the first byte says, 0: in one."""
    body, step = data[1:], data[0] if data else 0
    return body, list(pieces_of(body, [step] * (len(body) // step + 1) if step else []))


# --- frames ---------------------------------------------------------------------------------------


def frames(data: bytes) -> None:
    body, reads = cut(data)
    taste = len(data) % 4
    events = [_decoded(reads, taste), _decoded([body], taste)]
    assert events[0] == events[1], "the verdict depends on how the bytes are cut"


def _decoded(reads: Sequence[bytes], taste: int) -> list[object]:
    decoder = FrameDecoder(CAP, announce_above=60, announce_types=frozenset({_LIST}))
    seen: list[object] = []
    try:
        for read in reads:
            decoder.receive_data(read)
            while not isinstance(event := decoder.next_event(), Signal):
                if isinstance(event, Frame):
                    size = event.head.frame_bytes
                    assert 8 + len(event.command) + len(event.payload) == size <= CAP
                    seen.append((bytes(event.command), bytes(event.payload)))
                elif isinstance(event, FrameAnnounced):
                    seen.append(event.head)
                    _decide(decoder, event, taste)
            assert decoder.stored_bytes <= CAP
    except RemoteProtocolError as error:
        seen.append(type(error))
    return seen


def _decide(decoder: FrameDecoder, event: FrameAnnounced, taste: int) -> None:
    if taste == 0 or event.head.request_id is None:
        decoder.skip()
    elif taste == 1:
        decoder.store()
    else:
        decoder.divert(TopicListAnswer(event.head, SlabPool(), counting=taste == 2))


def _frame_seeds() -> list[bytes]:
    names = [f"persistent://a/b/{number}" for number in range(9)]
    watches = [watch_success(7, names), watch_update(7, names, names), scalable_diff(7, names, names)]
    whole = [ping(), send(b"payload"), list_frame(300, names), *watches]
    return [bytes([step]) + stream for step in (0, 7) for stream in (*whole, b"".join(whole))]


def watch_scan(data: bytes) -> None:
    body, reads = cut(data)
    scanner, whole = _offered("FrameScanner"), _offered("FrameScanner")
    found = [scanner.scan(read) for read in reads]
    at_once = whole.scan(body)
    assert whole.ended == scanner.ended
    counted = [0, 0, 0] if at_once is None else list(at_once[1:4])
    assert [sum(each[at] for each in found if each) for at in (1, 2, 3)] == counted


def producer_scan(data: bytes) -> None:
    body, reads = cut(data)
    scanner = _offered("ProducerScanner")
    found = [each for read in reads for each in scanner.scan(read)]
    assert _offered("ProducerScanner").scan(body) == found, "what is found depends on how the bytes are cut"


def _producer_seeds() -> list[bytes]:
    streams = [stream for stream, _ in CLIENT_FRAMES.values()]
    streams.append(subscribe_frame(b"persistent://a/b/c"))
    # The type twice, and the producer twice.
    streams.append(bytes.fromhex("0000000e0000000a 0812 3204 08001005 0806"))
    streams.append(bytes.fromhex("0000000e0000000a 0806 3206 08001005 0801"))
    return [bytes([step]) + stream for step in (0, 5) for stream in (*streams, b"".join(streams))]


def command_scan(data: bytes) -> None:
    body, _ = cut(data)
    if len(body) >= 10:
        head = CommandHead(body)
        assert 0 <= head.kind < 128
        assert body[8:].startswith(head.command)
        assert head.messages() >= 1


def _scan_seeds() -> list[bytes]:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=7)
    headers = b"\x0e\x01crc4" + metadata.ByteSize().to_bytes(4, "big") + metadata.SerializeToString()
    of_a_broker = b"\x0e\x02\0\0\0\x02\x08\x01" + headers
    streams = [bare(b"\x08\x06", headers + b"payload"), bare(b"\x08\x09", of_a_broker + b"payload"), bare(b"\x08\x12")]
    return [bytes([step]) + stream for step in (0, 5) for stream in (*streams, b"".join(streams))]


def _offered(name: str) -> Any:
    return getattr(native.native().module, name)()


# --- topic lists and commands ---------------------------------------------------------------------


def topic_list(data: bytes) -> None:
    body, reads = cut(data)
    counting, light = CountingScanner(len(body)), TopicListScanner(len(body))
    accepted = _fed(counting, reads)
    assert _fed(light, reads) == accepted
    extension = native.native_class("TopicListScanner")
    if extension is not None:
        other = DelegatingScanner(len(body), extension)
        assert _fed(other, reads) == accepted, "the scanner in Rust has another verdict"
        assert not accepted or found_by(other) == found_by(counting)
    if accepted:
        plain, names = pb.CommandGetTopicsOfNamespaceResponse(), pb.TopicListNames()
        plain.MergeFromString(body)
        names.MergeFromString(body)
        assert counting.topic_count == len(plain.topics)
        assert counting.name_bytes == sum(map(len, names.topics))
        assert (light.filtered, light.changed) == (plain.filtered, plain.changed)


def _fed(scanner: TopicListScanner, reads: Sequence[bytes]) -> bool:
    try:
        for read in reads:
            scanner.feed(bytearray(read))
    except RemoteProtocolError:
        return False
    return True


def _list_seeds() -> list[bytes]:
    names = [b"\x12\x18persistent://a/b/topic-%02d" % number for number in range(6)]
    rests = [b"".join(names), b"\x18\x01\x28\x00" + names[0] + b"\x22\x02ab", b"\x12\x90\x03" + b"n" * 400, b"\x7b\x7c"]
    return [bytes([step]) + rest for step in (0, 3, 64) for rest in rests]


def command(data: bytes) -> None:
    head = None
    with suppress(RemoteProtocolError):
        head = read_head((len(data) + 4).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data)
    try:
        decoded = decode_command(data)
    except RemoteProtocolError:
        return
    plain = pb.BaseCommand()
    try:
        plain.MergeFromString(data)
    except DecodeError as error:
        raise AssertionError("accepted what protobuf refuses") from error
    assert plain.type == decoded.type
    if head is not None and head.request_id is not None:
        assert head.command_type == decoded.type
        if decoded.type == _LIST:
            rest = pb.CommandGetTopicsOfNamespaceResponse()
            rest.MergeFromString(data[head.rest_offset - 8 :])
            assert list(rest.topics) == list(plain.getTopicsOfNamespaceResponse.topics)
    if decoded.type == pb.BaseCommand.LOOKUP:
        assert len(decoded.lookupTopic.properties) <= MAX_ENTRIES


def _command_seeds() -> list[bytes]:
    made = []
    for field in pb.BaseCommand.DESCRIPTOR.fields:
        if field.message_type is None:
            continue
        whole = pb.BaseCommand()
        part = getattr(whole, field.name)
        part.SetInParent()
        for inner in field.message_type.fields:
            if not inner.is_repeated and inner.cpp_type == inner.CPPTYPE_STRING:
                setattr(part, inner.name, b"x" if inner.type == inner.TYPE_BYTES else "x")
            elif not inner.is_repeated and inner.cpp_type in (inner.CPPTYPE_UINT64, inner.CPPTYPE_INT32):
                setattr(part, inner.name, 7)
        if field.number in pb.BaseCommand.Type.values():
            whole.type = pb.BaseCommand.Type.ValueType(field.number)
            made.append(whole.SerializePartialToString())
    return [*made, list_frame(300, ["persistent://a/b/c"] * 3)[8:]]


# --- the beginning of a connection ----------------------------------------------------------------


def proxy_header(data: bytes) -> None:
    body, reads = cut(data)
    outcomes = [_header(reads), _header([body])]
    assert outcomes[0] == outcomes[1], "the verdict depends on how the bytes are cut"
    header, taken = outcomes[0]
    assert taken <= MAX_HEADER_BYTES
    if isinstance(header, ProxyHeader):
        for version in (1, 2):
            assert _header([encode(header, version)])[0] == header


def _header(reads: Sequence[bytes]) -> tuple[ProxyHeader | str | None, int]:
    reader, taken, shown = HeaderReader(), 0, b""
    try:
        for read in reads:
            shown += read
            while not reader.done and (step := reader.take(shown)):
                taken, shown = taken + step, shown[step:]
    except RemoteProtocolError:
        return "refused", 0
    return (reader.header if reader.done else "unfinished"), taken


def _header_seeds() -> list[bytes]:
    four = ProxyHeader(HostPort("192.0.2.1", 4321), HostPort("198.51.100.2", 6650))
    six = ProxyHeader(HostPort("2001:db8::1", 1), HostPort("2001:db8::2", 65535))
    made = [encode(header, version) for header in (four, six, ProxyHeader()) for version in (1, 2)]
    return [bytes([step]) + header + rest for step in (0, 3) for header in made for rest in (b"", b"\0\0\0\x09")]


def client_hello(data: bytes) -> None:
    body, reads = cut(data)
    at_once = _hello(body)
    for end in (sum(map(len, reads[:count])) for count in range(1, min(len(reads), 40))):
        early = _hello(body[:end])
        # What is refused early stays refused, and an end that is found does not move.
        assert early in (0, at_once), (early, at_once)
        if early == 0:
            _, needed = hello_progress(body[:end])
            # What is not looked at holds no whole hello.
            assert end < needed <= MOST_HELLO_BYTES, (end, needed)
            assert at_once <= 0 or needed <= at_once, (needed, at_once)
    if at_once > 0:
        assert at_once <= min(len(body), MOST_HELLO_BYTES)
        assert 0 <= bytes_after(body[:at_once]) <= LARGEST_HELLO_BYTES + 4


def _hello(held: bytes) -> int:
    try:
        return hello_end(held)
    except TlsFailed:
        return -1


def _hello_seeds() -> list[bytes]:
    sealer = Sealer(client_context())
    with suppress(OSError):
        sealer.tls.do_handshake()
    hello = sealer.outgoing.read()
    message = hello[5:]
    split = b"".join(
        b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in (message[:60], message[60:200], message[200:])
    )
    return [bytes([step]) + each for step in (0, 50) for each in (hello, split, b"\x14\x03\x03\x00\x01\x01" + hello)]


TARGETS: Final = (
    Target(
        "frames", "Any bytes, cut anyhow, give the same frames or a RemoteProtocolError, and no more is stored than "
        "the largest frame.", frames, _frame_seeds, ("protocol.framing", "protocol.frames", "protocol.topic_list"),
        short_runs=2000,
    ),
    Target(
        "watch-scan", "The scanner of watch frames finds the same, however the bytes are cut.",
        watch_scan, _frame_seeds, ("protocol.framing",),
    ),
    Target(
        "producer-scan", "The scanner of PRODUCER and SEND finds the same, however the bytes are cut.", producer_scan,
        _producer_seeds, ("protocol.framing",),
    ),
    Target(
        "command-scan", "The scanner of commands for the log finds the same, however the bytes are cut, and keeps no "
        "more than 4 KB of a frame (in Rust); any such head can be read.", command_scan, _scan_seeds,
        ("protocol.command_head",),
    ),
    Target(
        "topic-list", "The scanners of topic lists in Python and in Rust have one verdict, and what they accept "
        "protobuf decodes to as many names and bytes.", topic_list, _list_seeds,
        ("protocol.topic_list", "protocol.field_walker"), short_runs=1500,
    ),
    Target(
        "command", "A command is decoded to what protobuf makes of it, or is a RemoteProtocolError.", command,
        _command_seeds, ("protocol.commands", "protocol.frames", "protocol.field_walker"),
    ),
    Target(
        "proxy-header", "A PROXY header is read to the same addresses however it is cut, is written back to the same, "
        "and never takes more than its limit.", proxy_header, _header_seeds, ("protocol.proxy_header",),
    ),
    Target(
        "client-hello", "The end of a ClientHello lies within what came and within the limit, and does not move when "
        "more bytes come.", client_hello, _hello_seeds, ("proxy.net.tls.hello",),
    ),
    Target(
        "tls-session", "Whatever a peer sends, a session of TLS gives the bytes that were sealed, in their order, or "
        "fails; it keeps no more than a few records.", tls_sessions.tls_session, tls_sessions.tls_seeds,
        ("tests.fuzz.tls_sessions",), short_runs=400,
    ),
    Target(
        "configuration", "Any file is a configuration or a list of problems, each with a line of the file.",
        documents.configuration, documents.configuration_seeds,
        ("proxy.config.properties", "proxy.config.sources", "proxy.config.rules"), short_runs=150,
    ),
    Target(
        "http", "A path that is passed on has no dot segments, and each header that is passed on is one line and none "
        "that only the proxy may set.", documents.http, documents.http_seeds,
        ("proxy.web.forward.routes", "proxy.web.forward.headers", "proxy.web.http.paths", "proxy.web.http.origins"),
    ),
    Target(
        "http-stream", "However the bytes of an HTTP connection are cut, the requests in them are the same, or fewer.",
        http_streams.http_stream, http_streams.http_stream_seeds, ("proxy.web.connection", "proxy.web.http.pieces"),
        short_runs=200,
    ),
    Target(
        "event-file", "Spans cover a file without gaps, and recovery finishes exactly its sound members.",
        documents.event_file, documents.event_seeds, ("eventlog.members", "eventlog.recovery"), short_runs=600,
    ),
    Target(
        "token", "Any bytes are one token in its one spelling, or a BadToken that repeats none of it.",
        documents.token, documents.token_seeds, ("proxy.auth.providers.signed_token", "proxy.auth.roles"),
    ),
)  # fmt: skip
BY_NAME: Final = {target.name: target for target in TARGETS}
