"""Detect that a peer hung up while reading from it is paused.

A paused transport reports neither FIN nor RST on asyncio or uvloop. Without this watcher a client that left would keep
its queued permits until a time-out. A single epoll set asks for `EPOLLRDHUP` only, never for data, and the event loop
watches the descriptor of the set. The watcher also has the sockets that are left when a connection has ended.
"""

import asyncio
import select
from collections.abc import Callable
from typing import Final

from proxy.core.counters import Counters
from proxy.net.ended_sockets import EndedSockets

_GONE: Final = select.EPOLLHUP | select.EPOLLERR
_EVENTS_A_TURN: Final = 1024


class HangupWatcher:
    """Call back once when the peer of a watched socket has sent FIN (`gone=False`) or the connection is dead (True)."""

    __slots__ = ("_callbacks", "_epoll", "_loop", "ended")

    def __init__(self, loop: asyncio.AbstractEventLoop, counters: Counters | None = None) -> None:
        self._loop = loop
        self.ended = EndedSockets(loop, counters or Counters())
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[bool], None]] = {}
        loop.add_reader(self._epoll.fileno(), self._dispatch)

    def __len__(self) -> int:
        return len(self._callbacks)

    def watch(self, fd: int, callback: Callable[[bool], None], *, half_close: bool = True) -> None:
        """Watch `fd` until the callback or `unwatch`; without `half_close` a FIN alone does not call back."""
        # The kernel reports EPOLLHUP and EPOLLERR whether asked for or not.
        events = select.EPOLLRDHUP if half_close else 0
        if fd in self._callbacks:
            # The entry may be of a socket that was closed unnoticed, and the kernel knows nothing of the new one then.
            self._forget(fd)
        self._epoll.register(fd, events)
        self._callbacks[fd] = callback

    def unwatch(self, fd: int, callback: Callable[[bool], None]) -> None:
        """Stop watching `fd` for this callback; nothing happens if it is not watched, or for another one.

        The socket may have been closed unnoticed, and its number may be that of a newcomer, who must go on to hear.
        """
        # Equal, not identical: each look at a method makes another object.
        if self._callbacks.get(fd) == callback:
            del self._callbacks[fd]
            self._forget(fd)

    def close(self) -> None:
        """Close the epoll set; a second call does nothing."""
        if self._epoll.closed:
            return
        self.ended.close()
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        self._callbacks.clear()

    def _dispatch(self) -> None:
        found = [(fd, self._callbacks.get(fd), events) for fd, events in self._epoll.poll(0, _EVENTS_A_TURN)]
        for fd, callback, events in found:
            # An earlier callback of this turn may have closed this socket, and a new socket may have its number.
            if callback is not None and self._callbacks.get(fd) is callback:
                self.unwatch(fd, callback)
                callback(bool(events & _GONE))

    def _forget(self, fd: int) -> None:
        try:
            self._epoll.unregister(fd)
        except OSError:
            # The socket is closed already: the kernel has dropped it from the set.
            return
