"""Keys of client authentication and of the proxy's own credentials for brokers."""

from proxy.config.keys.key import Key, boolean, choice, text, whole, words
from proxy.config.keys.units import DAY_SECONDS, HOUR_MILLIS, MILLIS, SECONDS


class AuthenticationKeys:
    """Keys of client authentication and of the proxy's own credentials for brokers."""

    section = "Authentication"

    authentication_enabled = Key(
        "authenticationEnabled", False, boolean(), since="pulsar",
        doc="Require clients to authenticate.",
    )  # fmt: skip
    authentication_providers = Key(
        "authenticationProviders", (), words(), since="pulsar",
        doc="Authentication methods that clients may use: class names of the Java proxy, or token, tls, basic, "
        "openid.",
        less="SASL, Athenz and custom classes, which are refused",
    )  # fmt: skip
    authentication_refresh_check_seconds = Key(
        "authenticationRefreshCheckSeconds", 60, whole(1, DAY_SECONDS),
        since="pulsar", unit=SECONDS,
        doc="Time between checks for expired credentials; so long a client in lookup mode has to renew them.",
        better="relays whose credentials have expired are closed, too, unless they are forwarded; the Java proxy 4.0.8 "
        "leaves them open",
        less="0, by which the Java proxy never checks, and which is refused",
    )  # fmt: skip
    anonymous_user_role = Key(
        "anonymousUserRole", "", text(), since="pulsar",
        doc="Role of clients that present no credentials. Empty: such clients are refused.",
        better="clients of a method without a provider are refused, not anonymous "
        "(`anonymousUserRoleForUnknownMethods`)",
    )  # fmt: skip
    anonymous_user_role_for_unknown_methods = Key(
        "anonymousUserRoleForUnknownMethods", False, boolean(),
        doc="Give anonymousUserRole also to clients that name a method without a provider in authenticationProviders, "
        "as the Java proxy does. Otherwise they are refused: a misspelt method would never be noticed.",
    )  # fmt: skip
    authentication_role_logging_anonymizer = Key(
        "authenticationRoleLoggingAnonymizer", "none", choice("none", "redacted", "hash:sha256", "hash:md5"),
        since="pulsar",
        doc="Form of roles in log lines.",
    )  # fmt: skip
    authorization_enabled = Key(
        "authorizationEnabled", False, boolean(), since="pulsar",
        doc="Show /proxy-stats and /config only to superUserRoles; brokers authorize everything else.",
    )  # fmt: skip
    super_user_roles = Key(
        "superUserRoles", (), words(), since="pulsar",
        doc="Roles that may see /proxy-stats and /config.",
    )  # fmt: skip
    forward_authorization_credentials = Key(
        "forwardAuthorizationCredentials", True, boolean(), since="pulsar",
        doc="Forward the credentials of clients to brokers, which authenticate the clients again "
        "(authenticateOriginalAuthData there, on by default since Pulsar 5.0). In force with authenticationEnabled. By "
        "default tokens are forwarded, passwords only if you set this key to true; a certificate cannot be. Over HTTP "
        "the Authorization header of a client always goes on.",
        better="passwords are forwarded only if the key is set; what is forwarded goes to known brokers only, as the "
        "proxy's own credentials (`brokerProxyCredentialsToAnyTarget`)",
    )  # fmt: skip
    max_concurrent_authentications = Key(
        "maxConcurrentAuthentications", 2, whole(1, 100_000), unit="passwords",
        doc="Passwords that are checked at once, each by a thread, 64 at most. Other clients wait within "
        "handshakeTimeoutMillis, in turns by address and by user. Tokens, certificates and passwords that were proven "
        "before need no turn, nor do clients that wait for an issuer.",
    )  # fmt: skip
    token_secret_key = Key(
        "tokenSecretKey", "", text(), since="pulsar", secret=True,
        doc="Secret key of tokens (HS256, HS384, HS512): file:///path, data:;base64,..., or base64 text.",
    )  # fmt: skip
    token_public_key = Key(
        "tokenPublicKey", "", text(), since="pulsar",
        doc="Public key of tokens (RS, PS, ES): file:///path, data:;base64,..., DER or PEM.",
    )  # fmt: skip
    token_public_alg = Key(
        "tokenPublicAlg", "rs256",
        choice("rs256", "rs384", "rs512", "ps256", "ps384", "ps512", "es256", "es384", "es512"),
        since="pulsar",
        doc="Algorithm of tokenPublicKey.",
    )  # fmt: skip
    token_auth_claim = Key(
        "tokenAuthClaim", "sub", text(), since="pulsar",
        doc="Claim of a token that contains the role.",
    )  # fmt: skip
    token_audience_claim = Key(
        "tokenAudienceClaim", "", text(), since="pulsar",
        doc="Claim of a token that contains its audience; requires tokenAudience.",
    )  # fmt: skip
    token_audience = Key(
        "tokenAudience", "", text(), since="pulsar",
        doc="Audience that a token must have in tokenAudienceClaim, which is required.",
        better="refused without tokenAudienceClaim; the Java proxy then ignores it and accepts tokens for any audience",
    )  # fmt: skip
    token_allowed_clock_skew_seconds = Key(
        "tokenAllowedClockSkewSeconds", 0, whole(0, DAY_SECONDS),
        since="pulsar", unit=SECONDS,
        doc="Tolerated difference between clocks in checks of expiry.",
    )  # fmt: skip
    basic_auth_conf = Key(
        "basicAuthConf", "", text(), since="pulsar", secret=True,
        doc="Users and password hashes in the format of htpasswd: a path, file:///path or data:;base64,...",
    )  # fmt: skip
    open_id_allowed_token_issuers = Key(
        "openIDAllowedTokenIssuers", (), words(), since="pulsar",
        doc="OpenID Connect issuers whose tokens are accepted.",
    )  # fmt: skip
    open_id_allowed_audiences = Key(
        "openIDAllowedAudiences", (), words(), since="pulsar",
        doc="Audiences, at least one of which a token must have.",
    )  # fmt: skip
    open_id_token_issuer_trust_certs_file_path = Key(
        "openIDTokenIssuerTrustCertsFilePath", "", text(), since="pulsar",
        doc="PEM file with the authorities that may issue certificates of issuers. Empty: the system's authorities.",
    )  # fmt: skip
    open_id_role_claim = Key(
        "openIDRoleClaim", "sub", text(), since="pulsar",
        doc="Claim of a token that contains the role.",
    )  # fmt: skip
    open_id_accepted_time_leeway_seconds = Key(
        "openIDAcceptedTimeLeewaySeconds", 0, whole(0, DAY_SECONDS),
        since="pulsar", unit=SECONDS,
        doc="Tolerated difference between clocks in checks of expiry.",
    )  # fmt: skip
    open_id_cache_size = Key(
        "openIDCacheSize", 5, whole(1, 1000), since="pulsar",
        doc="Number of issuers whose keys are cached.",
    )  # fmt: skip
    open_id_cache_refresh_after_write_seconds = Key(
        "openIDCacheRefreshAfterWriteSeconds", 64_800, whole(1, 365 * DAY_SECONDS),
        since="pulsar", unit=SECONDS,
        doc="Age at which cached keys are refreshed in the background.",
    )  # fmt: skip
    open_id_cache_expiration_seconds = Key(
        "openIDCacheExpirationSeconds", 86_400, whole(1, 365 * DAY_SECONDS),
        since="pulsar", unit=SECONDS,
        doc="Age at which cached keys are no longer used.",
    )  # fmt: skip
    open_id_http_connection_timeout_millis = Key(
        "openIDHttpConnectionTimeoutMillis", 10_000, whole(1, HOUR_MILLIS),
        since="pulsar", unit=MILLIS,
        doc="Time limit for opening a connection to an issuer.",
    )  # fmt: skip
    open_id_http_read_timeout_millis = Key(
        "openIDHttpReadTimeoutMillis", 10_000, whole(1, HOUR_MILLIS),
        since="pulsar", unit=MILLIS,
        doc="Time limit for an issuer's answer.",
    )  # fmt: skip
    open_id_key_id_cache_miss_refresh_seconds = Key(
        "openIDKeyIdCacheMissRefreshSeconds", 300, whole(1, DAY_SECONDS),
        since="pulsar", unit=SECONDS,
        doc="Time in which unknown key ids cause five fetches in the long run. Made-up ids keep a new key out for a "
        "fifth of it at most.",
    )  # fmt: skip
    open_id_require_issuers_use_https = Key(
        "openIDRequireIssuersUseHttps", True, boolean(), since="pulsar",
        doc="Refuse issuers without https.",
    )  # fmt: skip
    open_id_fallback_discovery_mode = Key(
        "openIDFallbackDiscoveryMode", "disabled", choice("disabled"), since="pulsar",
        less="other modes, which are refused",
        doc="Discovery of keys if that of the issuer fails; only DISABLED is supported.",
    )  # fmt: skip
    broker_client_authentication_plugin = Key(
        "brokerClientAuthenticationPlugin", "", text(), since="pulsar",
        doc="Authentication of this proxy to brokers: token, tls, basic, oauth2 or the class name of the Java client.",
        better="secret credentials go to known brokers only; brokerProxyCredentialsToAnyTarget=true sends them to "
        "every target, as the Java proxy does",
        less="SASL, Athenz and custom classes, which are refused",
    )  # fmt: skip
    broker_client_authentication_parameters = Key(
        "brokerClientAuthenticationParameters", "", text(), since="pulsar", secret=True,
        doc="Parameters of that plugin, in the format of the Java client: token:..., file:///path, or JSON; for "
        "tokens also env:NAME.",
        better="`env:NAME` is a token in a variable of the environment; the Java client takes the text for the token",
    )  # fmt: skip
