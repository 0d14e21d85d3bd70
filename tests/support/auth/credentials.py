"""Own an authenticator whose verdicts a test decides, and the clients and brokers that speak of credentials with it.

Rule: it knows three sorts of data: `role`, `role until seconds`, and anything that begins with `bad`. It never looks at
a clock: the test's is `clock.now`, which the proxy believes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from protocol.commands import REFRESH_DATA, frame
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.client_authentication import ClientAuthentication
from proxy.auth.identity import Authenticated, AuthenticationFailed
from proxy.clients.sessions import Session
from tests.support.clients.async_client import LOOPBACK, AsyncClient, connect_frame
from tests.support.proxies.proxy_under_test import Stage, staged

NOON = 1_000_000.0


@dataclass
class Judge:
    """Says who a client is (in place of `proxy.auth.authenticator.Authenticator`), at once or when `gate` opens."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[tuple[str, bytes]] = field(default_factory=list)
    running: int = 0
    most_at_once: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    def user_to_check(self, method: str, data: bytes) -> str | None:
        return data.decode(errors="replace")

    async def authenticate(self, method: str, data: bytes, certificate: bytes | None, network: str) -> Authenticated:
        self.asked.append((method, data))
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        text = data.decode(errors="replace").strip(".")
        if not text or text.startswith("bad"):
            raise AuthenticationFailed("the judge does not believe it")
        role, _, until = text.partition(" until ")
        return Authenticated(role.partition("/")[0], float(until) if until else None)


@dataclass
class Court:
    """A stage whose proxy asks a judge, and the time of day there."""

    stage: Stage
    judge: Judge
    now: float = NOON
    _looks: dict[Session, Callable[[], None]] = field(default_factory=dict)

    def watch(self, session: Session, look: Callable[[], None]) -> None:
        """Keep what the proxy would look at now and then, for `look` alone."""
        self._looks[session] = look

    @property
    def authentication(self) -> ClientAuthentication:
        found = self.stage.proxy.services.authentication
        assert found is not None
        return found

    @property
    def target(self) -> str:
        """Return the broker's address, for clients that want to be relayed."""
        return f"127.0.0.1:{self.stage.proxy.config.broker_hosts[0][1]}"

    async def client(self, data: str, *, target: str | None = None, refresh: bool = True, **fields: Any) -> AsyncClient:
        """Connect a client that presents `data`."""
        return await admitted(self.stage, presenting(data, target=target, refresh=refresh, **fields))

    def look(self) -> None:
        """Let the proxy look at all credentials, as it does now and then, and forget those of clients that left."""
        for session, look in list(self._looks.items()):
            if self.stage.proxy.sessions.registry.entry_of(session) is None:
                del self._looks[session]
            else:
                look()

    def lose_patience(self) -> None:
        """Have every answer come too late from now on."""
        self.authentication.settings = replace(self.authentication.settings, refresh_seconds=0)

    def books(self) -> dict[str, int]:
        """Give what must be zero when no client is there."""
        return {"checks": self.authentication.under_way, "holders": len(self.authentication.holders)}


@asynccontextmanager
async def court(broker_port: int | None = None, **keys: Any) -> AsyncIterator[Court]:
    """Run a proxy that authenticates its clients; at the end nothing is left of any of them."""
    judge = Judge()
    keys = {"authenticationEnabled": "true", "authenticationProviders": "token", **keys}
    async with staged(broker_port=broker_port, role_finder=judge, **keys) as stage:
        held = Court(stage, judge)
        held.authentication.now = lambda: held.now
        stage.proxy.sessions.watch_credentials = held.watch  # type: ignore[method-assign]
        yield held
        judge.gate.set()
        await stage.settle()
        assert not any(held.books().values()), held.books()


def presenting(data: str, *, target: str | None = None, refresh: bool = True, **fields: Any) -> bytes:
    """Build the CONNECT of a client with a token."""
    given: dict[str, Any] = {"auth_method_name": "token", "auth_data": data.encode()}
    flags = pb.FeatureFlags(supports_auth_refresh=refresh)
    return connect_frame(target, feature_flags=flags, **{**given, **fields})


async def admitted(stage: Stage, connect: bytes, source: str = LOOPBACK) -> AsyncClient:
    """Give a client that has sent `connect` and is connected."""
    client = await stage.client(source=source)
    await client.send(connect)
    answer = await client.command()
    assert answer.type == pb.BaseCommand.CONNECTED, answer
    return client


async def turned_away(stage: Stage, connect: bytes) -> pb.CommandError:
    """Give what a client is told that sends `connect` and must be refused."""
    client = await stage.client()
    await client.send(connect)
    return await refused(client)


def response(data: str, method: str = "token") -> bytes:
    """Build an AUTH_RESPONSE of a client."""
    answer = pb.AuthData(auth_method_name=method, auth_data=data.encode())
    command = pb.CommandAuthResponse(client_version="test", protocol_version=21, response=answer)
    return frame(pb.BaseCommand(type=pb.BaseCommand.AUTH_RESPONSE, authResponse=command))


def challenge(data: bytes = REFRESH_DATA) -> bytes:
    """Build an AUTH_CHALLENGE of a broker."""
    asked = pb.AuthData(auth_method_name="token", auth_data=data)
    command = pb.CommandAuthChallenge(server_version="raw", protocol_version=21, challenge=asked)
    return frame(pb.BaseCommand(type=pb.BaseCommand.AUTH_CHALLENGE, authChallenge=command))


async def challenged(client: AsyncClient) -> pb.CommandAuthChallenge:
    """Read the AUTH_CHALLENGE that must come next."""
    command = await client.answer()
    assert command.type == pb.BaseCommand.AUTH_CHALLENGE, command
    assert command.authChallenge.challenge.auth_data == REFRESH_DATA
    return command.authChallenge


async def refused(client: AsyncClient) -> pb.CommandError:
    """Read the ERROR about the connection that must be its last command."""
    command = await client.last_command()
    assert command.type == pb.BaseCommand.ERROR, command
    assert command.error.request_id == 2**64 - 1
    return command.error
