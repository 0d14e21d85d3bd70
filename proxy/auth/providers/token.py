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
from proxy.auth.signature_turns import SignatureTurns
from proxy.auth.sources import Watched
from proxy.config.config import Config

# By what `tokenPublicAlg` begins with.
_FAMILIES: Final[dict[str, Family]] = {"rs": "RSA", "ps": "RSA", "es": "EC"}
_REASONS: Final = {Flaw.AUDIENCE: Reason.INVALID_AUDIENCES}


class TokenProvider:
    """Verifies tokens by `tokenSecretKey` or `tokenPublicKey`; the constructor raises SettingFault.

    `now` returns seconds since the epoch; `turns` orders the checks of all providers.
    """

    name = "AuthenticationProviderToken"
    methods = ("token",)

    def __init__(self, config: Config, now: Callable[[], float], turns: SignatureTurns | None = None) -> None:
        if config.token_audience_claim and not config.token_audience:
            raise SettingFault("tokenAudience", "expected a value, because tokenAudienceClaim is set")
        if config.token_audience and not config.token_audience_claim:
            # Upstream ignores the audience in this case; every token for another audience would be accepted.
            raise SettingFault("tokenAudienceClaim", "expected a value, such as aud, because tokenAudience is set")
        self._key = _watched_key(config)
        self._now = now
        self._turns = turns
        self._role_claim = config.token_auth_claim or "sub"
        self._audience_claim = config.token_audience_claim
        self._audience = frozenset({config.token_audience})
        self._skew_seconds = config.token_allowed_clock_skew_seconds
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


def _watched_key(config: Config) -> Watched[VerifyingKey]:
    # As in upstream the secret key is used if both are set.
    if config.token_secret_key:
        return Watched(config.token_secret_key, "tokenSecretKey", secret_key)
    if not config.token_public_key:
        raise SettingFault("tokenSecretKey", "expected tokenSecretKey or tokenPublicKey, got neither")
    family = _FAMILIES[config.token_public_alg[:2].lower()]
    return Watched(config.token_public_key, "tokenPublicKey", lambda raw: public_key(raw, family))
