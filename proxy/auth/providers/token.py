"""Clients with a JSON Web Token signed by a key of this proxy (upstream: AuthenticationProviderToken).

Rule: a token is accepted after checks of its signature, its times and its audience. Tokens are not cached: a check
costs 16 to 110 us (HS256, ES256), which does not justify a cache full of secrets. With keys that need more the checks
take turns (`proxy.auth.signature_turns`).
"""

from collections.abc import Callable
from typing import Final

from proxy.auth.failures import CredentialsRefused, Reason, SettingFault
from proxy.auth.identity import Authenticated
from proxy.auth.providers.signed_token import BadToken, Flaw, check_audience, check_times, parse_token, role_in
from proxy.auth.providers.verifying_keys import Family, VerifyingKey, public_key, secret_key
from proxy.auth.settings import TokenSettings
from proxy.auth.signature_turns import SignatureTurns
from proxy.auth.sources import Watched

_FAMILIES: Final[dict[str, Family]] = {
    "": "",
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
}
_REASONS: Final = {Flaw.AUDIENCE: Reason.INVALID_AUDIENCES}


class TokenProvider:
    """Verifies tokens by `tokenSecretKey` or `tokenPublicKey`; the constructor raises SettingFault.

    `now` returns seconds since the epoch; `turns` orders the checks of all providers.
    """

    name = "AuthenticationProviderToken"
    methods = ("token",)

    def __init__(self, settings: TokenSettings, now: Callable[[], float], turns: SignatureTurns | None = None) -> None:
        if settings.audience_claim and not settings.audience:
            raise SettingFault("tokenAudience", "expected a value, because tokenAudienceClaim is set")
        if settings.audience and not settings.audience_claim:
            # Upstream ignores the audience in this case; every token for another audience would be accepted.
            raise SettingFault("tokenAudienceClaim", "expected a value, such as aud, because tokenAudience is set")
        self._key = _watched_key(settings)
        self._now = now
        self._turns = turns
        self._role_claim = settings.auth_claim or "sub"
        self._audience_claim = settings.audience_claim
        self._audience = frozenset({settings.audience})
        self._skew_seconds = settings.clock_skew_seconds
        self.files: tuple[Watched[VerifyingKey], ...] = (self._key,)

    def user_to_check(self, data: bytes) -> str | None:
        """Return None: checks of signatures have turns of their own, without a thread."""
        return None

    async def authenticate(self, data: bytes, certificate: bytes | None, network: str) -> Authenticated:
        """Return the role of a token; suspend only while others' signatures are checked. Raise CredentialsRefused."""
        if not data:
            raise CredentialsRefused(Reason.INVALID_AUTH_DATA, "no token was sent")
        try:
            return await self._accept(data, network)
        except BadToken as error:
            reason = _REASONS.get(error.flaw, Reason.INVALID_TOKEN)
            raise CredentialsRefused(reason, f"token: {error}", expired=error.flaw is Flaw.EXPIRED) from None

    async def close(self) -> None:
        """Do nothing: the provider holds nothing open."""

    async def _accept(self, data: bytes, network: str) -> Authenticated:
        if self._turns is not None:
            await self._turns.wait_to_parse(len(data), network)
        token = parse_token(data)
        if self._turns is not None:
            await self._turns.wait(self._key.value.seconds, network)
        if not self._key.value.verifies(token):
            raise BadToken(Flaw.MALFORMED, "not signed with this proxy's key")
        if self._audience_claim:
            check_audience(token.claims, self._audience_claim, self._audience)
        expires_at = check_times(token.claims, self._now(), self._skew_seconds)
        return Authenticated(role_in(token.claims, self._role_claim), expires_at)


def _watched_key(settings: TokenSettings) -> Watched[VerifyingKey]:
    # As in upstream the secret key is used if both are set.
    if settings.secret_key:
        return Watched(settings.secret_key, "tokenSecretKey", secret_key)
    if not settings.public_key:
        raise SettingFault("tokenSecretKey", "expected tokenSecretKey or tokenPublicKey, got neither")
    family = _FAMILIES.get(settings.public_alg.upper())
    if family is None:
        expected = ", ".join(filter(None, _FAMILIES))
        raise SettingFault("tokenPublicAlg", f"got {settings.public_alg!r}, expected one of {expected}")
    return Watched(settings.public_key, "tokenPublicKey", lambda raw: public_key(raw, family))
