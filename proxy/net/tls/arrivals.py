"""Clients on the TLS port from accept to the end of their handshake: how many handshakes run at once, in which order.

Rule: a place is for work, not for silence, and no client is refused because many others came with it. Until a whole
ClientHello is in the kernel, a client costs a socket that is only peeked at and a small object; then it waits the same
way for a place, in turns by address, of IPv6 by site and in a site by network. A client that leaves its handshake half
done keeps its place and its session until another client needs the place (`places.py`). Bytes that the loop has not
read yet save a client from that, but not for long: else a client that drips would keep its place and those of the
clients behind it.
"""

import asyncio
import select
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from limiter.fair_line import Entry, FairLine
from limiter.sites import path_of
from protocol.proxy_header import ProxyHeader
from proxy.config.core import Core
from proxy.core.addresses import host_network
from proxy.core.counters import gauge
from proxy.core.errors import DisconnectCause
from proxy.core.log import LinePace, Logger
from proxy.core.tasks import TaskScope, call_each
from proxy.net.sockets import unread_bytes
from proxy.net.tls.failures import HANDSHAKES, TlsFailed
from proxy.net.tls.hello import MOST_HELLO_BYTES, check_first_byte, hello_progress
from proxy.net.tls.places import Places
from proxy.net.tls.shared import TlsShared
from proxy.net.tls.transport import TlsTransport

if TYPE_CHECKING:
    from proxy.core.native import TlsConfig

# Handshakes whose first step, the costly one, waits for its turn of the loop budget. The steps of handshakes that have
# begun wait for no more than these, so a storm of new clients ends no handshake.
FIRST_STEPS_AT_ONCE: Final = 8
# Addresses that are looked at in a row for a client that may have a place at once.
KEYS_AT_ONCE: Final = 64
# Holders of places that are looked at in a row for one that is silent, the time until they are looked at again, and the
# looks in a row that a client may be found sending: the loop reads between two looks, so an honest client is done.
HOLDERS_AT_ONCE: Final = 8
AGAIN_SECONDS: Final = 0.01
MOST_LOOKS: Final = 50
# So many clients are heard in an iteration of the loop whatever else it does, and further ones while its time lasts.
# Each may cost a peek at 33 KiB.
EVENTS_AT_ONCE: Final = 16
# By edges: bytes that were peeked at stay in the kernel, and only further bytes are news.
_NEWS: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_GONE: Final = select.EPOLLHUP | select.EPOLLERR
IN_FLIGHT: Final = gauge("tls_handshakes_in_flight", "TLS handshakes with clients that run now.")
WAITING: Final = gauge("tls_handshakes_waiting", "Clients that have begun a TLS handshake and wait for their turn.")


class Arrival:
    """A client whose handshake is not done; one of the sessions in `proxy.clients.sessions`."""

    __slots__ = ("_arrivals", "client_address", "entry", "header", "looks", "name", "needed", "sock", "transport")

    # Nothing is read of the client, and nothing written to it.
    output: Final = None

    def __init__(
        self, arrivals: "Arrivals", sock: socket.socket, client_address: str, header: ProxyHeader | None
    ) -> None:
        self._arrivals = arrivals
        self.sock: socket.socket | None = sock
        self.client_address = client_address
        self.header = header
        self.name = client_address
        self.transport: TlsTransport | None = None
        # Where it waits for a place, from its whole ClientHello on.
        self.entry: Entry[Arrival] | None = None
        self.looks = 0
        # The bytes that must be in the kernel before another look at the ClientHello can tell more.
        self.needed = 0

    @property
    def detail(self) -> str:
        """Return nothing for the log: the cause of the end says all."""
        return ""

    @property
    def busy(self) -> bool:
        """Return False: a drain does not wait for a handshake, because no request is under way."""
        return False

    def idle_since_asked(self) -> bool:
        """Return False: the client is not in lookup mode."""
        return False

    def retire(self, now_or_never: bool) -> None:
        """Close a connection that has reached its maximum age."""
        self.close(DisconnectCause.CONNECTION_AGE)

    def close(self, cause: DisconnectCause) -> None:
        """Close the connection at once: nothing was written that could be sent first."""
        self._arrivals.end(self, cause)

    def abort(self, cause: DisconnectCause) -> None:
        """Close the connection at once."""
        self._arrivals.end(self, cause)


class Arrivals:
    """Do handshakes with at most `maxConcurrentTlsHandshakes` clients at once, in turns by address.

    `make_protocol` makes the client's endpoint after the handshake; `on_ended` is called with the cause when a
    connection has ended before that.
    """

    def __init__(
        self,
        core: Core,
        shared: TlsShared,
        current: Callable[[], "TlsConfig"],
        make_protocol: Callable[[Arrival], asyncio.BufferedProtocol],
        on_ended: Callable[[Arrival, DisconnectCause], None],
        log: Logger,
    ) -> None:
        self._loop = core.loop
        self._shared = shared
        self._current = current
        self._make_protocol = make_protocol
        self._on_ended = on_ended
        self._counters = core.counters
        self._log = log
        self._pace = LinePace()
        # By file descriptor: clients without a place, whether their ClientHello is whole or not.
        self._watched: dict[int, Arrival] = {}
        self._queue: FairLine[Entry[Arrival]] = FairLine()
        self._places: Places[Arrival] = Places(core.config.max_concurrent_tls_handshakes)
        self._first_steps: set[Arrival] = set()
        self._peeked = bytearray(MOST_HELLO_BYTES)
        self._counted = (0, 0)
        self._fill_planned = False
        # No holder of a place is looked at before.
        self._again_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._scope = TaskScope(self._crashed)
        self._epoll = select.epoll()
        core.loop.add_reader(self._epoll.fileno(), self._dispatch)

    def __len__(self) -> int:
        return len(self._watched) + len(self._places)

    def take(self, sock: socket.socket, address: str, header: ProxyHeader | None) -> Arrival:
        """Watch a socket that was accepted; `header` is the PROXY header of a load balancer.

        The socket belongs to this object from the call on, unless the call raises OSError: the kernel has no memory or
        no place (`max_user_watches`) for it.
        """
        self._epoll.register(sock.fileno(), _NEWS)
        arrival = Arrival(self, sock, address, header)
        self._watched[sock.fileno()] = arrival
        return arrival

    def end(self, arrival: Arrival, cause: DisconnectCause) -> None:
        """Close the connection of an arrival; a second call does nothing."""
        if arrival.sock is None and arrival.transport is None:
            return
        timed_out = cause is DisconnectCause.HANDSHAKE_TIMEOUT
        if timed_out or cause is DisconnectCause.CONNECTION_RESET:
            self._counters[HANDSHAKES]["client", "timeout" if timed_out else "gone"] += 1
        self._abort(arrival, cause)

    def _abort(self, arrival: Arrival, cause: DisconnectCause) -> None:
        transport = arrival.transport
        self._leave(arrival)
        if transport is not None:
            transport.abort()
        self._on_ended(arrival, cause)

    async def close(self) -> None:
        """Cancel all handshakes and close the epoll set; a second call does nothing."""
        self._stop_timer()
        self._scope.cancel()
        await self._scope.emptied()
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    # --- before a place ---------------------------------------------------------------------------

    def _dispatch(self) -> None:
        # By edges: an event that nobody heard does not come again, so none is taken that this iteration does not hear.
        # The kernel has them in the order in which they came: who has more to say stands behind those that wait.
        while True:
            last = self._shared.loop_budget.spent()
            events = self._epoll.poll(0, EVENTS_AT_ONCE)
            for fd, event in events:
                arrival = self._watched.get(fd)
                if arrival is not None:
                    self._heard_or_ended(arrival, event)
            if last or len(events) < EVENTS_AT_ONCE:
                break
        self._fill_places()

    def _heard_or_ended(self, arrival: Arrival, events: int) -> None:
        try:
            self._heard(arrival, events)
        except Exception as error:
            self._crashed(error)
            call_each((partial(self.end, arrival, DisconnectCause.INTERNAL_ERROR),), self._crashed)

    def _heard(self, arrival: Arrival, events: int) -> None:
        if events & _GONE:
            self.end(arrival, DisconnectCause.CONNECTION_RESET)
        elif arrival.entry is None:
            self._look(arrival)
        if events & select.EPOLLRDHUP and arrival.sock is not None:
            self._failed(arrival, _gone())

    def _crashed(self, error: BaseException) -> None:
        self._counters.internal_error(error, "tls")

    def _look(self, arrival: Arrival) -> None:
        """Append an arrival to the queue if its whole ClientHello has come."""
        assert arrival.sock is not None
        try:
            if arrival.needed and unread_bytes(arrival.sock.fileno()) < arrival.needed:
                return
            count = arrival.sock.recv_into(self._peeked, 0, socket.MSG_PEEK)
            if not count:
                raise _gone()
            check_first_byte(self._peeked[0])
            end, arrival.needed = hello_progress(bytes(memoryview(self._peeked)[:count]))
        except BlockingIOError:
            return
        except TlsFailed as failure:
            self._failed(arrival, failure)
        except OSError:
            self.end(arrival, DisconnectCause.CONNECTION_RESET)
        else:
            if end:
                arrival.entry = self._queue.push(path_of(host_network(arrival.client_address)), Entry(arrival))

    # --- places -----------------------------------------------------------------------------------

    def _fill_soon(self) -> None:
        """Call `_fill_places` soon: the caller is changing the books."""
        if not self._fill_planned:
            self._fill_planned = True
            self._loop.call_soon(self._fill_places)

    def _fill_places(self) -> None:
        self._fill_planned = False
        if self._epoll.closed:
            return
        while len(self._queue) and len(self._first_steps) < FIRST_STEPS_AT_ONCE and self._free_place():
            arrival = self._queue.pop().item
            self._unwatch(arrival)
            self._places.take(arrival, host_network(arrival.client_address), self._loop.time())
            self._first_steps.add(arrival)
            self._scope.start(self._shake(arrival))
        self._count()

    def _free_place(self) -> bool:
        """Return whether a place is free for the next client in the queue, after ending a handshake if needed.

        A key whose clients have to wait loses its turn to the next key.
        """
        if not self._places.full:
            return True
        now, earliest = self._loop.time(), float("inf")
        if now < self._again_at:
            # A timer may fire a little early, because its clock counts whole milliseconds.
            self._wake_at(self._again_at)
            return False
        holders, crowd = self._places.crowd(HOLDERS_AT_ONCE)
        first = None
        for _ in range(KEYS_AT_ONCE):
            head = self._queue.head()
            if head is None or head is first:
                break
            first = first or head
            newcomer = host_network(head.item.client_address)
            dues = [self._places.due(holder, crowd, newcomer, len(self._queue)) for holder in holders]
            if dues[0] <= now:
                due = [holder for holder, moment in zip(holders, dues, strict=True) if moment <= now]
                return self._displace_one(due, now)
            earliest = min(earliest, dues[0])
            self._queue.skip()
        self._wake_at(earliest)
        return False

    def _displace_one(self, holders: list[Arrival], now: float) -> bool:
        """End the handshake of the first client that does not go on with it; return False if all of them do."""
        for holder in holders:
            if is_silent(holder) or (holder.looks >= MOST_LOOKS and _waits(holder)):
                self._displace(holder)
                return True
        # The loop was busy, and reads the bytes meanwhile. Looking at once would spin while a client drips.
        for holder in holders:
            holder.looks += 1
        self._again_at = now + AGAIN_SECONDS
        self._wake_at(self._again_at)
        return False

    def _wake_at(self, moment: float) -> None:
        self._stop_timer()
        self._timer = self._loop.call_at(moment, self._fill_soon)

    def _displace(self, holder: Arrival) -> None:
        self._counters[HANDSHAKES]["client", "displaced"] += 1
        if self._pace.due(self._loop.time(), "displaced"):
            self._log.info(
                "half-done tls handshake closed, because others wait for its place",
                client=holder.name, connections=len(self._queue), change="maxConcurrentTlsHandshakes",
            )  # fmt: skip
        self._abort(holder, DisconnectCause.HANDSHAKE_TIMEOUT)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _count(self) -> None:
        in_flight, waiting = len(self._places), len(self._queue)
        # The numbers are those of all ports together.
        self._counters[IN_FLIGHT].value += in_flight - self._counted[0]
        self._counters[WAITING].value += waiting - self._counted[1]
        self._counted = in_flight, waiting

    def _unwatch(self, arrival: Arrival) -> None:
        if arrival.sock is not None and self._watched.pop(arrival.sock.fileno(), None) is not None:
            self._epoll.unregister(arrival.sock.fileno())

    def _leave(self, arrival: Arrival) -> None:
        """Remove an arrival that became a client, or whose connection has ended."""
        self._unwatch(arrival)
        if arrival.entry is not None:
            self._queue.remove(arrival.entry)
            arrival.entry = None
        self._first_steps.discard(arrival)
        self._places.leave(arrival)
        sock, arrival.sock = arrival.sock, None
        if sock is not None and arrival.transport is None:
            sock.close()
        arrival.transport = None
        self._count()
        self._fill_soon()

    # --- handshakes -------------------------------------------------------------------------------

    async def _shake(self, arrival: Arrival) -> None:
        sock = arrival.sock
        if sock is None:
            return
        transport = arrival.transport = TlsTransport(
            self._shared,
            self._current(),
            lambda: self._done(arrival),
            lambda failure: self._failed(arrival, failure),
            on_step=partial(self._stepped, arrival),
        )
        try:
            await self._loop.connect_accepted_socket(lambda: transport, sock)
        except OSError:
            # The client reset the connection while it waited.
            sock.close()
            self.end(arrival, DisconnectCause.CONNECTION_RESET)

    def _stepped(self, arrival: Arrival) -> None:
        """Called when a handshake waits for its client."""
        if arrival in self._first_steps:
            self._first_steps.discard(arrival)
            self._fill_soon()

    def _done(self, arrival: Arrival) -> asyncio.BufferedProtocol:
        self._counters[HANDSHAKES]["client", "done"] += 1
        protocol = self._make_protocol(arrival)
        self._leave(arrival)
        return protocol

    def _failed(self, arrival: Arrival, failure: TlsFailed) -> None:
        if arrival.sock is None:
            # `end` closed this connection, and has counted it.
            return
        self._counters[HANDSHAKES]["client", failure.reason] += 1
        if failure.__cause__ is not None:
            self._counters.internal_error(failure.__cause__, "tls")
        if self._pace.due(self._loop.time(), failure.reason):
            self._log.info("tls handshake failed", client=arrival.name, reason=failure.reason, detail=failure.detail)
        self._leave(arrival)
        self._on_ended(arrival, failure.cause)


def is_silent(holder: Arrival) -> bool:
    """Return whether a handshake waits for its client, of which no byte has come."""
    if not _waits(holder):
        return False
    assert holder.sock is not None
    try:
        return not holder.sock.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def _waits(holder: Arrival) -> bool:
    """Return whether a handshake waits for its client, and not for its turn here."""
    return holder.transport is not None and holder.transport.handshake_waits


def _gone() -> TlsFailed:
    return TlsFailed(DisconnectCause.TLS_HANDSHAKE_FAILED, "gone", "the client ended the connection in it")
