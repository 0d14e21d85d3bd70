"""Owns a small blocking Pulsar client that shows the wire: raw bytes, and a helper per lookup-mode request.

Obeys one rule: it adds nothing by itself; it answers a PING only while it waits for the answer to a request.
It must not know how the proxy works inside: the same client talks to a real broker, to the embedded one and
to the proxy.
"""

import itertools
import socket
import struct
from collections.abc import Mapping
from typing import Final, Self

from protocol.commands import PONG_FRAME, REQUEST_ID_NONE, decode_command, frame, request_id_of
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.patience import patient

PROTOCOL_VERSION: Final = 21
_LINGER_RESET: Final = struct.pack("ii", 1, 0)

type_of = pb.BaseCommand.Type.Name


class WireError(Exception):
    """Report an answer that is an error, or a peer that closed."""


class WireClosedError(WireError):
    """Report that the peer closed the connection, cleanly or not."""


class ServerRefusedError(WireError):
    """Report an ERROR, or a response that carries one."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{ServerError(code).name}: {message}")
        self.code = ServerError(code)
        self.message = message


class WireClient:
    """Talk to `host:port`; `segment_bytes` cuts what is sent into TCP segments of that size (0: uncut)."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout: float = 30.0,
        rcvbuf: int | None = None,
        segment_bytes: int = 0,
    ) -> None:
        sock = socket.socket()
        try:
            if rcvbuf is not None:
                # Before connect(): the window scale is fixed by the handshake.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
            sock.settimeout(patient(timeout))
            sock.connect((host, port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            sock.close()
            raise
        self._adopt(sock, segment_bytes)

    @classmethod
    def over(cls, sock: socket.socket, *, segment_bytes: int = 0) -> Self:
        """Wrap a connected socket, which the client then owns."""
        client = cls.__new__(cls)
        client._adopt(sock, segment_bytes)
        return client

    def _adopt(self, sock: socket.socket, segment_bytes: int) -> None:
        self.sock = sock
        self.payload = b""
        self._segment_bytes = segment_bytes
        self._request_ids = itertools.count(1)
        self._early: dict[int, pb.BaseCommand] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Raw exchange

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are, cut into segments if asked for."""
        step = self._segment_bytes or len(data) or 1
        for start in range(0, len(data), step):
            self.sock.sendall(data[start : start + step])

    def send_command(self, command: pb.BaseCommand) -> None:
        """Send one command without a payload."""
        self.send_raw(frame(command))

    def recv_command(self, timeout: float | None = None) -> pb.BaseCommand:
        """Return the next command, whatever it is; bytes behind it go to `payload`.

        Raises WireClosedError, and TimeoutError after `timeout` seconds (default: the constructor's).
        """
        before = self.sock.gettimeout()
        self.sock.settimeout(before if timeout is None else patient(timeout))
        try:
            body = self._recv_exactly(int.from_bytes(self._recv_exactly(4), "big"))
        finally:
            self.sock.settimeout(before)
        command_end = 4 + int.from_bytes(body[:4], "big")
        self.payload = body[command_end:]
        return decode_command(body[4:command_end])

    def _recv_exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view, got = memoryview(data), 0
        while got < size:
            try:
                count = self.sock.recv_into(view[got:])
            except ConnectionError as error:
                raise WireClosedError(f"reset by peer after {got} of {size} bytes") from error
            if count == 0:
                raise WireClosedError(f"closed by peer after {got} of {size} bytes")
            got += count
        return bytes(data)

    def wait_closed(self) -> None:
        """Read until the peer closes; raises TimeoutError if it does not."""
        try:
            while self.sock.recv(65536):
                pass
        except ConnectionError:
            return

    def half_close(self) -> None:
        """Send FIN, go on reading."""
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
        self.sock.close()

    def close(self) -> None:
        """Close with FIN; may be called twice."""
        self.sock.close()

    # Requests

    def connect(self, **fields: object) -> pb.CommandConnected:
        """Send CONNECT with `fields` over the defaults and return CONNECTED; raises ServerRefusedError."""
        given = {"client_version": "wire-client", "protocol_version": PROTOCOL_VERSION, **fields}
        self.send_command(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=pb.CommandConnect(**given)))  # type: ignore[arg-type]
        answer = self.recv_command()
        _raise_error(answer)
        assert answer.type == pb.BaseCommand.CONNECTED, f"expected CONNECTED, got {type_of(answer.type)}"
        return answer.connected

    def next_request_id(self) -> int:
        """Return an id that no request of this client had."""
        return next(self._request_ids)

    def answer_to(self, request_id: int) -> pb.BaseCommand:
        """Wait for the answer to one of several outstanding requests.

        Raises ServerRefusedError for an ERROR with this request's id or with none.
        """
        while request_id not in self._early:
            command = self.recv_command()
            if command.type == pb.BaseCommand.PING:
                self.send_raw(PONG_FRAME)
                continue
            answered = request_id_of(command)
            if answered == REQUEST_ID_NONE:
                _raise_error(command)
                raise WireError(f"expected an answer with a request id, got {type_of(command.type)}")
            self._early[answered] = command
        answer = self._early.pop(request_id)
        _raise_error(answer)
        return answer

    def ask_topics(
        self,
        namespace: str,
        mode: str = "PERSISTENT",
        pattern: str | None = None,
        topics_hash: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Send GET_TOPICS_OF_NAMESPACE and return its request id."""
        request = pb.CommandGetTopicsOfNamespace(
            request_id=self.next_request_id(),
            namespace=namespace,
            mode=pb.CommandGetTopicsOfNamespace.Mode.Value(mode),
            topics_pattern=pattern,
            topics_hash=topics_hash,
            properties=_key_values(properties),
        )
        self.send_command(pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=request))
        return request.request_id

    def get_topics(
        self,
        namespace: str,
        mode: str = "PERSISTENT",
        pattern: str | None = None,
        topics_hash: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> pb.CommandGetTopicsOfNamespaceResponse:
        """Ask for a topic list; raises ServerRefusedError."""
        request_id = self.ask_topics(namespace, mode, pattern, topics_hash, properties)
        return self.answer_to(request_id).getTopicsOfNamespaceResponse

    def lookup(
        self,
        topic: str,
        authoritative: bool = False,
        listener: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> pb.CommandLookupTopicResponse:
        """Look `topic` up; a Failed answer is returned, not raised."""
        request = pb.CommandLookupTopic(
            request_id=self.next_request_id(),
            topic=topic,
            authoritative=authoritative,
            advertised_listener_name=listener,
            properties=_key_values(properties),
        )
        self.send_command(pb.BaseCommand(type=pb.BaseCommand.LOOKUP, lookupTopic=request))
        return self.answer_to(request.request_id).lookupTopicResponse

    def partition_metadata(self, topic: str, auto_create: bool = True) -> pb.CommandPartitionedTopicMetadataResponse:
        """Ask how many partitions `topic` has; a Failed answer is returned, not raised."""
        request = pb.CommandPartitionedTopicMetadata(
            request_id=self.next_request_id(), topic=topic, metadata_auto_creation_enabled=auto_create
        )
        self.send_command(pb.BaseCommand(type=pb.BaseCommand.PARTITIONED_METADATA, partitionMetadata=request))
        return self.answer_to(request.request_id).partitionMetadataResponse

    def get_schema(self, topic: str, version: bytes | None = None) -> pb.CommandGetSchemaResponse:
        """Ask for a schema; an answer with an error code is returned, not raised."""
        request = pb.CommandGetSchema(request_id=self.next_request_id(), topic=topic, schema_version=version)
        self.send_command(pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA, getSchema=request))
        return self.answer_to(request.request_id).getSchemaResponse

    def get_or_create_schema(self, topic: str, schema: pb.Schema) -> pb.CommandGetOrCreateSchemaResponse:
        """Register `schema` for `topic`; an answer with an error code is returned, not raised."""
        request = pb.CommandGetOrCreateSchema(request_id=self.next_request_id(), topic=topic, schema=schema)
        self.send_command(pb.BaseCommand(type=pb.BaseCommand.GET_OR_CREATE_SCHEMA, getOrCreateSchema=request))
        return self.answer_to(request.request_id).getOrCreateSchemaResponse

    def ping(self) -> pb.BaseCommand:
        """Send PING and return the command that comes next."""
        self.send_command(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()))
        return self.recv_command()


def _key_values(properties: Mapping[str, str] | None) -> list[pb.KeyValue]:
    return [pb.KeyValue(key=key, value=value) for key, value in (properties or {}).items()]


def _raise_error(command: pb.BaseCommand) -> None:
    if command.type == pb.BaseCommand.ERROR:
        raise ServerRefusedError(command.error.error, command.error.message)
