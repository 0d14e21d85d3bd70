"""Owns a small blocking Pulsar client that shows the wire, with a helper per lookup-mode request.

Obeys one rule: it adds nothing by itself; it answers a PING only while it waits for the answer to a request.
It must not know how the proxy works inside: the same client talks to a real broker, to the embedded one and
to the proxy.
"""

import itertools
import socket
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Self

from protocol.commands import PING_FRAME, PONG_FRAME, REQUEST_ID_NONE, decode_command, frame, request_id_of
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.commands import command
from tests.support.patience import patient

PROTOCOL_VERSION: Final = 21


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
    """Talk to `host:port`, or over a connected socket, which the client then owns."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout: float = 30.0,
        rcvbuf: int | None = None,
        over: socket.socket | None = None,
    ) -> None:
        self.sock = over or socket.socket()
        self._request_ids = itertools.count(1)
        self._early: dict[int, pb.BaseCommand] = {}
        if over is not None:
            return
        try:
            if rcvbuf is not None:
                # Before connect(): the window scale is fixed by the handshake.
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
            self.sock.settimeout(patient(timeout))
            self.sock.connect((host, port))
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            self.sock.close()
            raise

    @classmethod
    def over(cls, sock: socket.socket) -> Self:
        """Wrap a connected socket."""
        return cls("", 0, over=sock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    # Raw exchange

    def send_raw(self, data: bytes) -> None:
        self.sock.sendall(data)

    def send_command(self, command: pb.BaseCommand) -> None:
        """Send one command without a payload."""
        self.send_raw(frame(command))

    def recv_command(self) -> pb.BaseCommand:
        """Return the next command, whatever it is; raises WireClosedError and TimeoutError."""
        body = self.receive(int.from_bytes(self.receive(4), "big"))
        return decode_command(body[4 : 4 + int.from_bytes(body[:4], "big")])

    def receive(self, size: int) -> bytes:
        """Read exactly so many bytes."""
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

    def reset(self) -> None:
        """Close with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    # Requests

    def connect(self, **fields: Any) -> pb.CommandConnected:
        """Send CONNECT with `fields` over the defaults and return CONNECTED; raises ServerRefusedError."""
        given = {"client_version": "wire-client", "protocol_version": PROTOCOL_VERSION, **fields}
        self.send_command(command("CONNECT", **given))
        answer = _no_error(self.recv_command())
        assert answer.HasField("connected"), f"expected CONNECTED, got {answer}"
        return answer.connected

    def next_id(self) -> int:
        """Return an id that no request of this client had."""
        return next(self._request_ids)

    def ask(self, kind: str, **fields: Any) -> int:
        """Send a request of the type that is named, and return its request id."""
        request_id = self.next_id()
        self.send_command(command(kind, request_id=request_id, **fields))
        return request_id

    def answer_to(self, request_id: int) -> pb.BaseCommand:
        """Wait for the answer to one of several outstanding requests.

        Raises ServerRefusedError for an ERROR with this request's id or with none.
        """
        while request_id not in self._early:
            came = self.recv_command()
            if came.type == pb.BaseCommand.PING:
                self.send_raw(PONG_FRAME)
                continue
            answered = request_id_of(came)
            if answered == REQUEST_ID_NONE:
                raise WireError(f"expected an answer with a request id, got {_no_error(came)}")
            self._early[answered] = came
        return _no_error(self._early.pop(request_id))

    def answered(self, kind: str, **fields: Any) -> pb.BaseCommand:
        """Ask and wait for the answer."""
        return self.answer_to(self.ask(kind, **fields))

    def ask_topics(
        self,
        namespace: str,
        mode: str = "PERSISTENT",
        pattern: str | None = None,
        properties: Mapping[str, str] = MappingProxyType({}),
        **fields: Any,
    ) -> int:
        """Send GET_TOPICS_OF_NAMESPACE and return its request id."""
        fields |= {"namespace": namespace, "mode": mode, "topics_pattern": pattern}
        pairs = [pb.KeyValue(key=key, value=value) for key, value in properties.items()]
        return self.ask("GET_TOPICS_OF_NAMESPACE", properties=pairs, **fields)

    def get_topics(self, *arguments: Any, **more: Any) -> pb.CommandGetTopicsOfNamespaceResponse:
        """Ask for a topic list; raises ServerRefusedError."""
        return self.answer_to(self.ask_topics(*arguments, **more)).getTopicsOfNamespaceResponse

    def lookup(self, topic: str) -> pb.CommandLookupTopicResponse:
        """Look `topic` up; a Failed answer is returned, not raised."""
        return self.answered("LOOKUP", topic=topic).lookupTopicResponse

    def partition_metadata(self, topic: str, auto_create: bool = True) -> pb.CommandPartitionedTopicMetadataResponse:
        """Ask how many partitions `topic` has; a Failed answer is returned, not raised."""
        fields = {"topic": topic, "metadata_auto_creation_enabled": auto_create}
        return self.answered("PARTITIONED_METADATA", **fields).partitionMetadataResponse

    def get_schema(self, topic: str, version: bytes | None = None) -> pb.CommandGetSchemaResponse:
        """Ask for a schema; an answer with an error code is returned, not raised."""
        return self.answered("GET_SCHEMA", topic=topic, schema_version=version).getSchemaResponse

    def get_or_create_schema(self, topic: str, schema: pb.Schema) -> pb.CommandGetOrCreateSchemaResponse:
        """Register `schema` for `topic`; an answer with an error code is returned, not raised."""
        return self.answered("GET_OR_CREATE_SCHEMA", topic=topic, schema=schema).getOrCreateSchemaResponse

    def ping(self) -> pb.BaseCommand:
        """Send PING and return the command that comes next."""
        self.send_raw(PING_FRAME)
        return self.recv_command()


def _no_error(came: pb.BaseCommand) -> pb.BaseCommand:
    if came.type == pb.BaseCommand.ERROR:
        raise ServerRefusedError(came.error.error, came.error.message)
    return came
