"""What each cell must end with: how its client hears of the end, and for which causes connections end.

Rule: this is the promise, by sort of stage, side and fault. A cell that ends otherwise has failed, whatever the reason.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from proxy.core.errors import DisconnectCause as Cause
from tests.faults.flows.flow import BROKER_SIDE, CLIENT_SIDE, Outcome
from tests.faults.table import ENDLESS, GENTLE, Cell
from tests.support.faults.kinds import Kind

A, R, C, U = Outcome.ANSWERED, Outcome.REFUSED, Outcome.CLOSED, Outcome.UNHEARD
REQUESTS: Final = "requests of lookup mode"
SORTS: Final = {
    "handshake": "handshake",
    "lookup": REQUESTS,
    "partition metadata": REQUESTS,
    "schema": REQUESTS,
    "topic list alone": REQUESTS,
    "topic list in a group": REQUESTS,
    "relay": "relay",
    "watch": "relay",
    "TLS handshake": "TLS handshake",
    "relay over TLS": "relay over TLS",
    "authentication challenge": "authentication challenge",
    "HTTP request": "HTTP",
    "upload": "HTTP",
    "WebSocket": "WebSocket",
    "event topic": "event topic",
}
# The client leaves when it has its answer; a connection to a broker that nobody uses is closed after a minute.
ALWAYS: Final = frozenset({Cause.CLIENT_CLOSED, Cause.IDLE})


class Ending(NamedTuple):
    """The outcomes that a cell may have, the causes of which one at least is counted, and others that may be."""

    outcomes: frozenset[str]
    causes: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()

    def unlike(self, outcome: str, causes: Mapping[str, int]) -> str:
        """Say how a cell ended otherwise; empty if it did not."""
        counted = {cause for cause, count in causes.items() if count}
        if outcome not in self.outcomes:
            return f"expected {' or '.join(sorted(self.outcomes))}, got {outcome}"
        if self.causes and not self.causes & counted:
            return f"expected an end for {' or '.join(sorted(self.causes))}, got {sorted(counted)}"
        strange = counted - self.causes - self.others - ALWAYS
        return f"nothing may end for {sorted(strange)}" if strange else ""


def _ends(outcomes: tuple[str, ...], *causes: str, others: tuple[str, ...] = ()) -> Ending:
    return Ending(frozenset(outcomes), frozenset(causes), frozenset(others))


ANSWERED: Final = _ends((A,))
# A client whose connection is well until it is read no more cannot hear of the end; one that was reset has heard.
_DEAF: Final = {Kind.DROP: (U,), Kind.STOP: (U,), Kind.HALF_OPEN: (C,)}
_SILENT: Final = {
    "handshake": (Cause.HANDSHAKE_TIMEOUT, Cause.READ_TIMEOUT),
    REQUESTS: (Cause.KEEP_ALIVE_TIMEOUT, Cause.WRITE_STALLED, Cause.READS_TOO_SLOWLY),
    "relay": (Cause.READ_TIMEOUT, Cause.WRITE_STALLED),
    "TLS handshake": (Cause.HANDSHAKE_TIMEOUT, Cause.READ_TIMEOUT),
    "relay over TLS": (Cause.READ_TIMEOUT, Cause.WRITE_STALLED),
    "authentication challenge": (Cause.CREDENTIALS_NOT_RENEWED, Cause.KEEP_ALIVE_TIMEOUT),
    # An upload that stands still is refused.
    "HTTP": (Cause.IDLE, "http_slow_upload"),
    "WebSocket": (Cause.IDLE,),
}
_HTTP: Final = ("http_timeout", "http_slow_upload", "http_cut_answers", "http_broker", Cause.BROKER_CLOSED)
_LEFT: Final = (Cause.CLIENT_CLOSED, Cause.CONNECTION_RESET, Cause.TLS_HANDSHAKE_FAILED, Cause.TRUNCATED)
_LOST: Final = (Cause.BROKER_CLOSED, Cause.CONNECTION_RESET)
_DEAD: Final = (Cause.BROKER_SILENT, Cause.KEEP_ALIVE_TIMEOUT, Cause.CONNECTION_RESET)
_UNREACHED: Final = (Cause.BROKER_SILENT, Cause.BROKER_UNREACHABLE, Cause.BROKER_CLOSED)
_HANDSHAKES: Final = ("handshake", "TLS handshake", "authentication challenge")
_OVER_HTTP: Final = ("HTTP", "WebSocket")


def ending_of(cell: Cell) -> Ending:
    """Return how a cell must end."""
    sort = SORTS[cell.stage]
    if cell.kind in GENTLE:
        return ANSWERED
    if cell.side == CLIENT_SIDE:
        return _of_client(sort, cell.kind)
    assert cell.side == BROKER_SIDE
    return _of_broker(sort, cell.kind)


def _of_client(sort: str, kind: Kind) -> Ending:
    if kind in ENDLESS:
        return _ends(_DEAF[kind], *_SILENT[sort], others=_HTTP if sort in _OVER_HTTP else ())
    outcomes = (C,) if kind is Kind.RESET else (A, C)
    # A client that leaves between two requests over HTTP is nobody's fault, and the access log has the others.
    return _ends(outcomes, others=_HTTP) if sort == "HTTP" else _ends(outcomes, *_LEFT)


def _of_broker(sort: str, kind: Kind) -> Ending:
    if sort == "event topic":
        # What was not acknowledged is sent again over another connection.
        return ANSWERED
    if sort == REQUESTS:
        # Asked once more where the connection was lost; where it is silent, the request's clock may be over first.
        return _ends((A, R), others=_DEAD) if kind in ENDLESS else _ends((A,), *_LOST)
    if sort in _HANDSHAKES:
        return _ends((R,), *_UNREACHED)
    if sort == "relay":
        return _ends((C,), Cause.READ_TIMEOUT) if kind in ENDLESS else _ends((C,), *_LOST)
    if sort == "relay over TLS":
        # An end inside a frame is not taken for the end of the stream.
        return _ends((C,), Cause.READ_TIMEOUT) if kind in ENDLESS else _ends((C,), *_LOST, Cause.TRUNCATED)
    if sort == "WebSocket":
        return _ends((C,), Cause.IDLE) if kind in ENDLESS else _ends((C,), *_LOST)
    # A request that may be repeated is, where its connection was lost before the answer began.
    return _ends((R, C), *_HTTP) if kind in ENDLESS else _ends((A, R, C), others=_HTTP)
