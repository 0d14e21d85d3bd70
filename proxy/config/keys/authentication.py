"""Who clients are, and who this proxy is to brokers."""

from proxy.config.keys.key import Key, boolean, choice, text, whole, words
from proxy.config.keys.units import DAY_SECONDS, HOUR_MILLIS, MILLIS, SECONDS

AUTHENTICATION = "Authentication"


class AuthenticationKeys:
    """Who clients are, and who this proxy is to brokers."""

    authentication_enabled = Key(
        "authenticationEnabled", False, boolean(), since="pulsar", section=AUTHENTICATION,
        doc="Demand that clients prove who they are.",
    )  # fmt: skip
    authentication_providers = Key(
        "authenticationProviders", (), words(), since="pulsar", section=AUTHENTICATION,
        doc="Ways to do so, by class name as the Java proxy has them or by token, tls, basic, openid.",
        less="SASL, Athenz and classes of one's own, which are refused",
    )  # fmt: skip
    authentication_refresh_check_seconds = Key(
        "authenticationRefreshCheckSeconds", 60, whole(1, DAY_SECONDS),
        since="pulsar", section=AUTHENTICATION, unit=SECONDS,
        doc="Time between looks for credentials that have expired.",
    )  # fmt: skip
    anonymous_user_role = Key(
        "anonymousUserRole", "", text(), since="pulsar", section=AUTHENTICATION,
        doc="Role of clients that present no credentials. Empty: they are refused.",
    )  # fmt: skip
    authentication_role_logging_anonymizer = Key(
        "authenticationRoleLoggingAnonymizer", "none", choice("none", "redacted", "hash:sha256", "hash:md5"),
        since="pulsar", section=AUTHENTICATION,
        doc="How roles are written into logs.",
    )  # fmt: skip
    authorization_enabled = Key(
        "authorizationEnabled", False, boolean(), since="pulsar", section=AUTHENTICATION,
        doc="Let only superUserRoles see /proxy-stats and /config; brokers authorize everything else.",
    )  # fmt: skip
    super_user_roles = Key(
        "superUserRoles", (), words(), since="pulsar", section=AUTHENTICATION,
        doc="Roles that may see /proxy-stats and /config.",
    )  # fmt: skip
    forward_authorization_credentials = Key(
        "forwardAuthorizationCredentials", False, boolean(), since="pulsar", section=AUTHENTICATION,
        doc="Pass the credentials of clients on to brokers, which authenticate them once more.",
    )  # fmt: skip
    max_concurrent_authentications = Key(
        "maxConcurrentAuthentications", 256, whole(1, 100_000), section=AUTHENTICATION, unit="clients",
        doc="Passwords of clients in the line of those that are checked; more wait within handshakeTimeoutMillis. "
        "Tokens, certificates and passwords that were proven before need no place, nor does who waits for an issuer.",
    )  # fmt: skip
    token_secret_key = Key(
        "tokenSecretKey", "", text(), since="pulsar", section=AUTHENTICATION, secret=True,
        doc="Secret key of tokens (HS256, HS384, HS512): file:///path, data:;base64,..., or base64 text.",
    )  # fmt: skip
    token_public_key = Key(
        "tokenPublicKey", "", text(), since="pulsar", section=AUTHENTICATION,
        doc="Public key of tokens (RS, PS, ES): file:///path, data:;base64,..., DER or PEM.",
    )  # fmt: skip
    token_public_alg = Key(
        "tokenPublicAlg", "rs256",
        choice("rs256", "rs384", "rs512", "ps256", "ps384", "ps512", "es256", "es384", "es512"),
        since="pulsar", section=AUTHENTICATION,
        doc="Algorithm of tokenPublicKey.",
    )  # fmt: skip
    token_auth_claim = Key(
        "tokenAuthClaim", "sub", text(), since="pulsar", section=AUTHENTICATION,
        doc="Claim of a token that is the role.",
    )  # fmt: skip
    token_audience_claim = Key(
        "tokenAudienceClaim", "", text(), since="pulsar", section=AUTHENTICATION,
        doc="Claim of a token that names whom it is for; needs tokenAudience.",
    )  # fmt: skip
    token_audience = Key(
        "tokenAudience", "", text(), since="pulsar", section=AUTHENTICATION,
        doc="What that claim must hold; needs tokenAudienceClaim.",
        better="refused without tokenAudienceClaim; the Java proxy passes over it and takes tokens for anybody",
    )  # fmt: skip
    token_allowed_clock_skew_seconds = Key(
        "tokenAllowedClockSkewSeconds", 0, whole(0, DAY_SECONDS),
        since="pulsar", section=AUTHENTICATION, unit=SECONDS,
        doc="Time by which clocks may differ when expiry is checked.",
    )  # fmt: skip
    basic_auth_conf = Key(
        "basicAuthConf", "", text(), since="pulsar", section=AUTHENTICATION, secret=True,
        doc="Users and password hashes as htpasswd writes them: a path, file:///path or data:;base64,...",
    )  # fmt: skip
    open_id_allowed_token_issuers = Key(
        "openIDAllowedTokenIssuers", (), words(), since="pulsar", section=AUTHENTICATION,
        doc="Issuers of OpenID Connect whose tokens are taken.",
    )  # fmt: skip
    open_id_allowed_audiences = Key(
        "openIDAllowedAudiences", (), words(), since="pulsar", section=AUTHENTICATION,
        doc="Audiences of which a token must name one.",
    )  # fmt: skip
    open_id_token_issuer_trust_certs_file_path = Key(
        "openIDTokenIssuerTrustCertsFilePath", "", text(), since="pulsar", section=AUTHENTICATION,
        doc="PEM file with the authorities for issuers. Empty: the system's.",
    )  # fmt: skip
    open_id_role_claim = Key(
        "openIDRoleClaim", "sub", text(), since="pulsar", section=AUTHENTICATION,
        doc="Claim of a token that is the role.",
    )  # fmt: skip
    open_id_accepted_time_leeway_seconds = Key(
        "openIDAcceptedTimeLeewaySeconds", 0, whole(0, DAY_SECONDS),
        since="pulsar", section=AUTHENTICATION, unit=SECONDS,
        doc="Time by which clocks may differ when expiry is checked.",
    )  # fmt: skip
    open_id_cache_size = Key(
        "openIDCacheSize", 5, whole(1, 1000), since="pulsar", section=AUTHENTICATION,
        doc="Issuers whose keys are kept.",
    )  # fmt: skip
    open_id_cache_refresh_after_write_seconds = Key(
        "openIDCacheRefreshAfterWriteSeconds", 64_800, whole(1, 365 * DAY_SECONDS),
        since="pulsar", section=AUTHENTICATION, unit=SECONDS,
        doc="Age at which keys are fetched anew while the old ones stay.",
    )  # fmt: skip
    open_id_cache_expiration_seconds = Key(
        "openIDCacheExpirationSeconds", 86_400, whole(1, 365 * DAY_SECONDS),
        since="pulsar", section=AUTHENTICATION, unit=SECONDS,
        doc="Age at which keys are forgotten.",
    )  # fmt: skip
    open_id_http_connection_timeout_millis = Key(
        "openIDHttpConnectionTimeoutMillis", 10_000, whole(1, HOUR_MILLIS),
        since="pulsar", section=AUTHENTICATION, unit=MILLIS,
        doc="Time for a connection to an issuer.",
    )  # fmt: skip
    open_id_http_read_timeout_millis = Key(
        "openIDHttpReadTimeoutMillis", 10_000, whole(1, HOUR_MILLIS),
        since="pulsar", section=AUTHENTICATION, unit=MILLIS,
        doc="Time for an issuer's answer.",
    )  # fmt: skip
    open_id_key_id_cache_miss_refresh_seconds = Key(
        "openIDKeyIdCacheMissRefreshSeconds", 300, whole(1, DAY_SECONDS),
        since="pulsar", section=AUTHENTICATION, unit=SECONDS,
        doc="Least time between fetches because of a key id that is not known.",
    )  # fmt: skip
    open_id_require_issuers_use_https = Key(
        "openIDRequireIssuersUseHttps", True, boolean(), since="pulsar", section=AUTHENTICATION,
        doc="Refuse issuers without https.",
    )  # fmt: skip
    open_id_fallback_discovery_mode = Key(
        "openIDFallbackDiscoveryMode", "disabled", choice("disabled"), since="pulsar", section=AUTHENTICATION,
        less="other modes, which are refused",
        doc="Discovery where the issuer's own fails; only DISABLED is supported.",
    )  # fmt: skip
    broker_client_authentication_plugin = Key(
        "brokerClientAuthenticationPlugin", "", text(), since="pulsar", section=AUTHENTICATION,
        doc="How this proxy proves who it is to brokers: token, tls, basic, oauth2 or the class name of the "
        "Java client.",
        less="SASL, Athenz and classes of one's own, which are refused",
    )  # fmt: skip
    broker_client_authentication_parameters = Key(
        "brokerClientAuthenticationParameters", "", text(), since="pulsar", section=AUTHENTICATION, secret=True,
        doc="What that needs, as the Java client takes it: token:..., file:///path, or JSON.",
    )  # fmt: skip
