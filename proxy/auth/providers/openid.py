"""Clients with a token of an OpenID issuer (upstream: AuthenticationProviderOpenID).

Rule: the proxy never connects to an issuer that is not on the list. The issuer's published key decides the algorithm.
A token needs `iat`, `exp`, `nbf`, `sub` and an allowed audience, as in upstream.
"""

from collections.abc import Callable
from typing import Final

from proxy.auth.failures import CredentialsRefused, Reason, SettingFault
from proxy.auth.identity import Authenticated
from proxy.auth.providers.issuer_client import IssuerClient, IssuerFault
from proxy.auth.providers.issuer_keys import IssuerKeys, Start
from proxy.auth.providers.signed_token import (
    BadToken,
    Flaw,
    SignedToken,
    check_audience,
    check_times,
    parse_token,
    role_in,
)
from proxy.auth.signature_turns import SignatureTurns
from proxy.auth.sources import Watched
from proxy.config.config import Config

ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "ES256", "ES384", "ES512"})
_REQUIRED: Final = ("iat", "exp", "nbf", "sub")
_REASONS: Final = {
    Flaw.MALFORMED: Reason.ERROR_DECODING_JWT,
    Flaw.EXPIRED: Reason.EXPIRED_JWT,
    Flaw.CLAIM: Reason.INVALID_JWT_CLAIM,
    Flaw.AUDIENCE: Reason.INVALID_JWT_CLAIM,
}


class OpenIdProvider:
    """Verifies tokens of `openIDAllowedTokenIssuers`; the constructor raises SettingFault.

    `start` runs requests to issuers; `now` returns seconds since the epoch, `monotonic` those of a clock that never
    jumps; `turns` orders the checks of all providers.
    """

    name = "AuthenticationProviderOpenID"
    methods = ("token",)
    files: tuple[Watched[object], ...] = ()

    def __init__(
        self,
        config: Config,
        start: Start,
        now: Callable[[], float],
        monotonic: Callable[[], float],
        turns: SignatureTurns | None = None,
    ) -> None:
        _check(config)
        self._issuers = frozenset(config.open_id_allowed_token_issuers)
        self._audiences = frozenset(config.open_id_allowed_audiences)
        self._role_claim = config.open_id_role_claim or "sub"
        self._leeway_seconds = config.open_id_accepted_time_leeway_seconds
        self._now = now
        self._turns = turns
        self._keys = IssuerKeys(config, IssuerClient(config).fetch, start, monotonic)

    def user_to_check(self, data: bytes) -> str | None:
        """Return None: checking a signature is cheap, and waits for an issuer have a limit of their own."""
        return None

    async def authenticate(self, data: bytes, certificate: bytes | None, network: str) -> Authenticated:
        """Return the role of a token; raise CredentialsRefused.

        Suspend only to fetch keys of an issuer, and while others' signatures are checked.
        """
        try:
            if self._turns is not None:
                await self._turns.wait_to_parse(len(data), network)
            token = parse_token(data)
            await self._verify(token, len(data), network)
            return self._accept(token)
        except BadToken as error:
            expired = error.flaw is Flaw.EXPIRED
            raise CredentialsRefused(_REASONS[error.flaw], f"openid: {error}", expired=expired) from None
        except IssuerFault as error:
            raise CredentialsRefused(error.reason, f"openid: {error}") from None

    async def close(self) -> None:
        """Do nothing: requests to issuers end with the task scope that runs them."""

    async def _verify(self, token: SignedToken, token_bytes: int, network: str) -> None:
        issuer = token.claims.get("iss")
        if not isinstance(issuer, str) or issuer not in self._issuers:
            raise CredentialsRefused(Reason.UNSUPPORTED_ISSUER, "openid: not an issuer of openIDAllowedTokenIssuers")
        if token.algorithm not in ALGORITHMS:
            raise CredentialsRefused(
                Reason.UNSUPPORTED_ALGORITHM, f"openid: expected one of {', '.join(sorted(ALGORITHMS))}"
            )
        key = await self._keys.key(issuer, token.key_id, token_bytes)
        if token.algorithm not in key.algorithms:
            raise CredentialsRefused(Reason.ALGORITHM_MISMATCH, "openid: the token's algorithm is not its key's")
        if self._turns is not None:
            await self._turns.wait(key.seconds, network)
        if not key.verifies(token):
            raise CredentialsRefused(Reason.ERROR_VERIFYING_JWT_SIGNATURE, "openid: not signed with its issuer's key")

    def _accept(self, token: SignedToken) -> Authenticated:
        claims = token.claims
        if missing := [name for name in _REQUIRED if claims.get(name) is None]:
            raise BadToken(Flaw.CLAIM, f"without claim {missing[0]}")
        check_audience(claims, "aud", self._audiences)
        expires_at = check_times(claims, self._now(), self._leeway_seconds, ("nbf", "iat"))
        return Authenticated(role_in(claims, self._role_claim), expires_at)


def _check(config: Config) -> None:
    if not config.open_id_allowed_token_issuers:
        raise SettingFault("openIDAllowedTokenIssuers", "expected at least one issuer")
    if not config.open_id_allowed_audiences:
        raise SettingFault("openIDAllowedAudiences", "expected at least one audience")
    schemes = ("https://",) if config.open_id_require_issuers_use_https else ("https://", "http://")
    for issuer in config.open_id_allowed_token_issuers:
        if not issuer.lower().startswith(schemes):
            raise SettingFault(
                "openIDAllowedTokenIssuers",
                f"got {issuer!r}, expected https:// (or openIDRequireIssuersUseHttps=false, for tests)",
            )
