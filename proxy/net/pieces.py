"""Write a body piece by piece to an endpoint's transport, as its client takes them."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from proxy.net.transport import Endpoint

# A client that takes everything at once yields to others after this much: about 2 ms of writing.
STEP_BYTES: Final = 8 * 1024 * 1024


async def write_pieces(
    endpoint: Endpoint,
    prefix: bytes,
    pieces: Iterable[memoryview],
    on_handed: Callable[[int], None],
    on_left: Callable[[int], None],
) -> None:
    """Write `prefix` with the first piece, and each further piece when the last has left user space.

    `on_handed` is called before each write, `on_left` when a piece has left, both with the count of bytes.
    """
    first, in_this_step = prefix, 0
    for piece in pieces:
        on_handed(len(first) + len(piece))
        if first:
            endpoint.writelines((first, piece))
            first = b""
        else:
            endpoint.write(piece)
        await endpoint.drained()
        on_left(len(piece))
        in_this_step += len(piece)
        if in_this_step >= STEP_BYTES:
            # A client as fast as the proxy would keep the loop to itself for the length of a large list.
            in_this_step = 0
            await asyncio.sleep(0)
    if first:
        on_handed(len(first))
        endpoint.write(first)
        await endpoint.drained()
