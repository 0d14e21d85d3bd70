"""The wire client shows exactly what came, matches answers by id, and never hangs on a closed peer."""

import socket
from collections.abc import Iterator
from typing import TypeAlias

import pytest

from protocol.commands import PING_FRAME, PONG_FRAME, REQUEST_ID_NONE, error, frame
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.wire import ServerRefusedError, WireClient, WireClosedError

Pair: TypeAlias = tuple[WireClient, socket.socket]

CONNECTED = frame(
    pb.BaseCommand(
        type=pb.BaseCommand.CONNECTED, connected=pb.CommandConnected(server_version="s", protocol_version=19)
    )
)


def topics_frame(request_id: int, *topics: str) -> bytes:
    response = pb.CommandGetTopicsOfNamespaceResponse(request_id=request_id, topics=topics)
    kind = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
    return frame(pb.BaseCommand(type=kind, getTopicsOfNamespaceResponse=response))


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, peer = socket.socketpair()
    ours.settimeout(5.0)
    peer.settimeout(5.0)
    with WireClient.over(ours) as client, peer:
        yield client, peer


def test_connect_sends_the_fields_given_over_the_defaults(pair: Pair) -> None:
    client, peer = pair
    peer.sendall(CONNECTED)
    assert client.connect(protocol_version=12, proxy_to_broker_url="b:1").protocol_version == 19
    with WireClient.over(peer) as reader:
        sent = reader.recv_command().connect
    assert (sent.client_version, sent.protocol_version, sent.proxy_to_broker_url) == (
        "wire-client",
        12,
        "b:1",
    )


def test_answers_are_matched_by_request_id_in_any_order(pair: Pair) -> None:
    client, peer = pair
    first, second = client.ask_topics("public/a"), client.ask_topics("public/b")
    peer.sendall(topics_frame(second, "b") + topics_frame(first, "a"))
    assert client.answer_to(first).getTopicsOfNamespaceResponse.topics == ["a"]
    assert client.answer_to(second).getTopicsOfNamespaceResponse.topics == ["b"]


def test_a_ping_is_answered_while_an_answer_is_awaited(pair: Pair) -> None:
    client, peer = pair
    request_id = client.ask_topics("public/a")
    peer.sendall(PING_FRAME + topics_frame(request_id))
    client.answer_to(request_id)
    assert peer.recv(4096).endswith(PONG_FRAME)


def test_a_ping_is_shown_and_not_answered_outside_a_request(pair: Pair) -> None:
    client, peer = pair
    peer.sendall(PING_FRAME)
    assert client.recv_command().type == pb.BaseCommand.PING
    client.half_close()
    assert peer.recv(4096) == b""


def test_an_error_answer_raises_its_code_and_message(pair: Pair) -> None:
    client, peer = pair
    request_id = client.ask_topics("public/a")
    peer.sendall(error(request_id, ServerError.TooManyRequests, "no memory"))
    with pytest.raises(ServerRefusedError, match="TooManyRequests: no memory") as caught:
        client.answer_to(request_id)
    assert caught.value.code == ServerError.TooManyRequests


def test_an_error_without_a_request_id_ends_every_wait(pair: Pair) -> None:
    client, peer = pair
    request_id = client.ask_topics("public/a")
    peer.sendall(error(REQUEST_ID_NONE, ServerError.ServiceNotReady, "going down"))
    with pytest.raises(ServerRefusedError, match="ServiceNotReady: going down"):
        client.answer_to(request_id)


def test_bytes_behind_the_command_become_the_payload(pair: Pair) -> None:
    client, peer = pair
    whole = PONG_FRAME + b"tail"
    peer.sendall((len(whole) - 4).to_bytes(4, "big") + whole[4:])
    assert client.recv_command().type == pb.BaseCommand.PONG
    assert client.payload == b"tail"


def test_one_byte_segments_carry_the_same_bytes() -> None:
    ours, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with WireClient.over(ours, segment_bytes=1) as client, peer:
        client.send_raw(PING_FRAME)
        segments = [peer.recv(4096) for _ in PING_FRAME]
    assert max(map(len, segments)) == 1
    assert b"".join(segments) == PING_FRAME


@pytest.mark.parametrize(
    "sent", [b"", PONG_FRAME[:3], PONG_FRAME[:-1]], ids=["nothing", "in the size", "in the command"]
)
def test_a_peer_that_closes_is_named_with_the_bytes_it_sent(pair: Pair, sent: bytes) -> None:
    client, peer = pair
    peer.sendall(sent)
    peer.close()
    with pytest.raises(WireClosedError, match=r"closed by peer after \d+ of \d+ bytes"):
        client.recv_command()


def test_a_silent_peer_is_a_timeout_and_the_old_timeout_comes_back(pair: Pair) -> None:
    client, _ = pair
    with pytest.raises(TimeoutError):
        client.recv_command(timeout=0.01)
    assert client.sock.gettimeout() == 5.0
