"""Why credentials are refused, and which setting of authentication is at fault.

Rule: no text here holds any part of a credential or a key. `Reason` is the label that is counted: a fixed set, named as
the error codes of upstream's providers, so that alerts on `pulsar_authentication_failures_total` keep working.
"""

from enum import StrEnum

from proxy.auth.identity import AuthenticationFailed
from proxy.core.errors import ProxyError


class Reason(StrEnum):
    """Label `reason` of `pulsar_authentication_failures_total`."""

    INVALID_AUTH_DATA = "INVALID_AUTH_DATA"
    INVALID_TOKEN = "INVALID_TOKEN"
    INVALID_AUDIENCES = "INVALID_AUDIENCES"
    EMPTY_AUTH_DATA = "EMPTY_AUTH_DATA"
    INVALID_CERTS = "INVALID_CERTS"
    INVALID_CN = "INVALID_CN"
    UNSUPPORTED_ISSUER = "UNSUPPORTED_ISSUER"
    UNSUPPORTED_ALGORITHM = "UNSUPPORTED_ALGORITHM"
    ALGORITHM_MISMATCH = "ALGORITHM_MISMATCH"
    ERROR_RETRIEVING_PROVIDER_METADATA = "ERROR_RETRIEVING_PROVIDER_METADATA"
    ERROR_RETRIEVING_PUBLIC_KEY = "ERROR_RETRIEVING_PUBLIC_KEY"
    ERROR_DECODING_JWT = "ERROR_DECODING_JWT"
    ERROR_VERIFYING_JWT_SIGNATURE = "ERROR_VERIFYING_JWT_SIGNATURE"
    INVALID_JWT_CLAIM = "INVALID_JWT_CLAIM"
    EXPIRED_JWT = "EXPIRED_JWT"
    # Ours: upstream has no name for these.
    BUSY = "BUSY"
    NO_PROVIDER = "NO_PROVIDER"


class CredentialsRefused(AuthenticationFailed):
    """Credentials that a provider looked at and did not believe; `expired` ones were good once."""

    def __init__(self, reason: Reason, message: str, *, expired: bool = False) -> None:
        super().__init__(message, busy=reason is Reason.BUSY)
        self.reason = reason
        self.expired = expired


class SettingFault(ProxyError):
    """A key of the configuration that authentication cannot work with; `key` names it, `problem` says why."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem
