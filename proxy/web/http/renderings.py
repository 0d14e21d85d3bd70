"""Contents of the proxy's own pages, made once for all clients that ask at the same time, and kept for a short time.

Rules: a rendering goes on in slices of a few milliseconds, one rendering at a time: Pulsar traffic does not wait for
it. Clients that ask during a rendering share it, and for a second afterwards. A content does not
depend on the client, whose access is checked before, for each request. A change drops all contents.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Final

from proxy.core.tasks import TaskScope
from proxy.web.http.errors import HttpRefused

SLICE_SECONDS: Final = 0.002
KEEP_SECONDS: Final = 1.0
# Smaller contents would not get smaller by much.
LEAST_PACKED_BYTES: Final = 1024
# The fastest level: a third of the bytes for a fifth of the time of the default.
_LEVEL: Final = 1
_GZIP: Final = 31  # zlib's window bits for the gzip format


@dataclass(frozen=True, slots=True)
class Content:
    """The status of a page, and the pieces of its body; each piece is made within a few milliseconds."""

    status: int
    pieces: Iterable[bytes]


@dataclass(frozen=True, slots=True)
class Rendered:
    """The complete body of a page; `packed` is the same in gzip format, None if that saves nothing."""

    status: int
    body: bytes
    packed: bytes | None


Make = Callable[[], Awaitable[Content]]


class Renderings:
    """The shared contents of all pages of a proxy."""

    def __init__(self) -> None:
        # An exception of a rendering goes to its clients.
        self.scope = TaskScope(lambda _: None)
        self._turn = asyncio.Lock()
        self._shared: list[SharedRendering] = []

    def of(self, make: Make) -> "SharedRendering":
        """Return the shared content that `make` makes."""
        shared = SharedRendering(self, make)
        self._shared.append(shared)
        return shared

    def forget(self) -> None:
        """Drop all contents: a client that has changed something must see the change."""
        for shared in self._shared:
            shared.forget()

    async def render(self, make: Make) -> Rendered:
        """Make a content in slices."""
        content = await make()
        packer, packed = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP), list[bytes]()
        pieces = list[bytes]()
        async with self._turn:
            slice_ends = monotonic() + SLICE_SECONDS
            for piece in content.pieces:
                pieces.append(piece)
                packed.append(packer.compress(piece))
                if monotonic() >= slice_ends:
                    await asyncio.sleep(0)
                    slice_ends = monotonic() + SLICE_SECONDS
        body = b"".join(pieces)
        if len(body) < LEAST_PACKED_BYTES:
            return Rendered(content.status, body, None)
        packed.append(packer.flush())
        return Rendered(content.status, body, b"".join(packed))

    async def close(self) -> None:
        """End the renderings in progress; their clients get an error."""
        self.scope.cancel()
        self.forget()
        await self.scope.emptied()


class SharedRendering:
    """A content that is made for all clients together."""

    __slots__ = ("_all", "_kept", "_make", "_under_way")

    def __init__(self, renderings: Renderings, make: Make) -> None:
        self._all = renderings
        self._make = make
        self._kept: Rendered | None = None
        self._under_way: asyncio.Future[Rendered] | None = None

    async def get(self) -> Rendered:
        """Return the kept content, or that of the rendering in progress, or of a new one; raises its exception."""
        if self._kept is not None:
            return self._kept
        under_way = self._under_way
        if under_way is None:
            under_way = self._under_way = asyncio.get_running_loop().create_future()
            self._all.scope.start(self._render(under_way), partial(self._ended, under_way))
        # A client that leaves must not end the rendering for the others.
        return await asyncio.shield(under_way)

    def forget(self) -> None:
        """Drop the content; a rendering in progress is for the clients that wait for it already."""
        self._kept = self._under_way = None

    async def _render(self, result: "asyncio.Future[Rendered]") -> None:
        try:
            rendered = await self._all.render(self._make)
        except Exception as error:
            result.set_exception(error)
            # All clients may have left: the exception is not one that nobody has looked at.
            result.exception()
            return
        result.set_result(rendered)
        if self._under_way is result and KEEP_SECONDS > 0:
            self._kept = rendered
            asyncio.get_running_loop().call_later(KEEP_SECONDS, self._drop, rendered)

    def _ended(self, result: "asyncio.Future[Rendered]") -> None:
        if self._under_way is result:
            self._under_way = None
        if not result.done():
            result.set_exception(HttpRefused(503, "the proxy is stopping", "stopping"))
            result.exception()

    def _drop(self, rendered: Rendered) -> None:
        if self._kept is rendered:
            self._kept = None


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether a client takes the gzip format, by its header Accept-Encoding (RFC 9110, 12.5.3)."""
    for item in accept_encoding.lower().split(","):
        coding, _, weight = item.partition(";")
        if coding.strip() in ("gzip", "x-gzip"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
