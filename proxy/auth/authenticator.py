"""All providers together: the role of a client, and the files of keys and passwords that are read again.

Rule: as in upstream, the providers of a method are tried one after the other, and the first success counts. A client
that names no method gets the anonymous role, if there is one; a client whose credentials were refused never gets that
role, and a client of a method without a provider only by `anonymousUserRoleForUnknownMethods`.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol

from proxy.auth.failures import CredentialsRefused, Reason, SettingFault
from proxy.auth.identity import Authenticated
from proxy.auth.sources import Watched
from proxy.config.core import Core
from proxy.core.counters import Declared, Number, Numbers, counter_by
from proxy.core.public_causes import PublicCause
from proxy.core.tasks import TaskScope

LOOK_SECONDS: Final = 1.0
NO_METHOD: Final = "none"
# Upstream's names, which have no `proxy`. Labels are words of this proxy only, so a client cannot create new ones.
SUCCESSES: Final = Declared(
    "pulsar_authentication_success",
    "counter",
    "Clients that proved a role.",
    Numbers,
    labels=("provider_name", "auth_method"),
    origin="pulsar",
)
FAILURES: Final = Declared(
    "pulsar_authentication_failures",
    "counter",
    "Clients whose credentials were refused.",
    Numbers,
    labels=("provider_name", "auth_method", "reason"),
    origin="pulsar",
    better="a client without credentials counts once, as NO_PROVIDER, not for the last provider asked",
)
EXPIRED: Final = Declared(
    "pulsar_expired_token", "counter", "Tokens refused because they had expired.", Number, origin="pulsar"
)
RELOADS: Final = counter_by(
    "result",
    "authentication_file_reloads",
    "Reloads of key and password files that changed, by result; refused: the old contents stay in force.",
    ("applied", "refused"),
)


class Provider(Protocol):
    """A way to prove a role, with a name for metrics, and with files to watch."""

    @property
    def name(self) -> str:
        """Upstream's class name, without its package."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The authentication methods of CONNECT that this provider handles."""

    @property
    def files(self) -> Sequence[Watched[Any]]:
        """The files that are read again when they change."""

    def user_to_check(self, data: bytes) -> str | None:
        """Return the user whose check is expensive work of the proxy itself, None for a cheap check."""

    async def authenticate(self, data: bytes, certificate: bytes | None, network: str) -> Authenticated:
        """Return the proven role; `certificate` is the verified client certificate of the TLS connection, DER.

        Checks that take the event loop's time take turns by `network` (`limiter.sites`). Raise AuthenticationFailed.
        """

    async def close(self) -> None:
        """Release threads and tasks of the provider."""


class Authenticator:
    """Finds the role of a client; `providers/registry.py` builds it, `start` begins to watch files."""

    def __init__(
        self,
        providers: Sequence[Provider],
        core: Core,
        tasks: TaskScope,
    ) -> None:
        self._providers = tuple(providers)
        self._anonymous_role = core.config.anonymous_user_role
        self._anonymous_for_unknown_methods = core.config.anonymous_user_role_for_unknown_methods
        self._counters = core.counters
        self._log = core.log.of("auth")
        self._tasks = tasks
        self._by_method: dict[str, list[Provider]] = {}
        for provider in self._providers:
            for method in provider.methods:
                self._by_method.setdefault(method, []).append(provider)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that have a provider."""
        return tuple(self._by_method)

    def start(self) -> None:
        """Start watching the files of keys and passwords."""
        for provider in self._providers:
            for file in provider.files:
                if file.path:
                    self._tasks.start(self._watch(file))

    async def close(self) -> None:
        """Stop watching files, close the providers, and refuse the checks that wait."""
        self._tasks.cancel()
        await self._tasks.emptied()
        for provider in self._providers:
            await provider.close()

    def user_to_check(self, method: str, data: bytes) -> str | None:
        """Return the user whose password a thread has to check, None for a check that is cheap."""
        users = (provider.user_to_check(data) for provider in self._by_method.get(method or NO_METHOD, ()))
        return next((user for user in users if user is not None), None)

    async def authenticate(self, method: str, data: bytes, certificate: bytes | None, network: str) -> Authenticated:
        """Return the role of a client by the method and data of its CONNECT; raise CredentialsRefused.

        `certificate` is the verified client certificate of its TLS connection, DER. Signatures are checked in turns by
        `network`. An empty method means "none". The call suspends only for passwords, for the keys of an issuer, and
        while others' signatures are checked.
        """
        providers = self._by_method.get(method or NO_METHOD)
        if providers is None:
            return self._without_provider(anonymous=method in ("", NO_METHOD))
        refusals: list[CredentialsRefused] = []
        for provider in providers:
            try:
                found = await provider.authenticate(data, certificate, network)
            except CredentialsRefused as refusal:
                refusals.append(refusal)
                continue
            self._counters[SUCCESSES][provider.name, method] += 1
            return found
        raise self._refused(method, providers, refusals)

    def _without_provider(self, *, anonymous: bool) -> Authenticated:
        """Return the anonymous role, if a client that is `anonymous` or not may have that; raise CredentialsRefused."""
        if self._anonymous_role and (anonymous or self._anonymous_for_unknown_methods):
            return Authenticated(self._anonymous_role, anonymous=True)
        # The client chose the method's name, so the name must not become a label.
        self._counters[FAILURES]["AuthenticationService", "unknown", Reason.NO_PROVIDER] += 1
        if anonymous:
            detail = "got no credentials, and there is no anonymousUserRole"
            raise CredentialsRefused(Reason.NO_PROVIDER, detail, public=PublicCause.REQUIRED)
        detail = "no provider of authenticationProviders for this method"
        if self._anonymous_role:
            detail += ", and no anonymousUserRoleForUnknownMethods"
        raise CredentialsRefused(Reason.NO_PROVIDER, detail)

    def _refused(
        self, method: str, providers: Sequence[Provider], refusals: Sequence[CredentialsRefused]
    ) -> CredentialsRefused:
        for provider, refusal in zip(providers, refusals, strict=True):
            self._counters[FAILURES][provider.name, method, refusal.reason] += 1
        expired = any(refusal.expired for refusal in refusals)
        # A provider that was too busy to check might have accepted the credentials.
        reason = Reason.BUSY if any(refusal.busy for refusal in refusals) else refusals[-1].reason
        if expired:
            self._counters[EXPIRED].value += 1
        return CredentialsRefused(reason, "; ".join(map(str, refusals)), expired=expired)

    async def _watch(self, file: Watched[Any]) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                changed = await file.look()
            except SettingFault as fault:
                self._counters[RELOADS]["refused"] += 1
                self._log.warning(
                    "file refused, what was read before stays in force", key=fault.key, detail=fault.problem
                )
            else:
                if changed:
                    self._counters[RELOADS]["applied"] += 1
                    self._log.info("file read again", key=file.key, file=file.path)
