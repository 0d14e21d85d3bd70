"""Encoded topic lists on their way to clients: one body for any number of clients, under one direct permit.

A list for one client leaves slab by slab, and its permit shrinks with it. A list for many lies in pages that the
kernel sends from: what waits in a thousand send buffers are references to them, not copies. Only the few bytes with
the request id differ. All are written by the pump, past the transports.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from limiter.permit import Permit
from protocol.errors import ServerError
from protocol.slabs import SLAB_BYTES
from protocol.topic_list import TopicListAnswer
from proxy.core.errors import OverLimit, RequestFailed
from proxy.net.away import Pages
from proxy.net.pump import STEP_BYTES
from proxy.net.spill.body import Body, ListInMemory, SpillableBody
from proxy.net.spill.judge import LEAST_REST_BYTES
from proxy.requests.client import Client
from proxy.telemetry.events.timeline import Timeline

if TYPE_CHECKING:
    from proxy.net.spill.spill import ListSpill

# Below this size a copy in a send buffer is cheaper than pages and a descriptor.
PAGED_FROM_BYTES: Final = 64 * 1024
# Other work of the loop gets a turn after so much was copied: about 2 ms.
COPY_STEP_BYTES: Final = 4 * 1024 * 1024
# A prefix alone in a segment would cost as much as 64 KiB do, so the prefix goes with the first bytes of the body.
HEAD_BYTES: Final = 4096


class EncodedList:
    """A topic list ready for its clients; owns its direct permit."""

    __slots__ = ("_answer", "_close_body", "_permit", "body")

    def __init__(self, answer: TopicListAnswer, permit: Permit, body: ListInMemory | SpillableBody) -> None:
        self._answer = answer
        self._permit = permit
        self.body: Body = body
        self._close_body = body.close

    @property
    def size(self) -> int:
        """Return the number of bytes of the list."""
        return self.body.size

    def prefix(self, request_id: int) -> bytes:
        """Return the bytes before the body in the answer to `request_id`."""
        return self._answer.prefix(request_id)

    def on_moved(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the list has moved to disk, where it holds no direct memory."""
        if isinstance(self.body, SpillableBody):
            self.body.listen(listener)

    def forget(self, listener: Callable[[], None]) -> None:
        """Stop calling `listener`."""
        if isinstance(self.body, SpillableBody):
            self.body.forget(listener)

    def close(self) -> None:
        """Release the body and its permit: the last client has gone."""
        self._close_body()
        self._permit.release()


async def encode(
    answer: TopicListAnswer,
    clients: int,
    permit: Permit,
    timeline: Timeline | None = None,
    spill: "ListSpill | None" = None,
    *,
    behind_disk: bool = False,
) -> EncodedList:
    """Return the list encoded for that many clients; the encoded list owns `permit` from then on.

    With a `spill` the list may move to disk, and its permit ends then: soon if an earlier list of each client is there.
    """
    memory = await _encoded(answer, clients, permit, timeline)
    if spill is None or memory.size < LEAST_REST_BYTES:
        return EncodedList(answer, permit, memory)
    return EncodedList(answer, permit, spill.watch(memory, permit, shared=clients > 1, behind_disk=behind_disk))


async def _encoded(answer: TopicListAnswer, clients: int, permit: Permit, timeline: Timeline | None) -> ListInMemory:
    body: ListInMemory
    if clients == 1:
        body = LeavingBody(answer, partial(_shrink, permit, timeline))
    elif answer.size < PAGED_FROM_BYTES:
        body = SlabListBody(answer)
    else:
        body = await _paged(answer)
    return body


async def _paged(answer: TopicListAnswer) -> ListInMemory:
    try:
        pages = PagedBody()
    except OSError:
        # The process has no file descriptor left. Send the slabs instead, with a copy in every send buffer.
        return SlabListBody(answer)
    in_this_step = 0
    try:
        for piece in answer.consume():
            pages.append(piece)
            in_this_step += len(piece)
            if in_this_step >= COPY_STEP_BYTES:
                in_this_step = 0
                await asyncio.sleep(0)
    except BaseException:
        pages.close()
        raise
    return pages


class LeavingBody:
    """The slabs of a list for one client: each slab is released when it has left; `on_left` is called with its size."""

    __slots__ = ("_give", "_on_left", "_piece", "_slabs", "_start", "size")

    def __init__(self, answer: TopicListAnswer, on_left: Callable[[int], None]) -> None:
        self.size = answer.size
        self._slabs = deque(answer.hand_over())
        self._give = answer.give
        self._piece = memoryview(self._slabs[0]) if self._slabs else _EMPTY
        self._start = 0
        self._on_left = on_left

    def write(self, fd: int, prefix: memoryview, position: int) -> int:
        """Write from the slab that `position` is in."""
        rest = self._piece[max(0, position - self._start) :]
        taken = os.writev(fd, (prefix, rest)) if prefix else os.write(fd, rest)
        if taken == len(prefix) + len(rest) and rest:
            self._next_slab()
        return taken

    def read(self, position: int, count: int) -> memoryview:
        """Return bytes of the slab that `position` is in; the slabs before it are released."""
        if position == self._start + len(self._piece) and self._piece:
            self._next_slab()
        return self._piece[position - self._start :][:count]

    def copy(self, position: int, buffer: memoryview) -> int:
        """Copy bytes from `position`, which no reader has passed, into `buffer`; return how many."""
        first, start = divmod(position - self._start, SLAB_BYTES)
        copied = 0
        for slab in islice(self._slabs, first, None):
            piece = memoryview(slab)[start : start + len(buffer) - copied]
            buffer[copied : copied + len(piece)] = piece
            copied += len(piece)
            start = 0
            if copied == len(buffer):
                break
        return copied

    def close(self) -> None:
        """Release all slabs: the list is over, or on disk."""
        self._piece = _EMPTY
        while self._slabs:
            self._give(self._slabs.popleft())

    def _next_slab(self) -> None:
        slab, self._piece = self._slabs.popleft(), _EMPTY
        self._on_left(len(slab))
        self._start += len(slab)
        self._give(slab)
        self._piece = memoryview(self._slabs[0]) if self._slabs else _EMPTY


class SlabListBody:
    """The slabs of a list for many clients, each of which gets a copy."""

    __slots__ = ("_slabs", "size")

    def __init__(self, answer: TopicListAnswer) -> None:
        self.size = answer.size
        self._slabs = [memoryview(slab) for slab in answer.hand_over()]

    def write(self, fd: int, prefix: memoryview, position: int) -> int:
        """Write from the slab that `position` is in."""
        number, start = divmod(max(0, position), SLAB_BYTES)
        rest = self._slabs[number][start:] if self._slabs else _EMPTY
        return os.writev(fd, (prefix, rest)) if prefix else os.write(fd, rest)

    def read(self, position: int, count: int) -> memoryview:
        """Return bytes of the slab that `position` is in."""
        number, start = divmod(position, SLAB_BYTES)
        return self._slabs[number][start:][:count] if self._slabs else _EMPTY

    def copy(self, position: int, buffer: memoryview) -> int:
        """Copy bytes of the slab that `position` is in into `buffer`; return how many."""
        piece = self.read(position, len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        """Drop the slabs: the list is over, or on disk."""
        self._slabs = []


class PagedBody(Pages):
    """Bytes in an anonymous file: written once, then sent any number of times, never changed.

    The kernel may refer to pages that were sent after `close`, until the last reader has them. Raises OSError if there
    is no descriptor for the file.
    """

    __slots__ = ("size",)

    def __init__(self) -> None:
        super().__init__(os.memfd_create("topic-list", os.MFD_CLOEXEC))
        self.size = 0

    def append(self, piece: memoryview) -> None:
        """Copy `piece` to the end."""
        while len(piece):
            written = os.write(self.pages_fd, piece)
            self.size += written
            piece = piece[written:]

    def write(self, fd: int, prefix: memoryview, position: int) -> int:
        """Send up to 256 KiB from `position`, without a copy."""
        if prefix:
            head = os.pread(self.pages_fd, HEAD_BYTES, 0)
            return os.writev(fd, (prefix, head))
        return os.sendfile(fd, self.pages_fd, position, min(STEP_BYTES, self.size - position))

    def read(self, position: int, count: int) -> memoryview:
        """Copy bytes out of the file, to be encrypted and forgotten."""
        return memoryview(os.pread(self.pages_fd, count, position))

    def copy(self, position: int, buffer: memoryview) -> int:
        """Copy bytes from `position` into `buffer`; return how many."""
        return os.preadv(self.pages_fd, [buffer[: self.size - position]], position)


def _shrink(direct: Permit, timeline: Timeline | None, left: int) -> None:
    # A permit clamped to the limit counts for less than its list: the permit keeps its size until the rest is smaller.
    direct.requested -= left
    if direct.requested < direct.size:
        direct.try_update(direct.requested)
        if timeline is not None:
            timeline.direct_is(direct.size)


_EMPTY: Final = memoryview(b"")


def too_large_for(client: Client, topic_count: int, frame_bytes: int) -> RequestFailed:
    """Return the failure of a list whose frame is larger than the client accepts, with the ways out."""
    return OverLimit(
        ServerError.NotAllowedError,
        f"topic list of {topic_count} topics needs a frame of {frame_bytes} bytes, the client accepts"
        f" {client.max_frame_bytes}: ask with a topics pattern, or raise maxMessageSize on broker, proxy and client",
        stage="client_frame",
        key="maxMessageSize",
        asked=frame_bytes,
        limit=client.max_frame_bytes,
    )
