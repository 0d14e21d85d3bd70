"""Owns many clients on one event loop that ask for topic lists at once and check every byte of every answer.

Obeys one rule: an answer is never stored. Its bytes go into a checksum, so that whole lists of many clients take no
memory of this machine. What the lists should be is the caller's business. Knows no proxy.
"""

import asyncio
import zlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from protocol.commands import PONG_FRAME, decode_command
from protocol.errors import ServerError
from protocol.frames import read_head
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.async_client import AsyncClient, Closed

_READ_BYTES: Final = 1 << 18
_HEAD_BYTES: Final = 4096  # of each frame: all of an error or a PING, and what identifies a long list
# The clocks of the proxy end the waits of a storm.
_PATIENCE_SECONDS: Final = 600.0
_LISTED: Final = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE

List = tuple[int, int]


@dataclass(slots=True)
class Outcome:
    """What became of the requests: each list as (bytes behind the request id, their CRC-32), errors by code."""

    lists: Counter[List] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    largest_frame_bytes: int = 0
    frame_bytes: int = 0  # of all lists
    seconds: float = 0.0

    @property
    def answered(self) -> int:
        """Count the lists that came whole."""
        return self.lists.total()


def request(namespace: str, pattern: str | None = None, marker: str = "") -> pb.CommandGetTopicsOfNamespace:
    """Make a request without an id; requests with different markers ask for the same, but are not equal."""
    asked = pb.CommandGetTopicsOfNamespace(request_id=0, namespace=namespace, topics_pattern=pattern)
    if marker:
        asked.properties.add(key="marker", value=marker)
    return asked


async def storm(
    address: tuple[str, int],
    requests: Sequence[pb.CommandGetTopicsOfNamespace],
    connections: int,
    window: int,
    started: Callable[[], None] = lambda: None,
    ended: Callable[[Outcome], None] = lambda _: None,
) -> Outcome:
    """Spread `requests` over `connections`, each with at most `window` outstanding; all begin at once.

    `started` is called when all have begun, `ended` in a thread when every request has an answer or has lost its
    connection; connections close when it returns.
    """
    loop, outcome, clients = asyncio.get_running_loop(), Outcome(), list[AsyncClient]()
    try:
        for _ in range(connections):
            clients.append(await AsyncClient.open(address[1]))
            clients[-1].seconds = _PATIENCE_SECONDS
            await clients[-1].connect()
        begun = loop.time()
        async with asyncio.TaskGroup() as group:
            for first, client in enumerate(clients):
                group.create_task(_ask(client, requests[first::connections], window, outcome))
            # Each sends before it waits.
            await asyncio.sleep(0)
            started()
        outcome.seconds = loop.time() - begun
        await asyncio.to_thread(ended, outcome)
    finally:
        for client in clients:
            client.reset()
    return outcome


async def _ask(
    client: AsyncClient, requests: Sequence[pb.CommandGetTopicsOfNamespace], window: int, outcome: Outcome
) -> None:
    waiting, asked = deque(enumerate(requests, start=1)), set[int]()
    try:
        while waiting or asked:
            while waiting and len(asked) < window:
                request_id, wanted = waiting.popleft()
                wanted.request_id = request_id
                asked.add(request_id)
                command = pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=wanted)
                await client.send_command(command)
            # A second answer to a request, or one that nobody asked for, is a KeyError and ends the test.
            asked.remove(await _answered(client, outcome))
    except (Closed, ConnectionError):
        outcome.lost += len(asked) + len(waiting)


async def _answered(client: AsyncClient, outcome: Outcome) -> int:
    """Read an answer, count it, and return its request id; PINGs are answered."""
    while True:
        size = await client.receive(4)
        left = int.from_bytes(size, "big")
        first = size + await client.receive(min(left, _HEAD_BYTES))
        left += 4 - len(first)
        head = read_head(first)
        if head.command_type == _LISTED:
            assert head.request_id is not None
            break
        assert not left, f"got a frame of {head.frame_bytes} bytes of type {head.command_type}"
        command = decode_command(first[8:])
        if command.type == pb.BaseCommand.ERROR:
            outcome.errors[f"{ServerError(command.error.error).name}: {command.error.message}"] += 1
            return command.error.request_id
        assert command.type == pb.BaseCommand.PING, f"expected an answer, got {command}"
        await client.send(PONG_FRAME)
    checksum = zlib.crc32(first[head.rest_offset :])
    while left:
        piece = await client.receive(min(left, _READ_BYTES))
        checksum, left = zlib.crc32(piece, checksum), left - len(piece)
    outcome.lists[head.rest_bytes, checksum] += 1
    outcome.frame_bytes += head.frame_bytes
    outcome.largest_frame_bytes = max(outcome.largest_frame_bytes, head.frame_bytes)
    return head.request_id
