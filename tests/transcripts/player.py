"""Play a script before a proxy and write down what each side got. Knows no proxy: it is told a port.

Rule: it waits for events only. What one side got is in order; of two sides nobody can say who came first, so their
events stand one side after the other.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from protocol.commands import REQUEST_ID_NONE, decode_command, frame, relay_answer, request_id_of
from protocol.errors import ProtocolError
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.brokers.raw_broker import raw_broker
from tests.support.clients.async_client import LOOPBACK, AsyncClient, Closed
from tests.support.clients.commands import command
from tests.support.patience import PATIENCE_SECONDS, in_time
from tests.transcripts.model import CLIENT, END, SILENCE, Event, Transcript, Words
from tests.transcripts.script import BROKER, NOBODY, OTHER, Answers, Broker, Do, Script, placed

_CONNECTED: Final = command(
    "CONNECTED", server_version="fake broker", protocol_version=21, max_message_size=5 * 1024 * 1024
)


@dataclass
class _Link:
    """One connection of the proxy to a broker."""

    events: list[Event] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class _Play:
    script: Script
    links: dict[str, _Link] = field(default_factory=dict)

    def new_link(self, where: str) -> tuple[str, _Link]:
        name = f"{where} {sum(known.startswith(where) for known in self.links) + 1}"
        self.links[name] = _Link()
        return name, self.links[name]


class Bench:
    """Two brokers, an address where nobody listens, and the script that is being played."""

    def __init__(self, versions: tuple[str, ...], silence_seconds: float) -> None:
        self._versions = versions
        self._silence_seconds = silence_seconds
        self._play: _Play | None = None
        self.places: dict[str, str] = {}
        self._words = Words({}, versions)

    def learn(self, ports: dict[str, int]) -> None:
        """Put names for these ports from now on."""
        self.places = {place: f"{LOOPBACK}:{port}" for place, port in ports.items()}
        self._words = Words({port: place for place, port in ports.items()}, self._versions)

    async def play(self, script: Script, port: int) -> Transcript:
        """Play one script before the proxy at `port`."""
        play = self._play = _Play(script)
        client = await AsyncClient.open(port)
        try:
            events = await self._client(client, play)
        finally:
            client.close()
        # What the brokers get later (a proxy may put its pool in order) is no part of the script.
        return tuple(events) + tuple(event for link in list(play.links.values()) for event in list(link.events))

    async def _client(self, client: AsyncClient, play: _Play) -> list[Event]:
        events: list[Event] = []
        for step in play.script.steps:
            if step is Do.LEAVE:
                client.close()
            elif step is Do.SEE_BROKER_LEFT:
                await self._all_left(play)
            elif step is Do.READ:
                events.append(await self._read(client))
                if events[-1].what in (END, SILENCE):
                    break
            else:
                assert not isinstance(step, Do)
                sent = step if isinstance(step, bytes) else frame(placed(step, self.places))
                events.append(self._words.event(CLIENT, "sent", sent))
                with suppress(ConnectionError):
                    await client.send(sent)
        return events

    async def _read(self, client: AsyncClient) -> Event:
        try:
            async with in_time(self._silence_seconds):
                return self._words.event(CLIENT, "got", await client.frame())
        except Closed:
            return Event(CLIENT, "got", END)
        except TimeoutError:
            return Event(CLIENT, "got", SILENCE)

    async def _all_left(self, play: _Play) -> None:
        async with in_time():
            for name, link in play.links.items():
                await link.ended.wait()
                link.events.append(Event(name, "got", END))

    async def serve(self, peer: AsyncClient, where: str) -> None:
        """Answer one connection of the proxy as the script says."""
        play = self._play
        assert play is not None
        answers = play.script.answers if where == "broker" else play.script.other_answers
        # A connection that is closed in silence was only to see whether somebody listens. It has no place here, nor
        # has one that a proxy keeps for later scripts.
        with suppress(Closed, TimeoutError):
            first = await peer.frame()
            name, link = play.new_link(where)
            try:
                await self._answer(peer, name, link, answers, first)
            finally:
                link.ended.set()

    async def _answer(self, peer: AsyncClient, name: str, link: _Link, answers: Answers, first: bytes) -> None:
        counts: dict[int, int] = {}
        got = first
        while True:
            link.events.append(self._words.event(name, "got", got))
            asked = _asked(got)
            known = answers.get(asked.type, (_CONNECTED,) if asked.type == pb.BaseCommand.CONNECT else ())
            if known:
                counts[asked.type] = counts.get(asked.type, 0) + 1
                answer = known[min(counts[asked.type], len(known)) - 1]
                if isinstance(answer, Broker):
                    return
                await peer.send(self._to(answer, asked))
            got = await peer.frame()

    def _to(self, answer: pb.BaseCommand, asked: pb.BaseCommand) -> bytes:
        built = placed(answer, self.places)
        request_id = request_id_of(asked)
        return frame(built) if request_id == REQUEST_ID_NONE else relay_answer(built, request_id)


def _asked(got: bytes) -> pb.BaseCommand:
    try:
        return decode_command(got[8 : 8 + int.from_bytes(got[4:8], "big")])
    except ProtocolError:
        # What nobody knows gets no answer, as a PONG gets none.
        return pb.BaseCommand(type=pb.BaseCommand.PONG)


@asynccontextmanager
async def bench(versions: tuple[str, ...], silence_seconds: float = PATIENCE_SECONDS) -> AsyncIterator[Bench]:
    """Give a bench whose brokers listen; `versions` are the texts in which a proxy names its own version."""
    made = Bench(versions, silence_seconds)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(raw_broker(lambda peer: made.serve(peer, "broker")))
        second = await stack.enter_async_context(raw_broker(lambda peer: made.serve(peer, "other broker")))
        # Bound, so that nobody else takes it; not listening, so that it refuses.
        nobody = stack.enter_context(socket.socket())
        nobody.bind((LOOPBACK, 0))
        made.learn({BROKER: first.port, OTHER: second.port, NOBODY: nobody.getsockname()[1]})
        yield made
