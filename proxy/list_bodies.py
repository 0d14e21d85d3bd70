"""Encoded topic lists on their way to clients: one body, whoever many it is for, under one direct permit.

A list for one client leaves slab by slab, and its permit shrinks with it. A list for many lies in pages that the
kernel sends from (`proxy.pump`); only the few bytes with the request id differ.
"""

import asyncio
from functools import partial
from typing import Final

from limiter.permit import Permit
from protocol.topic_list import TopicListAnswer
from proxy.list_groups import SharedAnswer
from proxy.pump import PagedBody, Pump
from proxy.requester import Requester

# Below this a copy in a send buffer is cheaper than pages and a descriptor.
PAGED_FROM_BYTES: Final = 64 * 1024
# The loop gets its turn after so much was copied: about 2 ms.
COPY_STEP_BYTES: Final = 4 * 1024 * 1024


async def encode(answer: TopicListAnswer, members: int, permit: Permit, pump: Pump) -> SharedAnswer:
    """Make the body for that many clients; it owns `permit` from then on."""
    if members == 1:
        return SoleList(answer, permit)
    if answer.size >= PAGED_FROM_BYTES:
        try:
            pages = PagedBody()
        except OSError:
            # No descriptor left: the slabs serve as well, a little slower.
            return SlabList(answer, permit)
        return await _paged(answer, permit, pump, pages)
    return SlabList(answer, permit)


async def _paged(answer: TopicListAnswer, permit: Permit, pump: Pump, pages: PagedBody) -> SharedAnswer:
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
    return PagedList(answer, permit, pump, pages)


class SoleList:
    """A list for one client: what has left is given back at once."""

    __slots__ = ("_answer", "_permit")

    def __init__(self, answer: TopicListAnswer, permit: Permit) -> None:
        self._answer = answer
        self._permit = permit

    async def write_to(self, client: Requester, request_id: int) -> None:
        """Write the list and forget it while it leaves."""
        answer = self._answer
        await client.output.send_body(answer.prefix(request_id), answer.consume(), partial(_shrink, self._permit))

    def close(self) -> None:
        """Give back what has not left."""
        self._permit.release()


class SlabList:
    """A small list for many, each gets the same bytes."""

    __slots__ = ("_answer", "_permit")

    def __init__(self, answer: TopicListAnswer, permit: Permit) -> None:
        self._answer = answer
        self._permit = permit

    async def write_to(self, client: Requester, request_id: int) -> None:
        """Write the list."""
        await client.output.send_body(self._answer.prefix(request_id), self._answer.slices())

    def close(self) -> None:
        """Give the memory back."""
        self._permit.release()


class PagedList:
    """A large list for many, sent by the kernel from pages that all share."""

    __slots__ = ("_answer", "_pages", "_permit", "_pump")

    def __init__(self, answer: TopicListAnswer, permit: Permit, pump: Pump, pages: PagedBody) -> None:
        self._answer = answer
        self._permit = permit
        self._pump = pump
        self._pages = pages

    async def write_to(self, client: Requester, request_id: int) -> None:
        """Write the list in the pump's turns."""
        await client.output.send_paged(self._answer.prefix(request_id), self._pages, self._pump)

    def close(self) -> None:
        """Give pages and memory back."""
        self._pages.close()
        self._permit.release()


def _shrink(direct: Permit, left: int) -> None:
    # A permit clamped to the limit counts for less than its list: it keeps what it has until the rest is smaller.
    direct.requested -= left
    if direct.requested < direct.size:
        direct.try_update(direct.requested)
