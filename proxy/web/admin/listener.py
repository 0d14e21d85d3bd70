"""Accept admin clients on the control socket and at `adminApiAddress`: few at once, each for a bounded time.

Rule: a connection carries one request. A connection holds a slot from its accept to its end. The request must arrive
within `REQUEST_SECONDS`, and the client must read the answer within `ANSWER_SECONDS`. Where no slot is free, a
connection without a complete request ends for a newcomer (`slots.py`), or the newcomer gets a 503 and is closed. The
HTTP libraries are imported in a thread when the first client comes, so that a proxy without admin clients pays nothing
for them.
"""

import importlib
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxy.config.config import Config
from proxy.config.core import Core
from proxy.config.keys.key import split_address
from proxy.core.counters import ACCEPT_PAUSES
from proxy.core.log import Logger
from proxy.core.tasks import TaskScope
from proxy.core.threads import in_thread
from proxy.net.listen.accept_loop import AcceptLoop
from proxy.net.listen.listening import ListeningSockets, PortPurpose, port_of
from proxy.web.admin.access import AdminAccess, peer_of, read_token
from proxy.web.admin.control_socket import BACKLOG, ControlSocket
from proxy.web.admin.slots import AdminSlot, AdminSlots

if TYPE_CHECKING:
    from proxy.web.admin.server import AdminServer

# For each of the two listeners, control socket and `adminApiAddress`.
MOST_CONNECTIONS: Final = 8
# Most memory of an admin client, also of a client that does not read: 10,000 references to waiters, a slice of rows and
# its JSON, the unsent bytes of its transport, the kernel's buffers, and the request. A test measures the sum.
ADMIN_CLIENT_BYTES: Final = 1280 * 1024
# The kernel doubles these sizes.
SEND_BUFFER_BYTES: Final = 64 * 1024
RECEIVE_BUFFER_BYTES: Final = 16 * 1024
ACCEPTS_A_TURN: Final = 16
IMPORT_SECONDS: Final = 30.0
SHUTDOWN_SECONDS: Final = 1.0
_MODULES: Final = ("proxy.web.admin.server", "proxy.web.admin.views", "proxy.web.admin.actions")
_FULL: Final = b'{"reason": "%d admin clients are connected already, which is the limit"}' % MOST_CONNECTIONS
FULL_ANSWER: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"Retry-After: 1\r\nConnection: close\r\n\r\n%s" % (len(_FULL), _FULL)
)


class AdminListener:
    """Accepts admin clients until closed; `make` returns the server of all, when the first comes."""

    def __init__(self, core: Core, listening: ListeningSockets, make: "Callable[[AdminAccess], AdminServer]") -> None:
        self._loop, self._counters = core.loop, core.counters
        self._listening = listening
        self._access = AdminAccess(core.config.admin_api_token_file_path)
        self._make = make
        self._scope = TaskScope(self._report)
        # Each listener has slots of its own: clients without the token must not keep the operator off the socket.
        self._local_slots: AdminSlots = AdminSlots(MOST_CONNECTIONS)
        self._slots: AdminSlots = AdminSlots(MOST_CONNECTIONS)
        self._accepting: list[AcceptLoop] = []
        self._control: ControlSocket | None = None
        self._server: AdminServer | None = None

    def __len__(self) -> int:
        return len(self._local_slots) + len(self._slots)

    def open(self, config: Config, log: Logger) -> int:
        """Accept at `adminApiAddress` if there is one; return its port, else 0.

        Raises OSError if the port cannot be bound, or the token cannot be read.
        """
        if not config.admin_api_address:
            return 0
        read_token(config.admin_api_token_file_path)
        host, port, _ = split_address(config.admin_api_address)
        opened = self.listen(host, port)
        log.info("listening for admin", host=host, admin_port=opened)
        return opened

    def accept_at(self, control: ControlSocket) -> None:
        """Accept on the control socket, and close it with this listener."""
        self._control = control
        self._loop_of().adopt(control.listening)

    def listen(self, host: str, port: int) -> int:
        """Accept on an address and return its port; raises OSError that names the key."""
        (opened,) = self._listening.listen((host,), port, PortPurpose("adminApiAddress"), BACKLOG)
        self._loop_of().adopt(opened)
        return port_of(opened)

    def step_aside(self) -> Path | None:
        """Leave address and path to the process that has taken over; return the path of the control socket from now on.

        Clients of this process find it there until it ends.
        """
        control = self._control
        for accepting in self._accepting:
            if control is None or not accepting.accepts(control.listening):
                accepting.close()
        with suppress(OSError):
            return None if control is None else control.move_aside()
        # The directory lets nobody rename: the process that takes over goes without a control socket.
        return None

    def close(self) -> None:
        """Stop accepting, cut all connections, and remove the control socket; a second call does nothing."""
        for accepting in self._accepting:
            accepting.close()
        self._scope.cancel()
        for slot in self._local_slots.held + self._slots.held:
            slot.end()
        if self._control is not None:
            self._control.close()

    async def closed(self) -> None:
        """Wait until everything that `close` cut has ended."""
        await self._scope.emptied()
        if self._server is not None:
            await self._server.shutdown(SHUTDOWN_SECONDS)

    def _loop_of(self) -> AcceptLoop:
        self._accepting.append(AcceptLoop(self._loop, ACCEPTS_A_TURN, self._take, self._paused))
        return self._accepting[-1]

    def _take(self, accepted: socket.socket, _: str) -> None:
        peer = peer_of(accepted)
        slots = self._local_slots if peer.local else self._slots
        if slots.full and not self._end(slots.victim_for(peer.host, self._loop.time())):
            # The answer fits into the kernel's buffer, so that a client that does not read costs no memory here.
            with suppress(OSError):
                accepted.send(FULL_ANSWER)
            accepted.close()
            return
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        slot = AdminSlot(self._loop, slots, peer)
        slots.take(slot)
        slot.cut = self._scope.start(self._serve(accepted, slot), partial(self._close_unserved, accepted, slot))

    def _end(self, slot: AdminSlot | None) -> bool:
        """End a connection whose slot is free from now on; return False for None."""
        if slot is None:
            return False
        slot.slots.free(slot)
        slot.end()
        return True

    async def _serve(self, accepted: socket.socket, slot: AdminSlot) -> None:
        if self._server is None:
            await in_thread(lambda: [importlib.import_module(name) for name in _MODULES], "admin", IMPORT_SECONDS)
            if self._server is None:
                self._server = self._make(self._access)
        server = self._server
        try:
            await self._loop.connect_accepted_socket(lambda: server.connection(slot), accepted)
        except OSError:
            # The client has left already; `_close_unserved` closes its socket.
            pass
        except BaseException:
            # uvloop then closes a transport of which nobody hears the end any more.
            slot.served = False
            raise

    def _close_unserved(self, accepted: socket.socket, slot: AdminSlot) -> None:
        """Close a socket that no transport owns: its client has left, or was cut while libraries were imported."""
        if not slot.served:
            accepted.close()
            slot.disconnected()

    def _paused(self, _: OSError) -> None:
        self._counters[ACCEPT_PAUSES].value += 1

    def _report(self, error: BaseException) -> None:
        self._counters.internal_error(error, "admin")
