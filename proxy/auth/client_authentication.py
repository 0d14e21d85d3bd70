"""Check the credentials of clients: every wait has a time limit, and expensive checks run a few at once, in turns.

Only expensive work of the proxy itself takes a turn (`proxy.auth.check_turns`). Cheap checks, of a token whose key is
known or a password that was proven before, never wait for such a turn; signatures have turns of the loop
by network (`proxy.auth.signature_turns`). Checks that wait for an issuer hold no turn
(`proxy.auth.providers.issuer_keys` bounds them), so unknown clients and a silent issuer cannot keep others out.

Owns the turns of the checks under way and the log lines of failed checks. Both identify a client by its address and see
only the provider's verdict, never the credentials.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from protocol import commands
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.credential_holders import CredentialHolders
from proxy.auth.identity import MAX_AUTH_DATA_BYTES, PASSWORD, TOKEN, AuthData, Authenticated, AuthenticationFailed
from proxy.config.config import Config
from proxy.core.log import LinePace, Logger
from proxy.core.public_causes import PublicCause

if TYPE_CHECKING:
    from proxy.auth.authenticator import Authenticator

MAX_METHOD_CHARS: Final = 64


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """Settings of the checks: times in seconds, number of expensive checks at once, and what brokers get.

    `forward`: credentials of clients, `passwords`: these among them.
    """

    refresh_seconds: float
    forward: bool
    passwords: bool
    at_once: int
    verify_seconds: float

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the settings of a configuration."""
        return cls(
            refresh_seconds=config.authentication_refresh_check_seconds,
            forward=config.forwards_credentials,
            passwords=config.forwards_passwords,
            at_once=config.password_threads,
            verify_seconds=config.seconds(Config.handshake_timeout_millis),
        )

    def forwards(self, method: str) -> bool:
        """Return whether credentials of a method go on to brokers: those that prove the role, and nothing beside."""
        return self.forward and (method == TOKEN or (self.passwords and method == PASSWORD))


class ClientAuthentication:
    """Authenticates clients when they connect and again when their credentials expire."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        authenticator: "Authenticator",
        settings: CheckSettings,
        holders: CredentialHolders,
        log: Logger,
        now: Callable[[], float],
    ) -> None:
        self._loop = loop
        self._authenticator = authenticator
        self._log = log
        self._pace = LinePace()
        # Only a proxy whose clients authenticate makes one of these.
        from proxy.auth.check_turns import CheckTurns
        from proxy.auth.failed_guesses import networks_of

        self._turns = CheckTurns(loop, settings.at_once)
        self._networks_of = networks_of
        self.settings = settings
        self.holders = holders
        self.now = now

    @property
    def under_way(self) -> int:
        """Number of checks that have their turn or wait for a turn."""
        return self._turns.running + self._turns.waiting

    async def verify(self, presented: AuthData, certificate: bytes | None, client: str) -> Authenticated:
        """Return the role of a client (`address:port`); raise AuthenticationFailed, also after a timeout."""
        self._check_size(presented)
        method, data = presented.method, presented.data
        # The network knows its site.
        _, network = self._networks_of(client)
        try:
            async with asyncio.timeout(self.settings.verify_seconds):
                user = self._authenticator.user_to_check(method, data)
                if user is None:
                    return await self._authenticator.authenticate(method, data, certificate, network)
                async with self._turns.turn(client, user):
                    return await self._authenticator.authenticate(method, data, certificate, network)
        except TimeoutError:
            raise AuthenticationFailed("credentials could not be checked in time", busy=True) from None

    def refused(self, client: str, failure: AuthenticationFailed) -> None:
        """Log that a client failed to authenticate, at most one line a second."""
        if self._pace.due(self._loop.time()):
            self._log.warning("client failed to authenticate", client=client, reason=str(failure))

    def _check_size(self, presented: AuthData) -> None:
        if len(presented.data) > MAX_AUTH_DATA_BYTES:
            detail = f"got credentials of {len(presented.data)} bytes, expected at most {MAX_AUTH_DATA_BYTES}"
            raise AuthenticationFailed(detail, public=PublicCause.TOO_LARGE)
        if len(presented.method) > MAX_METHOD_CHARS:
            detail = f"got a method name of {len(presented.method)} characters, expected at most {MAX_METHOD_CHARS}"
            raise AuthenticationFailed(detail, public=PublicCause.NOT_ACCEPTED)


def code_of(failure: AuthenticationFailed) -> int:
    """Return the error code for the client: it retries after ServiceNotReady, gives up after AuthenticationError."""
    return ServerError.ServiceNotReady if failure.busy else ServerError.AuthenticationError


def presented_by(connect: pb.CommandConnect) -> AuthData:
    """Return the credentials in a CONNECT, without its `original_*` fields: a client cannot prove those."""
    return AuthData.presented(commands.auth_method(connect), connect.auth_data)
