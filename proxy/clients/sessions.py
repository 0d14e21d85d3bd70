"""All client connections: their number, their time limits, and their end at shutdown.

A single timer serves all connections. Each second it checks the handshakes in the order of their arrival, and a share
of the connections for keep-alive and credentials: a few in each iteration of the event loop.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias, cast

from protocol.errors import ServerError
from proxy.clients.accepting import Accepting
from proxy.clients.clock import ExpiryQueue, Wheel
from proxy.clients.connection_log import HANDSHAKE, LOOKUP, RELAY, ConnectionLog, Ended
from proxy.clients.newcomers import Newcomers
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.addresses import IPV6_HOST_NETWORK_BITS, host_network
from proxy.core.counters import gauge, upstream
from proxy.core.errors import DisconnectCause
from proxy.core.key_members import KeySizes
from proxy.core.log import LinePace
from proxy.core.public_causes import CONNECTIONS_TEXT, PAUSED_TEXT
from proxy.core.registry import Registry
from proxy.relay.engine import Relay

if TYPE_CHECKING:
    from proxy.clients.connection import ClientConnection
    from proxy.net.tls.arrivals import Arrival

Session: TypeAlias = "ClientConnection | Relay | Arrival"
# Random variation of the maximum age, so that clients that came together do not come back together.
AGE_JITTER: Final = 0.1
# A client that is still busy this long after its maximum age is closed anyway.
AGE_GRACE_SECONDS: Final = 10.0
# Connections that are looked at in one iteration of the loop: some 40 us for each that has to be closed.
LOOKS_A_TURN: Final = 50
# Without a read time-out a look only brings a relay's counters up to date: as often as with the default one.
LOOKS_WITHOUT_TIMEOUT_SECONDS: Final = 18
# A drain closes clients that ask again and again between two requests, after this time.
LINGER_SECONDS: Final = 1.0
_QUIET: Final = frozenset(
    {
        DisconnectCause.CLIENT_CLOSED,
        DisconnectCause.BROKER_CLOSED,
        DisconnectCause.SHUTDOWN,
        # Already logged, with the reason, by client_authentication.
        DisconnectCause.AUTHENTICATION_FAILED,
        DisconnectCause.CONNECTION_AGE,
        # Already logged, with the operator, by the admin API.
        DisconnectCause.ADMIN,
        # Already logged, with the unsent bytes, by the write watch.
        DisconnectCause.WRITE_STALLED,
        DisconnectCause.READS_TOO_SLOWLY,
        # Already logged, with the reason, by the TLS handshake.
        DisconnectCause.TLS_HANDSHAKE_FAILED,
        DisconnectCause.NOT_TLS,
    }
)
# No write watch logs the end of a relay.
_STALLED_RELAY: Final = "the peer acknowledged nothing for tcpUserTimeoutMillis"
ACTIVE: Final = upstream("active_connections", "Client connections open now.", "gauge")
ACCEPTED: Final = upstream("new_connections", "Client connections accepted.")
ACCEPTING_PAUSED: Final = gauge(
    "accepting_paused", "1: an operator has paused accepting, new clients are turned away; 0: they are taken."
)


class NoPlace(NamedTuple):
    """The error for a client that must not come in; `text` is for the log, `public` for the client."""

    error: ServerError
    text: str
    cause: DisconnectCause = DisconnectCause.CONNECTION_LIMIT
    public: str = CONNECTIONS_TEXT


_PAUSED: Final = NoPlace(
    ServerError.ServiceNotReady, "an operator has paused accepting (admin pause)", DisconnectCause.PAUSED, PAUSED_TEXT
)


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of the number of clients (0: no limit) and time limits in seconds (`max_age_seconds` 0: no limit)."""

    total: int
    per_address: int
    handshake_seconds: float
    keep_alive_seconds: int
    read_timeout_seconds: float
    credentials_seconds: int = 60
    max_age_seconds: float = 0
    ipv6_bits: int = IPV6_HOST_NETWORK_BITS

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the limits of a configuration."""
        return cls(
            total=config.max_concurrent_inbound_connections,
            per_address=config.max_concurrent_inbound_connections_per_ip,
            handshake_seconds=config.seconds(Config.handshake_timeout_millis),
            keep_alive_seconds=config.keep_alive_interval_seconds,
            read_timeout_seconds=config.seconds(Config.broker_proxy_read_timeout_ms),
            credentials_seconds=config.authentication_refresh_check_seconds,
            max_age_seconds=config.max_connection_age_seconds,
            ipv6_bits=config.inbound_connections_per_ip_network_bits,
        )


def _periods(limits: SessionLimits) -> tuple[int, int]:
    """Return the periods in seconds in which each client and each relay is checked."""
    seconds = limits.read_timeout_seconds
    looks = max(1, int(seconds / 4)) if seconds else LOOKS_WITHOUT_TIMEOUT_SECONDS
    return limits.keep_alive_seconds or 2 * looks, looks


class Sessions:
    """All client connections, from accept to end."""

    def __init__(self, core: Core, limits: SessionLimits, connection_log: ConnectionLog) -> None:
        self._loop = core.loop
        self._counters = core.counters
        self._log = core.log.of("clients")
        self._limits = limits
        self.registry: Registry[Session] = Registry()
        self._addresses: dict[Session, str] = {}
        self._per_network: KeySizes[str] = KeySizes()
        # Fixed: after a live change everybody who is connected would have to be counted anew.
        self._ipv6_bits = limits.ipv6_bits
        self._newcomers: Newcomers[ClientConnection | Arrival] = Newcomers()
        self._crowds = self._newcomers.crowds
        # Where relays come from and lead to.
        self.relay_origins = self._newcomers.relays
        self._handshaking: dict[ClientConnection | Arrival, float] = {}
        # Clients whose CONNECT is accepted and that have no relay yet, for the connection log.
        self._joining: set[ClientConnection] = set()
        client_period, relay_period = _periods(limits)
        # Clients in lookup mode.
        self._clients: Wheel[ClientConnection] = Wheel(client_period)
        # A session is a relay because `became_relay` brought it, whatever engine made the relay.
        self._relays: Wheel[Relay] = Wheel(relay_period)
        self._watched: Wheel[Session] = Wheel(limits.credentials_seconds)
        self._looks: dict[Session, Callable[[], None]] = {}
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._pace = LinePace()
        self._expiring: ExpiryQueue[Session] = ExpiryQueue()
        self._aged: dict[Session, float] = {}
        # The books' entry of each client that has given its place to another, until its end is told.
        self._giving_way: dict[Session, Ended] = {}
        # Whether an operator has paused accepting.
        self.accepting = Accepting(core.loop, self._log)
        core.counters.show(ACCEPTING_PAUSED, lambda: float(self.accepting.paused))
        core.counters.show(ACTIVE, lambda: len(self._addresses))
        self._connection_log = connection_log
        # Another process accepts at the same address: clients that were accepted here are served here, so far.
        self.handed_over = False

    def __len__(self) -> int:
        return len(self._addresses)

    def hand_over(self) -> None:
        """Leave newcomers to another process: a drain lets handshakes come to their end."""
        self.handed_over = True

    @property
    def relays(self) -> int:
        """Number of relayed clients."""
        return len(self._relays)

    def all_relays(self) -> Iterator[Relay]:
        """Yield the connections of relayed clients."""
        return iter(self._relays)

    def relay_of(self, session: Session) -> Relay | None:
        """Return the session as a relay; None if it is none."""
        return cast("Relay", session) if session in self._relays else None

    def apply(self, limits: SessionLimits) -> None:
        """Change the limits, also for connected clients; clients above a lower limit are not closed."""
        self._limits = limits
        client_period, relay_period = _periods(limits)
        self._clients = self._clients.resized(client_period)
        self._relays = self._relays.resized(relay_period)
        for relay in self._relays:
            relay.traffic.read_timeout_seconds = limits.read_timeout_seconds
        for client in list(self._clients):
            self._look(client, client.limits_changed)

    @property
    def limits(self) -> SessionLimits:
        """The limits in force."""
        return self._limits

    @property
    def handshake_seconds(self) -> float:
        """The time that a client has until its CONNECT."""
        return self._limits.handshake_seconds

    def refusal(self, address: str | None, arriving: int = 0) -> NoPlace | None:
        """Return why a client must be refused, or None; `arriving` counts accepted clients that are not added yet.

        `address` is None before the PROXY header. Clients come again after ServiceNotReady: a place may be free then.
        After NotAllowedError, which the Java proxy sends in both cases, they give up.
        """
        if self.accepting.paused:
            return _PAUSED
        limits = self._limits
        most = limits.per_address
        if most and address is not None and self._per_network[self._network(address)] >= most:
            return NoPlace(
                ServerError.NotAllowedError,
                f"reached the maximum number of connections of one address ({most},"
                " maxConcurrentInboundConnectionsPerIp)",
            )
        if limits.total and len(self._addresses) + arriving >= limits.total:
            text = f"reached the maximum number of connections ({limits.total}, maxConcurrentInboundConnections)"
            return NoPlace(ServerError.ServiceNotReady, text)
        return None

    def admission(self, address: str) -> NoPlace | None:
        """Return why a client must be refused, or None: then there is a place, if need be that of a client whose
        address has far more (`newcomers.py`).
        """
        refusal = self.refusal(address)
        # During a pause, and above a limit that was lowered, nobody is ended.
        may_end = refusal is not None and refusal.error == ServerError.ServiceNotReady and refusal is not _PAUSED
        if not may_end or len(self) > self._limits.total:
            return refusal
        victim = self._newcomers.victim(address, self._loop.time(), self._limits.total)
        if victim is None:
            return refusal
        # The end of a relay may be told later, after other newcomers have come: its place is free at once.
        self._giving_way[victim] = self._take_out(victim) or Ended("?", 0, 0.0, LOOKUP)
        self._abort(victim, DisconnectCause.CONNECTION_LIMIT)
        return None

    @property
    def may_make_room(self) -> bool:
        """Return whether a client whose address is not known yet may find a place although there is none."""
        return self._newcomers.may_come and not self.accepting.paused

    def add(self, session: "ClientConnection | Arrival", since: float) -> None:
        """Add a client accepted at `since` and start the time limit of its handshake, PROXY header and TLS included."""
        self._counters[ACCEPTED].value += 1
        self.registry.add(session, since)
        self._add(session, session.client_address)
        self._crowds.add(session, session.client_address, since)
        self._handshaking[session] = since
        if self._limits.max_age_seconds:
            jitter = AGE_JITTER * random.uniform(-1, 1)
            self._expiring.add(session, since + self._limits.max_age_seconds * (1 + jitter))

    @property
    def logs_connections(self) -> bool:
        """Return whether connections have lines in the connection log."""
        return self._connection_log.active

    # --- reports of connections -------------------------------------------------------------------

    def credentials_came(self, session: "ClientConnection") -> None:
        """Take note that the client is not silent: it waits for the check of its credentials."""
        self._crowds.checked(session, self._loop.time())

    def handshake_done(self, session: "ClientConnection") -> None:
        """Stop the time limit of the handshake."""
        now, in_time = self._loop.time(), self._handshaking.pop(session, None) is not None
        if in_time and session.in_lookup_mode:
            self._clients.add(session)
        self._crowds.connected(session, now)
        if self.logs_connections and (entry := self.registry.entry_of(session)) is not None:
            mode = LOOKUP if session.in_lookup_mode else RELAY
            if mode is RELAY:
                self._joining.add(session)
            self._connection_log.connected(entry.id, session, mode, now)

    def became_client(self, arrival: "Arrival", client: "ClientConnection") -> None:
        """Replace an arrival by its client; the time limit of the handshake continues."""
        accepted = self._handshaking.pop(arrival)
        address = self._addresses.pop(arrival)
        self._uncount(address)
        self._crowds.remove(arrival)
        self._expiring.replace(arrival, client)
        self.registry.replace(arrival, client)
        if arrival in self._aged:
            self._aged[client] = self._aged.pop(arrival)
        self._add(client, address)
        self._crowds.add(client, address, accepted)
        self._handshaking[client] = accepted

    def ended(self, session: "ClientConnection | Arrival", cause: DisconnectCause) -> None:
        """Remove a client that is gone."""
        self._remove(session, cause, session.name, session.detail)

    def became_relay(self, session: "ClientConnection", relay: Relay, is_known: Callable[[], bool]) -> None:
        """Replace a client connection by its relay; `is_known` tells whether a known broker is at its other end."""
        self._handshaking.pop(session, None)
        self._joining.discard(session)
        address = self._addresses.pop(session)
        self._uncount(address)
        self._crowds.remove(session)
        self._newcomers.relays.add(relay, host_network(address), is_known, self._loop.time())
        self._expiring.replace(session, relay)
        self.registry.replace(session, relay)
        if session in self._aged:
            self._aged[relay] = self._aged.pop(session)
        self._add(relay, address)
        self._relays.add(relay)

    def watch_credentials(self, session: Session, look: Callable[[], None]) -> None:
        """Call `look` once in `authenticationRefreshCheckSeconds` for as long as the connection lasts."""
        if session in self._addresses:
            self._looks[session] = look
            self._watched.add(session)

    def relay_ended(self, relay: Relay, cause: DisconnectCause) -> None:
        """Remove a relayed client that is gone."""
        detail = _STALLED_RELAY if cause is DisconnectCause.WRITE_STALLED else relay.detail
        self._remove(relay, cause, detail=detail)

    # --- time limits ------------------------------------------------------------------------------

    async def tick(self, now: float) -> None:
        """Check time limits, keep-alive and credentials at the time `now`, a few connections in an iteration of the
        loop; called once a second.
        """
        await _a_few_a_turn(self._looks_of_a_second(now))

    def _looks_of_a_second(self, now: float) -> Iterator[Callable[[], None]]:
        """Yield a look at each connection whose turn has come, and that is still there when it is yielded."""
        for late in list(self._overdue(now)):
            if late in self._handshaking:
                yield partial(self._abort, late, DisconnectCause.HANDSHAKE_TIMEOUT)
        looked_at: list[ClientConnection | Relay] = list(self._relays.turn())
        if self._limits.keep_alive_seconds or self._limits.read_timeout_seconds:
            looked_at[:0] = self._clients.turn()
        for each in looked_at:
            if each in self._addresses:
                yield partial(self._look, each, partial(each.tick, now))
        for session in self._watched.turn():
            if session in self._looks:
                yield partial(self._look, session, self._looks[session])
        for session in self._expiring.pop_due(now):
            self._aged[session] = now + AGE_GRACE_SECONDS
        for session, deadline in list(self._aged.items()):
            if session in self._aged:
                yield partial(self._look, session, partial(session.retire, now >= deadline))

    def _overdue(self, now: float) -> "Iterator[ClientConnection | Arrival]":
        # Look at all: the order is not by time, since a client is added again after its TLS handshake.
        since = now - self._limits.handshake_seconds
        return (session for session, accepted in self._handshaking.items() if accepted <= since)

    # --- exceptions of one connection -------------------------------------------------------------

    def _look(self, session: Session, look: Callable[[], None]) -> None:
        """Look at a connection; an exception of its own ends that connection only, and neither the clock nor others."""
        try:
            look()
        except Exception as error:
            self._counters.internal_error(error, "session")
            self._abort(session, DisconnectCause.INTERNAL_ERROR)

    def _abort(self, session: Session, cause: DisconnectCause) -> None:
        """End a connection at once; one whose own code cannot end it is at least forgotten here."""
        try:
            session.abort(cause)
        except Exception as error:
            self._counters.internal_error(error, "session")
            self._remove(session, cause)

    # --- shutdown ---------------------------------------------------------------------------------

    async def drain(self, seconds: float) -> None:
        """Close idle clients at once, busy clients when they are done, and all others after `seconds`."""
        deadline = self._loop.time() + seconds
        lingers_until = self._loop.time() + min(LINGER_SECONDS, seconds / 2)
        try:
            async with asyncio.timeout_at(deadline):
                while self._addresses or self._giving_way:
                    lingers = self._loop.time() < lingers_until
                    looks = (partial(self._close_if_idle, session, lingers) for session in list(self._addresses))
                    await _a_few_a_turn(looks)
                    await self._changed()
        except TimeoutError:
            self._log.warning("closing connections that are still busy", connections=len(self._addresses))
        ended = set[Session]()
        # A client that became a relay meanwhile is another session than before.
        while left := [session for session in self._addresses if session not in ended]:
            ended.update(left)
            there = (session for session in left if session in self._addresses)
            await _a_few_a_turn(partial(self._abort, session, DisconnectCause.SHUTDOWN) for session in there)

    def _close_if_idle(self, session: Session, lingers: bool) -> None:
        # A drain waits for relays: a relayed client may always be in the middle of a frame.
        if session in self._relays or (self.handed_over and session in self._handshaking):
            return
        client = cast("ClientConnection | Arrival", session)
        if session in self._addresses and not client.busy and not (lingers and self._asks_on(session)):
            self._look(session, partial(session.close, DisconnectCause.SHUTDOWN))

    def _asks_on(self, session: Session) -> bool:
        """Return whether a client has asked since the last look, or a request of it waits to be read.

        A request that is still on its way is lost in any case: no close can tell the client before it sends.
        """
        client = cast("ClientConnection", session)
        if session in self._handshaking or not client.in_lookup_mode:
            return False
        return not client.idle_since_asked() or client.unread_bytes() > 0

    async def _changed(self) -> None:
        try:
            async with asyncio.timeout(DRAIN_LOOK_SECONDS):
                await self._emptied.wait()
        except TimeoutError:
            return

    # --- adding and removing ----------------------------------------------------------------------

    def _add(self, session: Session, address: str) -> None:
        self._addresses[session] = address
        self._per_network.grow(self._network(address))
        self._crowds.arrived(address)
        self._emptied.clear()

    def _remove(self, session: Session, cause: DisconnectCause, client: str = "", detail: str = "") -> None:
        """Take the session out of all books, and count and log its end; once."""
        ended = self._giving_way.pop(session, None) or self._take_out(session)
        if ended is None:
            return
        self._counters.disconnected(cause)
        self.log_end(cause, client or ended.address, detail)
        if self.logs_connections:
            try:
                self._connection_log.ended(session, ended, cause, self._loop.time())
            except Exception as error:
                self._counters.internal_error(error, "connection log")
        if not self._addresses and not self._giving_way:
            self._emptied.set()

    def _take_out(self, session: Session) -> Ended | None:
        """Take a session of any kind out of all books, and return what they had of it; None if it is in none."""
        address = self._addresses.pop(session, None)
        if address is None:
            return None
        client, relay = cast("ClientConnection", session), cast("Relay", session)
        mode = RELAY if session in self._relays else LOOKUP
        if session in self._handshaking or session in self._joining:
            mode = HANDSHAKE
        self._joining.discard(client)
        self._handshaking.pop(client, None)
        self._clients.remove(client)
        self._crowds.remove(client)
        self._newcomers.relays.remove(relay)
        self._relays.remove(relay)
        self._expiring.remove(session)
        entry = self.registry.remove(session)
        self._aged.pop(session, None)
        self._unwatch(session)
        self._uncount(address)
        number, since = (0, 0.0) if entry is None else (entry.id, entry.since)
        return Ended(address, number, since, mode)

    def _uncount(self, address: str) -> None:
        self._crowds.left(address)
        self._per_network.shrink(self._network(address))

    def _network(self, address: str) -> str:
        return host_network(address, self._ipv6_bits)

    def _unwatch(self, session: Session) -> None:
        if self._looks.pop(session, None) is not None:
            self._watched.remove(session)

    def log_end(self, cause: DisconnectCause, client: str, detail: str) -> None:
        """Log the end of a connection: of a cause a line a second."""
        if cause in _QUIET and not detail:
            self._log.debug("client disconnected", client=client, cause=str(cause))
        elif not self._pace.due(self._loop.time(), cause):
            return
        elif cause is DisconnectCause.MEMORY_LIMIT:
            change = "maxTopicListInFlightDirectMemSizeMB"
            self._log.warning("client closed for not reading", cause=str(cause), change=change, client=client)
        elif detail:
            self._log.info("client disconnected", client=client, cause=str(cause), detail=detail)
        else:
            self._log.info("client disconnected", client=client, cause=str(cause))


DRAIN_LOOK_SECONDS: Final = 0.05


async def _a_few_a_turn(looks: Iterable[Callable[[], None]]) -> None:
    for number, look in enumerate(looks, 1):
        look()
        if not number % LOOKS_A_TURN:
            await asyncio.sleep(0)
