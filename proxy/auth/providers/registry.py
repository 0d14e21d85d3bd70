"""The providers of `authenticationProviders`, tried in their order (`proxy.auth.authenticator`).

An unknown provider stops the start: ignoring it silently would lock clients out later. Only the configured providers
are imported, because their libraries take longer than the rest of the start.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from proxy.auth.authenticator import Authenticator, Provider
from proxy.auth.failures import SettingFault
from proxy.auth.roles import is_role
from proxy.auth.signature_turns import SignatureTurns
from proxy.config.core import Core
from proxy.core.secrets import masked
from proxy.core.tasks import TaskScope

_UPSTREAM: Final = "org.apache.pulsar.broker.authentication."
_NAMES: Final = {
    f"{_UPSTREAM}AuthenticationProviderToken": "token",
    f"{_UPSTREAM}AuthenticationProviderTls": "tls",
    f"{_UPSTREAM}AuthenticationProviderBasic": "basic",
    f"{_UPSTREAM}oidc.AuthenticationProviderOpenID": "openid",
}


def build_authenticator(
    providers: Sequence[str],
    core: Core,
    now: Callable[[], float] = time.time,
    turns: SignatureTurns | None = None,
) -> Authenticator:
    """Build these providers in their order and read their files; raise SettingFault.

    `now` returns seconds since the epoch. `turns` spreads the checks of signatures over the loop's iterations; None for
    a process that serves nobody.
    """
    config = core.config
    names = [_short_name(name) for name in providers]
    anonymous_role = config.anonymous_user_role
    if not names and not anonymous_role:
        raise SettingFault(
            "authenticationProviders", f"expected at least one of {_expected()}, because authenticationEnabled=true"
        )
    if anonymous_role and not is_role(anonymous_role):
        expected = "expected printable text of at most 1,024 characters, no blank at an end"
        raise SettingFault("anonymousUserRole", expected)
    tasks = TaskScope(lambda error: core.counters.internal_error(error, "authentication"))

    def make(name: str) -> Provider:
        if name == "token":
            from proxy.auth.providers.token import TokenProvider

            return TokenProvider(config, now, turns)
        if name == "openid":
            from proxy.auth.providers.openid import OpenIdProvider

            return OpenIdProvider(config, tasks.start, now, core.clock, turns)
        if name == "basic":
            from proxy.auth.providers.basic import BasicProvider

            return BasicProvider(config.basic_auth_conf, core.loop, config.password_threads)
        from proxy.auth.providers.certificate import CertificateProvider

        return CertificateProvider()

    return Authenticator([make(name) for name in dict.fromkeys(names)], core, tasks)


def _short_name(name: str) -> str:
    short = _NAMES.get(name, name)
    if short not in _NAMES.values():
        raise SettingFault("authenticationProviders", f"got {masked(name)!r}, supported are {_expected()}")
    return short


def _expected() -> str:
    return ", ".join(f"{short} ({name})" for name, short in _NAMES.items())
