"""The accept loop of a listening socket (`listening.py` opens those).

Clients are accepted in bounded numbers per turn of the event loop. When file descriptors run out, accepting pauses.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from protocol.proxy_header import HostPort
from proxy.net.listen.unix_sockets import client_name

ACCEPT_PAUSE_SECONDS: Final = 0.5
# asm-generic/socket.h and linux/socket.h, since Linux 5.14: which buffers were set, and so are not autotuned. Python's
# `socket` does not name them.
_SO_BUF_LOCK: Final = 72
_RECEIVE_LOCKED: Final = 2
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def receive_is_set(of: socket.socket) -> bool:
    """Return whether the receive buffer was set and so is not tuned; raises OSError where the kernel does not tell."""
    return bool(of.getsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK) & _RECEIVE_LOCKED)


def tune_receive_again(of: socket.socket) -> None:
    """Return the receive buffer's tuning to the kernel, as if nobody had set it; raises OSError where it cannot."""
    locks = of.getsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK)
    of.setsockopt(socket.SOL_SOCKET, _SO_BUF_LOCK, locks & ~_RECEIVE_LOCKED)


def restore_receive(of: socket.socket, kernels_choice: int) -> None:
    """Restore the kernel's own size, in bytes as the kernel told it, and its tuning; raises OSError if that fails."""
    # The kernel doubles what it is given.
    of.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, kernels_choice // 2)
    tune_receive_again(of)


class AcceptLoop:
    """Call `take` with each accepted, non-blocking socket and its address: at most `a_turn` per turn of the loop.

    `paused` is called at each pause, with the error of `accept`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        a_turn: int,
        take: Callable[[socket.socket, str], None],
        paused: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._a_turn = a_turn
        self._take = take
        self._paused = paused
        self._socket: socket.socket | None = None
        self._resume: asyncio.TimerHandle | None = None
        # The kernel's own receive buffer, while another one is set; 0 if none is.
        self._kernels_choice = 0

    def adopt(self, listening: socket.socket) -> None:
        """Accept clients from a socket that listens already; `close` closes it."""
        self._socket = listening
        self._loop.add_reader(listening.fileno(), self._accept_some)

    def accepts(self, listening: socket.socket) -> bool:
        """Return whether this is the loop of a socket."""
        return self._socket is listening

    def bound_received(self, size: int) -> None:
        """Bound the kernel's receive buffer of connections that come from now on; 0 leaves the kernel's choice again.

        Accepted sockets inherit it: set on a socket with a window it would drop segments (docs/adr/0041).
        """
        listening = self._socket
        if listening is None:
            return
        if size:
            self._kernels_choice = self._kernels_choice or listening.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        elif self._kernels_choice:
            with suppress(OSError):
                restore_receive(listening, self._kernels_choice)
            self._kernels_choice = 0

    @property
    def listening(self) -> bool:
        """Return whether there is a socket to accept from."""
        return self._socket is not None

    def close(self) -> None:
        """Stop accepting; a second call does nothing, and `adopt` may follow."""
        if self._resume is not None:
            self._resume.cancel()
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
            self._kernels_choice = 0

    def _accept_some(self) -> None:
        listening = self._socket
        assert listening is not None
        for _ in range(self._a_turn):
            try:
                accepted, address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._pause(error)
                    return
                # The client left before it was accepted.
                continue
            accepted.setblocking(False)
            # Clients of a Unix socket have no address: they are told apart by their users.
            named = isinstance(address, tuple)
            self._take(accepted, HostPort.of(*address[:2]).host if named else client_name(accepted))

    def _pause(self, error: OSError) -> None:
        """Stop accepting for a while: the socket stays readable, so a failing `accept` would run in a busy loop."""
        assert self._socket is not None
        self._paused(error)
        self._loop.remove_reader(self._socket.fileno())
        self._resume = self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._continue)

    def _continue(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket.fileno(), self._accept_some)
