"""Settings of authentication, read from the configuration.

The settings are apart from the providers, because the providers import slow libraries that only a proxy with
authentication should load.
"""

from dataclasses import dataclass, field
from typing import Self

from proxy.config.config import Config


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """The `token*` keys. If both keys are set, the secret key is used, as in upstream."""

    secret_key: str = field(default="", repr=False)
    public_key: str = ""
    public_alg: str = ""
    auth_claim: str = ""
    audience_claim: str = ""
    audience: str = ""
    clock_skew_seconds: float = 0.0

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the settings of a configuration."""
        return cls(
            secret_key=config.token_secret_key,
            public_key=config.token_public_key,
            public_alg=config.token_public_alg,
            auth_claim=config.token_auth_claim,
            audience_claim=config.token_audience_claim,
            audience=config.token_audience,
            clock_skew_seconds=config.token_allowed_clock_skew_seconds,
        )


@dataclass(frozen=True, slots=True)
class IssuerAccess:
    """Access to issuers; an empty `trust_file` means the certificates that the system trusts."""

    connect_seconds: float = 10.0
    read_seconds: float = 10.0
    trust_file: str = ""
    https_only: bool = True

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the settings of a configuration."""
        return cls(
            connect_seconds=config.seconds(Config.open_id_http_connection_timeout_millis),
            read_seconds=config.seconds(Config.open_id_http_read_timeout_millis),
            trust_file=config.open_id_token_issuer_trust_certs_file_path,
            https_only=config.open_id_require_issuers_use_https,
        )


@dataclass(frozen=True, slots=True)
class CacheRules:
    """The number of issuers whose keys are cached, and three ages in seconds."""

    size: int = 5
    refresh_seconds: float = 18 * 3600.0
    expire_seconds: float = 24 * 3600.0
    miss_seconds: float = 300.0

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the rules of a configuration."""
        return cls(
            size=config.open_id_cache_size,
            refresh_seconds=config.open_id_cache_refresh_after_write_seconds,
            expire_seconds=config.open_id_cache_expiration_seconds,
            miss_seconds=config.open_id_key_id_cache_miss_refresh_seconds,
        )


@dataclass(frozen=True, slots=True)
class OpenIdSettings:
    """The `openID*` keys."""

    issuers: tuple[str, ...] = ()
    audiences: tuple[str, ...] = ()
    role_claim: str = ""
    leeway_seconds: float = 0.0
    fallback_discovery_mode: str = "disabled"
    access: IssuerAccess = field(default_factory=IssuerAccess)
    cache: CacheRules = field(default_factory=CacheRules)

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the settings of a configuration."""
        return cls(
            issuers=config.open_id_allowed_token_issuers,
            audiences=config.open_id_allowed_audiences,
            role_claim=config.open_id_role_claim,
            leeway_seconds=config.open_id_accepted_time_leeway_seconds,
            fallback_discovery_mode=config.open_id_fallback_discovery_mode,
            access=IssuerAccess.of(config),
            cache=CacheRules.of(config),
        )


@dataclass(frozen=True, slots=True)
class AuthenticationSettings:
    """`authenticationProviders` in their order, and the settings of each provider."""

    providers: tuple[str, ...] = ()
    anonymous_role: str = ""
    anonymous_for_unknown_methods: bool = False
    token: TokenSettings = field(default_factory=TokenSettings)
    openid: OpenIdSettings = field(default_factory=OpenIdSettings)
    basic_conf: str = field(default="", repr=False)
    checks_at_once: int = 2

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the settings of a configuration."""
        return cls(
            providers=config.authentication_providers,
            anonymous_role=config.anonymous_user_role,
            anonymous_for_unknown_methods=config.anonymous_user_role_for_unknown_methods,
            token=TokenSettings.of(config),
            openid=OpenIdSettings.of(config),
            basic_conf=config.basic_auth_conf,
            checks_at_once=config.password_threads,
        )
