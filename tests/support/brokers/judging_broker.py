"""Own a broker that judges CONNECT as Pulsar's ServerCnx does with authentication, and finds itself in each lookup.

Rule: the proxy's own credentials are judged first. With `authenticates_original` (authenticateOriginalAuthData) who
speaks for a client must show the client's, too; without it they are not looked at.
"""

from dataclasses import dataclass, field

from protocol.commands import error, lookup_connect, request_id_of
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.brokers.raw_broker import CONNECTED
from tests.support.clients.async_client import AsyncClient

NONE_LEFT = 2**64 - 1


@dataclass
class JudgingBroker:
    """Its `serve` is for `raw_broker`; `own` and `clients` are the credentials that it believes."""

    own: set[bytes]
    clients: set[str]
    authenticates_original: bool = True
    url: str = ""
    connects: list[pb.CommandConnect] = field(default_factory=list)

    def believes(self, connect: pb.CommandConnect) -> bool:
        """Return whether it believes the proxy, and the client if it looks at one."""
        if connect.auth_data not in self.own:
            return False
        looks = self.authenticates_original and connect.HasField("original_principal")
        return not looks or connect.original_auth_data in self.clients

    async def serve(self, peer: AsyncClient) -> None:
        """Judge a connection, and answer its lookups."""
        self.connects.append((await peer.command()).connect)
        if not self.believes(self.connects[-1]):
            await peer.send(error(NONE_LEFT, ServerError.AuthenticationError, "Failed to authenticate"))
            return
        await peer.send(CONNECTED)
        while True:
            command = await peer.answer(pong=True)
            if command.type == pb.BaseCommand.LOOKUP:
                await peer.send(lookup_connect(request_id_of(command), self.url))
            else:
                await peer.send(error(request_id_of(command), ServerError.UnknownError, "what?"))
