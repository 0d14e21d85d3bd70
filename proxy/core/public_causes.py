"""All that a client is told about a refusal before anybody knows who the client is: a table of fixed texts.

Rule: no text depends on the configuration, on an issuer, on a target, or on what any of them answered: a stranger
must not learn of the inside. The log has the details (`client failed to authenticate`, `client disconnected`).
Texts of a broker's own refusal are passed on as they are, as upstream does.
"""

from enum import StrEnum
from typing import Final

from proxy.core.errors import DisconnectCause


class PublicCause(StrEnum):
    """Why credentials are refused, for the client that presented them."""

    REQUIRED = "credentials are required"
    NOT_ACCEPTED = "credentials of this kind are not accepted"
    MALFORMED = "the credentials are malformed"
    TOO_LARGE = "the credentials are too large"
    REFUSED = "the credentials are refused"
    EXPIRED = "the credentials have expired"
    BUSY = "the credentials cannot be checked now, try again"
    ROLE_CHANGED = "the role must not change while a connection lasts"


# The limits and their keys are the operator's.
CONNECTIONS_TEXT: Final = "the proxy has too many connections, try again later"
PAUSED_TEXT: Final = "the proxy takes no new connections now, try again later"
PROXY_VERSION_TEXT: Final = "must not provide proxy_version"
# The same for all causes: else a client could scan ports and names with the answers.
TARGET_TEXT: Final = "the target broker is not available, look the topic up again"
_NO_CREDENTIALS_TEXT: Final = "the proxy has no credentials for brokers now, try again"

_TEXTS: Final = {
    DisconnectCause.TARGET_REFUSED: TARGET_TEXT,
    DisconnectCause.TARGET_UNKNOWN: TARGET_TEXT,
    DisconnectCause.BROKER_UNREACHABLE: TARGET_TEXT,
    DisconnectCause.BROKER_SILENT: TARGET_TEXT,
    DisconnectCause.BROKER_CLOSED: TARGET_TEXT,
    DisconnectCause.CONNECTION_RESET: TARGET_TEXT,
    DisconnectCause.MALFORMED_FRAME: TARGET_TEXT,
    DisconnectCause.FRAME_TOO_LARGE: TARGET_TEXT,
    DisconnectCause.NO_BROKER_CREDENTIALS: _NO_CREDENTIALS_TEXT,
}


def authentication_text(cause: PublicCause) -> str:
    """Return the text for a client whose credentials are refused."""
    return f"failed to authenticate: {cause}"


def target_text(cause: DisconnectCause, broker_says: str) -> str:
    """Return the text for a client that does not get its target; `broker_says` only if the broker refused it."""
    return broker_says if cause is DisconnectCause.BROKER_REFUSED else _TEXTS.get(cause, TARGET_TEXT)
