"""Check the credentials of clients: with an end to every wait, long work so many at once, in the order they came.

Places are for work of this proxy's own. Who needs none, a token whose key is known or a password that was proven
before, never stands behind those that do; and who waits for an issuer holds none (`proxy.auth.providers.issuer_keys`
bounds them): strangers and a silent issuer together keep nobody else out.

Owns the places of the checks under way and the log lines of those that failed; both know a client by its address, and
neither ever sees more of its credentials than the provider's verdict.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, Self

from limiter.semaphore import AsyncSemaphore
from protocol import commands
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.credential_holders import CredentialHolders
from proxy.auth.identity import AuthData, Authenticated, AuthenticationFailed
from proxy.config.config import Config
from proxy.core.log import LinePace, Logger

# What each connection may keep for as long as it lives (docs/memory.md); web servers bound tokens alike.
MAX_FORWARDED_BYTES: Final = 8 * 1024
MAX_AUTH_DATA_BYTES: Final = 64 * 1024
MAX_METHOD_CHARS: Final = 64


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """How clients are authenticated: times in seconds, whether what they present goes on to brokers, checks at once."""

    refresh_seconds: float
    forward: bool
    at_once: int
    verify_seconds: float

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the settings of a configuration."""
        return cls(
            refresh_seconds=config.authentication_refresh_check_seconds,
            forward=config.forward_authorization_credentials,
            at_once=config.max_concurrent_authentications,
            verify_seconds=config.seconds(Config.handshake_timeout_millis),
        )


class RoleFinder(Protocol):
    """Who knows all ways to prove a role (`proxy.auth.providers.registry.Authenticator` does)."""

    def needs_turn(self, method: str, data: bytes) -> bool:
        """Tell whether the check is long work of this proxy's own, without doing any of it."""

    async def authenticate(self, method: str, data: bytes, certificate: bytes | None) -> Authenticated:
        """Find the role of a peer that names `method`; raises AuthenticationFailed."""


class ClientAuthentication:
    """Authenticate clients, at the start and again when their credentials expire."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        role_finder: RoleFinder,
        settings: CheckSettings,
        holders: CredentialHolders,
        log: Logger,
        now: Callable[[], float],
    ) -> None:
        self._loop = loop
        self._role_finder = role_finder
        self._log = log
        self._pace = LinePace()
        self._turns = AsyncSemaphore(
            "authentications", settings.at_once, max_queue=0, timeout_seconds=math.inf, clock=loop
        )
        self.settings = settings
        self.holders = holders
        self.now = now

    @property
    def under_way(self) -> int:
        """Count the checks that hold a place or wait for one."""
        return self._turns.held + self._turns.queue_size

    async def verify(self, presented: AuthData, certificate: bytes | None) -> Authenticated:
        """Find the role of a client; raises AuthenticationFailed, also when it takes too long."""
        self._check_size(presented)
        method, data = presented.method, presented.data
        try:
            async with asyncio.timeout(self.settings.verify_seconds):
                if not self._role_finder.needs_turn(method, data):
                    return await self._role_finder.authenticate(method, data, certificate)
                with await self._turns.acquire(1):
                    return await self._role_finder.authenticate(method, data, certificate)
        except TimeoutError:
            raise AuthenticationFailed("credentials could not be checked in time", busy=True) from None

    def refused(self, client: str, failure: AuthenticationFailed) -> None:
        """Write a line about a client that proved nothing, at most one a second."""
        if self._pace.due(self._loop.time()):
            self._log.warning("client failed to authenticate", client=client, reason=str(failure))

    def _check_size(self, presented: AuthData) -> None:
        most = MAX_FORWARDED_BYTES if self.settings.forward else MAX_AUTH_DATA_BYTES
        if len(presented.data) > most:
            key = " with forwardAuthorizationCredentials" if self.settings.forward else ""
            raise AuthenticationFailed(f"got credentials of {len(presented.data)} bytes, at most {most}{key}")
        if len(presented.method) > MAX_METHOD_CHARS:
            raise AuthenticationFailed(f"got a method name of {len(presented.method)} characters")


def code_of(failure: AuthenticationFailed) -> int:
    """Give the code for the client: one that nobody judged shall come again, and gives up at AuthenticationError."""
    return ServerError.ServiceNotReady if failure.busy else ServerError.AuthenticationError


def presented_by(connect: pb.CommandConnect) -> AuthData:
    """Give what a client presents; its `original_*` fields are no part of that: nobody vouches for them."""
    return AuthData(commands.auth_method(connect), connect.auth_data)
