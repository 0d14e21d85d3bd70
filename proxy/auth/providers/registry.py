"""Who clients are: the providers of `authenticationProviders`, asked in their order.

Rule: as upstream, several providers of one method are tried one after the other and the first that believes wins; a
method nobody answers for is the anonymous role's, if there is one, and never a client whose credentials were refused.
A provider that this proxy does not have stops the start: left out in silence, it would lock clients out later. Only
providers in use are imported, their libraries take longer than the rest of the start.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from limiter.clock import Clock
from proxy.auth.failures import CredentialsRefused, Reason, SettingFault
from proxy.auth.identity import Authenticated, Provider, is_role
from proxy.auth.settings import AuthenticationSettings
from proxy.auth.sources import Watched
from proxy.core.log import Logger
from proxy.core.secrets import masked
from proxy.core.tasks import TaskScope

LOOK_SECONDS: Final = 1.0
NO_METHOD: Final = "none"
_UPSTREAM: Final = "org.apache.pulsar.broker.authentication."
_NAMES: Final = {
    f"{_UPSTREAM}AuthenticationProviderToken": "token",
    f"{_UPSTREAM}AuthenticationProviderTls": "tls",
    f"{_UPSTREAM}AuthenticationProviderBasic": "basic",
    f"{_UPSTREAM}oidc.AuthenticationProviderOpenID": "openid",
}


class AuthenticationObserver(Protocol):
    """Hears what became of credentials (`proxy.telemetry.counters.AuthenticationCounters` does)."""

    def succeeded(self, provider: str, method: str) -> None:
        """Take a role that was proven."""

    def failed(self, provider: str, method: str, reason: str) -> None:
        """Take credentials that were refused; each of several providers is told of, but only if all refused."""

    def expired(self) -> None:
        """Take a token that was good once."""

    def reloaded(self, result: str) -> None:
        """Take a file of keys that changed: `applied` or `refused`."""


class RunningProvider(Provider, Protocol):
    """A provider as the authenticator holds it: `name` is upstream's, for metrics; `files` are watched."""

    @property
    def name(self) -> str:
        """Upstream's class name, without its package."""

    @property
    def files(self) -> Sequence[Watched[Any]]:
        """Files that are read again when they change."""

    def needs_turn(self, data: bytes) -> bool:
        """Tell whether the check is long work of this proxy's own, without doing any of it."""

    async def close(self) -> None:
        """Let go of all that is held."""


@dataclass(frozen=True, slots=True)
class AuthContext:
    """What an authenticator is given: `clock` never jumps, `now` is seconds since the epoch."""

    clock: Clock
    now: Callable[[], float]
    observer: AuthenticationObserver
    log: Logger
    crashed: Callable[[BaseException], None]


class Authenticator:
    """Find who a client is; `start` begins to watch files. Made by `build_authenticator`."""

    def __init__(
        self, providers: Sequence[RunningProvider], anonymous_role: str, around: AuthContext, tasks: TaskScope
    ) -> None:
        self._providers = tuple(providers)
        self._anonymous_role = anonymous_role
        self._observer = around.observer
        self._log = around.log
        self._tasks = tasks
        self._by_method: dict[str, list[RunningProvider]] = {}
        for provider in self._providers:
            for method in provider.methods:
                self._by_method.setdefault(method, []).append(provider)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that some provider answers for."""
        return tuple(self._by_method)

    def start(self) -> None:
        """Begin to watch the files of keys and passwords."""
        for provider in self._providers:
            for file in provider.files:
                if file.path:
                    self._tasks.start(self._watch(file))

    async def close(self) -> None:
        """End all that runs; who waits is refused."""
        self._tasks.cancel()
        await self._tasks.emptied()
        for provider in self._providers:
            await provider.close()

    def needs_turn(self, method: str, data: bytes) -> bool:
        """Tell whether the check is long work of this proxy's own: for passwords that are not known yet."""
        return any(provider.needs_turn(data) for provider in self._by_method.get(method or NO_METHOD, ()))

    async def authenticate(self, method: str, data: bytes, certificate: bytes | None) -> Authenticated:
        """Find the role of a client by the method and data of its CONNECT; raises CredentialsRefused.

        `certificate` is the verified one of its TLS connection, DER. An empty method is "none". Suspends for passwords
        and for keys of an issuer only.
        """
        providers = self._by_method.get(method or NO_METHOD)
        if providers is None:
            return self._without_provider()
        refusals: list[CredentialsRefused] = []
        for provider in providers:
            try:
                found = await provider.authenticate(data, certificate)
            except CredentialsRefused as refusal:
                refusals.append(refusal)
                continue
            self._observer.succeeded(provider.name, method)
            return found
        raise self._refused(method, providers, refusals)

    def _without_provider(self) -> Authenticated:
        if self._anonymous_role:
            return Authenticated(self._anonymous_role)
        # The client chose its method's name: it must not become a label.
        self._observer.failed("AuthenticationService", "unknown", Reason.NO_PROVIDER)
        raise CredentialsRefused(
            Reason.NO_PROVIDER, "no provider of authenticationProviders for this method, and no anonymousUserRole"
        )

    def _refused(
        self, method: str, providers: Sequence[RunningProvider], refusals: Sequence[CredentialsRefused]
    ) -> CredentialsRefused:
        for provider, refusal in zip(providers, refusals, strict=True):
            self._observer.failed(provider.name, method, refusal.reason)
        expired = any(refusal.expired for refusal in refusals)
        # One that was too busy to judge might have believed.
        reason = Reason.BUSY if any(refusal.busy for refusal in refusals) else refusals[-1].reason
        if expired:
            self._observer.expired()
        return CredentialsRefused(reason, "; ".join(map(str, refusals)), expired=expired)

    async def _watch(self, file: Watched[Any]) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                changed = await file.look()
            except SettingFault as fault:
                self._observer.reloaded("refused")
                self._log.warning(
                    "file refused, what was read before stays in force", key=fault.key, detail=fault.problem
                )
            else:
                if changed:
                    self._observer.reloaded("applied")
                    self._log.info("file read again", key=file.key, file=file.path)


def build_authenticator(settings: AuthenticationSettings, around: AuthContext) -> Authenticator:
    """Make the providers, in their order; reads their files. Raises SettingFault."""
    names = [_short_name(name) for name in settings.providers]
    if not names and not settings.anonymous_role:
        raise SettingFault(
            "authenticationProviders", f"expected at least one of {_expected()}, because authenticationEnabled=true"
        )
    if settings.anonymous_role and not is_role(settings.anonymous_role):
        raise SettingFault("anonymousUserRole", "expected printable text of at most 1,024 characters")
    tasks = TaskScope(around.crashed)
    providers = [_make(name, settings, around, tasks) for name in dict.fromkeys(names)]
    return Authenticator(providers, settings.anonymous_role, around, tasks)


def _short_name(name: str) -> str:
    short = _NAMES.get(name, name)
    if short not in _NAMES.values():
        raise SettingFault("authenticationProviders", f"got {masked(name)!r}, supported are {_expected()}")
    return short


def _expected() -> str:
    return ", ".join(f"{short} ({name})" for name, short in _NAMES.items())


def _make(name: str, settings: AuthenticationSettings, around: AuthContext, tasks: TaskScope) -> RunningProvider:
    if name == "token":
        from proxy.auth.providers.token import TokenProvider

        return TokenProvider(settings.token, around.now)
    if name == "openid":
        from proxy.auth.providers.openid import OpenIdProvider

        return OpenIdProvider(settings.openid, tasks.start, around.now, around.clock.time)
    if name == "basic":
        from proxy.auth.providers.basic import BasicProvider

        return BasicProvider(settings.basic_conf, around.clock)
    from proxy.auth.providers.certificate import CertificateProvider

    return CertificateProvider()
