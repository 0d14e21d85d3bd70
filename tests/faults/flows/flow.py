"""What a flow is: its keys, the server behind its own way, and the steps that a cell takes it through."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

from proxy.brokers.pool import Purpose
from tests.support.clients.async_client import AsyncClient
from tests.support.faults.proxy import FaultProxy

if TYPE_CHECKING:
    from tests.faults.scene import Scene

CLIENT_SIDE: Final = "client-proxy"
BROKER_SIDE: Final = "proxy-broker"
SIDES: Final = (CLIENT_SIDE, BROKER_SIDE)


class Outcome(StrEnum):
    """How a flow ended for its client."""

    ANSWERED = "answered"
    REFUSED = "refused"
    CLOSED = "closed"
    # The client cannot hear any more: the proxy's books say what became of the flow.
    UNHEARD = "unheard"


class Refused(Exception):
    """The answer is an error; the text is the proxy's."""


class Flow:
    """A stage's flow; one object serves one cell.

    `purpose` is the use of the pooled connection that a fault between proxy and broker strikes, `own` says that the
    flow has a server of its own behind `own_way`. On the sides of `fresh` the flow opens the connection that is struck.
    """

    purpose: ClassVar[Purpose | None] = None
    own: ClassVar[bool] = False
    tls: ClassVar[bool] = False
    authenticated: ClassVar[bool] = False
    fresh: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, side: str) -> None:
        self.side = side

    def keys(self, own_way: FaultProxy) -> dict[str, Any]:
        """Return the keys of the proxy that the flow needs."""
        return {}

    def port(self, at: "Scene") -> int:
        """Return the port of the proxy to which the flow's clients come."""
        return at.stage.proxy.port

    @asynccontextmanager
    async def server(self) -> AsyncIterator[int]:
        """Run the server behind `own_way`; port 0 stands for the embedded broker."""
        yield 0

    async def prepare(self, at: "Scene") -> None:
        """Do what comes before the stage."""

    async def ask(self, at: "Scene") -> None:
        """Do the stage; return if the answer is whole and right. Raises Refused, Closed or an OSError."""
        raise NotImplementedError

    async def more(self, at: "Scene") -> None:
        """See that nothing but the one answer came; the connection is open."""

    async def leave(self) -> None:
        """Close what the scene does not know of."""


class LookupFlow(Flow):
    """A flow of one client in lookup mode."""

    client: AsyncClient

    async def prepare(self, at: "Scene") -> None:
        self.client = await at.connected()

    async def more(self, at: "Scene") -> None:
        await self.client.ping()
