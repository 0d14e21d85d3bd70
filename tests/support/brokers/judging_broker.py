"""Own brokers that keep all they are told of credentials, and find an owner for each lookup.

Rule: `JudgingBroker` judges CONNECT as Pulsar's ServerCnx does with authentication. The proxy's own credentials are
judged first. With `authenticates_original` (authenticateOriginalAuthData) who speaks for a client must show the
client's, too; without it they are not looked at.
"""

from dataclasses import dataclass, field

from protocol.commands import error, frame, lookup_connect, request_id_of
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.auth.credentials import challenge
from tests.support.brokers.raw_broker import CONNECTED
from tests.support.clients.async_client import AsyncClient

NONE_LEFT = 2**64 - 1


@dataclass
class TalkingBroker:
    """Its `serve` is for `raw_broker`: it asks for credentials so many times, may refuse, and answers with `url`."""

    url: str = "pulsar://127.0.0.1:6650"
    challenges: int = 0
    refusal: tuple[int, str] | None = None
    redirects: bool = False
    connects: list[pb.CommandConnect] = field(default_factory=list)
    responses: list[pb.AuthData] = field(default_factory=list)
    # Connections that were taken, and those on which each lookup came.
    peers: list[AsyncClient] = field(default_factory=list)
    lookups: list[AsyncClient] = field(default_factory=list)

    def judge(self, connect: pb.CommandConnect) -> tuple[int, str] | None:
        """Return the code and the text of a refusal."""
        return self.refusal

    @property
    def tokens(self) -> list[bytes]:
        """Return all credentials that it was shown as a peer's own."""
        return [each.auth_data for each in self.connects] + [each.auth_data for each in self.responses]

    def heard(self) -> list[tuple[str, bytes]]:
        """Return the answers to its challenges."""
        return [(each.auth_method_name, each.auth_data) for each in self.responses]

    async def serve(self, peer: AsyncClient) -> None:
        """Serve a connection."""
        self.connects.append((await peer.command()).connect)
        for number in range(self.challenges):
            await peer.send(challenge(b"what about %d" % number))
            self.responses.append((await peer.command()).authResponse.response)
        if (refusal := self.judge(self.connects[-1])) is not None:
            await peer.send(error(NONE_LEFT, *refusal))
            return
        self.peers.append(peer)
        await peer.send(CONNECTED)
        while True:
            command = await peer.answer(pong=True)
            if command.type == pb.BaseCommand.AUTH_RESPONSE:
                self.responses.append(command.authResponse.response)
            elif command.type != pb.BaseCommand.LOOKUP:
                await peer.send(error(request_id_of(command), ServerError.UnknownError, "what?"))
            else:
                self.lookups.append(peer)
                found = _redirect if self.redirects else lookup_connect
                await peer.send(found(request_id_of(command), self.url))


def _redirect(request_id: int, url: str) -> bytes:
    answer = pb.CommandLookupTopicResponse(
        request_id=request_id, response=pb.CommandLookupTopicResponse.Redirect, brokerServiceUrl=url, authoritative=True
    )
    return frame(pb.BaseCommand(type=pb.BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=answer))


@dataclass
class JudgingBroker(TalkingBroker):
    """`own` and `clients` are the credentials that it believes."""

    own: set[bytes] = field(default_factory=set)
    clients: set[str] = field(default_factory=set)
    authenticates_original: bool = True

    def believes(self, connect: pb.CommandConnect) -> bool:
        """Return whether it believes the proxy, and the client if it looks at one."""
        if connect.auth_data not in self.own:
            return False
        looks = self.authenticates_original and connect.HasField("original_principal")
        return not looks or connect.original_auth_data in self.clients

    def judge(self, connect: pb.CommandConnect) -> tuple[int, str] | None:
        """Refuse whom it does not believe."""
        return None if self.believes(connect) else (ServerError.AuthenticationError, "Failed to authenticate")
