"""The rows of /v1/connections: a client connection in the handshake, in lookup mode, or relayed.

Rule: principals are shown as in the log (`authenticationRoleLoggingAnonymizer`), never otherwise. The cost of a row
does not depend on its client.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from proxy.clients.connection import ClientConnection
from proxy.clients.sessions import Session, Sessions
from proxy.core.registry import Entry
from proxy.relay.engine import Direction, Relay
from proxy.web.admin.paging import SLICE_ROWS, Row

if TYPE_CHECKING:
    from proxy.net.tls.arrivals import Arrival

Names = Callable[[object], str]
LONGEST_NAME: Final = 200
# Ids fetched at once: the registry skips all lower ids, one by one, to find the first of them.
WINDOW_ROWS: Final = 1000


def connection_row(entry: Entry[Session], sessions: Sessions, now: float, names: Names) -> Row:
    """Return the row of one client among `sessions` at `now`, a time of the loop."""
    session = entry.member
    if (relay := sessions.relay_of(session)) is not None:
        shown = _relay(relay, names)
    elif isinstance(session, ClientConnection):
        shown = _client(session, names)
    else:
        shown = {**_nothing_yet(cast("Arrival", session).name), "state": "tls_handshake"}
    return {"id": entry.id, **shown, "age_seconds": round(now - entry.since, 3)}


def _nothing_yet(name: str) -> dict[str, Any]:
    return {
        "client": name, "principal": None, "mode": "handshake", "broker": None, "from_client_bytes": 0,
        "to_client_bytes": 0, "unsent_bytes": 0, "held_bytes": 0, "requests": 0,
        "idle_seconds": None, "spliced_bytes": 0,
    }  # fmt: skip


def _client(client: ClientConnection, names: Names) -> dict[str, Any]:
    holds = client.holds
    return {
        "client": client.name,
        "principal": _principal(client.principal, names),
        "mode": "lookup" if client.in_lookup_mode else "handshake",
        "broker": None,
        "from_client_bytes": client.received_bytes,
        "to_client_bytes": client.output.sent_bytes,
        "unsent_bytes": client.output.unsent_bytes,
        "held_bytes": client.held_bytes,
        "requests": client.outstanding,
        "idle_seconds": None,
        "spliced_bytes": 0,
        "state": "held: " + ", ".join(holds) if holds else "busy" if client.busy else "idle",
    }


def _relay(relay: Relay, names: Names) -> dict[str, Any]:
    shown = relay.snapshot()
    return {
        "client": relay.client_name,
        "principal": _principal(relay.principal, names),
        "mode": "relay",
        "broker": relay.broker_name,
        "from_client_bytes": shown.moved[Direction.TO_BROKER],
        "to_client_bytes": shown.moved[Direction.TO_CLIENT],
        "unsent_bytes": sum(shown.unsent),
        "held_bytes": shown.permit_bytes,
        "requests": 0,
        "idle_seconds": shown.idle_seconds,
        "spliced_bytes": shown.spliced_bytes,
        "state": shown.state,
    }


def _principal(principal: object, names: Names) -> str | None:
    return None if principal is None else names(principal)[:LONGEST_NAME]


class ConnectionsPage:
    """A page of /v1/connections, made in slices; `next` is set once all rows have been yielded."""

    def __init__(
        self, sessions: Sessions, now: Callable[[], float], names: Names, wanted: Mapping[str, Any], limit: int
    ) -> None:
        self._sessions = sessions
        self._registry = sessions.registry
        self._now = now
        self._names = names
        self._wanted = {name: wanted[name] for name in ("mode", "principal") if name in wanted}
        self._limit = limit
        self.next: int | None = None

    def steps(self, after: int) -> Iterator[Sequence[Row]]:
        """Yield slices of rows: open connections with an id above `after` that match the filters."""
        found = 0
        for ids in self._slices(after):
            now, rows = self._now(), []
            for number in ids:
                entry = self._registry.find(number)
                row = None if entry is None else connection_row(entry, self._sessions, now, self._names)
                if row is None or any(row[name] != value for name, value in self._wanted.items()):
                    continue
                rows.append(row)
                found += 1
                if found == self._limit:
                    self.next = number if self._registry.ids(number, 1) else None
                    yield rows
                    return
            yield rows

    def _slices(self, after: int) -> Iterator[Sequence[int]]:
        """Yield slices of ids above `after`, but none accepted meanwhile: new clients could delay the end forever."""
        last = self._registry.last_id
        while after < last and (ids := self._registry.ids(after, WINDOW_ROWS)):
            for start in range(0, len(ids), SLICE_ROWS):
                yield [number for number in ids[start : start + SLICE_ROWS] if number <= last]
            after = ids[-1]

    def tail(self) -> Row:
        return {"next": self.next}
