"""Reasons why credentials are refused, and faults in the settings of authentication.

Rule: no text here holds any part of a credential or a key. `Reason` is a metric label with a fixed set of values, named
like the error codes of upstream's providers, so that alerts on `pulsar_authentication_failures_total` keep working.
"""

from enum import StrEnum
from typing import Final

from proxy.auth.identity import AuthenticationFailed
from proxy.core.errors import ProxyError
from proxy.core.public_causes import PublicCause


class Reason(StrEnum):
    """The label `reason` of `pulsar_authentication_failures_total`."""

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
    # Upstream has no names for these.
    BUSY = "BUSY"
    NO_PROVIDER = "NO_PROVIDER"


# The texts for clients; other reasons share a text, or strangers would learn of issuers, keys and roles.
_PUBLIC: Final = {
    Reason.EMPTY_AUTH_DATA: PublicCause.REQUIRED,
    Reason.INVALID_AUTH_DATA: PublicCause.MALFORMED,
    Reason.NO_PROVIDER: PublicCause.NOT_ACCEPTED,
}


class CredentialsRefused(AuthenticationFailed):
    """A provider refused the credentials; `expired` credentials were valid earlier."""

    def __init__(
        self, reason: Reason, message: str, *, expired: bool = False, public: PublicCause | None = None
    ) -> None:
        if public is None:
            public = PublicCause.EXPIRED if expired else _PUBLIC.get(reason, PublicCause.REFUSED)
        super().__init__(message, busy=reason is Reason.BUSY, public=public)
        self.reason = reason
        self.expired = expired


class SettingFault(ProxyError):
    """Authentication cannot use the value of the configuration key `key`, for the reason in `problem`."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem
