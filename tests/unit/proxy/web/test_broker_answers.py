"""What a server sends behind the answer to a request goes to nobody, and stays nowhere."""

import asyncio
import socket

import pytest
from aiohttp import StreamReader

from proxy.core.loop_budget import LoopBudget
from proxy.web.forward.broker_client import BrokerAnswers
from tests.support.web.fake_socket import Socket

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"
FOREIGN = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforeign"
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
# What may be left of another answer, or of none; the parser keeps a part of a header to itself.
BEHIND = [FOREIGN, FOREIGN * 2000, FOREIGN[:1], FOREIGN[:20], b"\r\n", b"garbage", EARLY]


def asked(real: socket.socket | None = None, *, spent: bool = False) -> tuple[BrokerAnswers, Socket]:
    budget = LoopBudget(asyncio.get_running_loop(), lambda: 0.0)
    connection, transport = BrokerAnswers(asyncio.get_running_loop(), budget), Socket(real)
    connection.connection_made(transport)
    ask(connection)
    if spent:
        budget.charge(1.0)
    return connection, transport


def ask(connection: BrokerAnswers, *, skip_payload: bool = False) -> None:
    """Begin with a request, as the connector and aiohttp do."""
    connection.expect_answer()
    connection.set_response_params(read_bufsize=16_384, auto_decompress=False, skip_payload=skip_payload)


async def answered(connection: BrokerAnswers) -> StreamReader:
    message, body = await connection.read()
    assert message.code == 200
    return body


@pytest.mark.threat("bytes-behind-answer")
@pytest.mark.parametrize("spent", [False, True])
@pytest.mark.parametrize("behind", BEHIND)
async def test_what_comes_while_a_connection_rests_ends_it_and_is_not_kept(behind: bytes, spent: bool) -> None:
    connection, transport = asked(spent=spent)
    connection.data_received(HEAD + b"own")
    body = await answered(connection)
    assert await body.read() == b"own"
    assert (connection.should_close, transport.closed) == (False, False)
    connection.data_received(behind)
    assert transport.closed
    assert not connection.is_connected()
    assert len(connection) == 0


@pytest.mark.threat("bytes-behind-answer")
@pytest.mark.parametrize("behind", BEHIND)
async def test_what_is_read_together_with_the_end_of_an_answer_keeps_its_connection_from_others(behind: bytes) -> None:
    connection, transport = asked()
    connection.data_received(HEAD)
    body = await answered(connection)
    # aiohttp asks at the end of the answer, in the middle of what is parsed.
    closes: list[bool] = []
    body.on_eof(lambda: closes.append(connection.should_close))
    connection.data_received(b"own" + behind)
    assert closes == [True]
    assert transport.closed
    assert len(connection) == 0
    assert await body.read() == b"own"


@pytest.mark.threat("bytes-behind-answer")
@pytest.mark.parametrize("behind", [FOREIGN, b""])
async def test_what_nobody_has_read_yet_keeps_a_connection_from_the_next_request(
    behind: bytes,
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection, _ = asked(ours)
        connection.data_received(HEAD + b"own")
        assert await (await answered(connection)).read() == b"own"
        assert connection.may_be_used
        if behind:
            theirs.send(behind)
        else:
            theirs.close()
        assert not connection.may_be_used
