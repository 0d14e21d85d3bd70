"""Frames of a client that are larger than a connection at rest may hold: refused, or read under a direct permit.

Owns the direct permit of the frame under way, and the clock that ends a frame which comes drop by drop. A client has
one such frame at a time: after it nothing is read.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Final, Protocol

from limiter.errors import PermitAcquireError
from limiter.permit import Permit
from protocol import commands
from protocol.command_type import CommandType, request_id_field
from protocol.errors import ServerError
from protocol.frames import FrameHead
from protocol.framing import FrameDecoder
from protocol.states import ConnectionState, Verdict
from proxy.clients.services import ClientServices
from proxy.clients.session import Hold
from proxy.core.errors import DIRECT_REFUSAL, DisconnectCause
from proxy.core.tasks import TaskScope
from proxy.net.output import Output
from proxy.telemetry.refusals import Stage

# Larger frames of a client wait for a direct permit before their body is read.
UNBOOKED_FRAME_BYTES: Final = 4096
# While a large frame is handled it is there as received bytes, as a command and as the forwarded frame.
LARGE_FRAME_COPIES: Final = 3
LARGE_COMMANDS: Final = frozenset({CommandType.CONNECT, CommandType.GET_OR_CREATE_SCHEMA})
LARGE_COMMANDS_WITH_CREDENTIALS: Final = LARGE_COMMANDS | {CommandType.AUTH_RESPONSE}


class FrameSender(Protocol):
    """The client that sends a large frame (`proxy.clients.connection.ClientConnection`)."""

    output: Output
    name: str

    @property
    def charged(self) -> Hashable:
        """Return the key that is charged for the frame's memory."""

    def hold(self, reason: Hold) -> None:
        """Stop reading: there is no memory for the frame now."""

    def unhold(self, reason: Hold) -> None:
        """Resume reading: the frame has its memory, or is passed over."""

    def refuse(self, kind: int, request_id: int) -> None:
        """Answer a command that is not served."""

    def close(self, cause: DisconnectCause) -> None:
        """End the connection."""

    def abort(self, cause: DisconnectCause) -> None:
        """End the connection at once."""


class LargeFrames:
    """Decides about a client's large frames, one at a time; `permit` is that of the frame being handled."""

    __slots__ = ("_clock", "_decoder", "_scope", "_sender", "_services", "_state", "permit")

    def __init__(
        self,
        sender: FrameSender,
        services: ClientServices,
        decoder: FrameDecoder,
        state: ConnectionState,
        scope: TaskScope,
    ) -> None:
        self._sender = sender
        self._services = services
        self._decoder = decoder
        self._state = state
        self._scope = scope
        self.permit: Permit | None = None
        self._clock: asyncio.TimerHandle | None = None

    def detach_permit(self) -> Callable[[], None] | None:
        """Detach the permit; return the callable that releases it, for its new owner, or None without a permit."""
        permit, self.permit = self.permit, None
        return permit.release if permit is not None else None

    def arrived(self) -> None:
        """Stop the clock: the frame is whole."""
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def handled(self) -> None:
        """Release the memory of a frame that was handled, unless its permit was detached."""
        if self.permit is not None:
            self.permit.release()
            self.permit = None

    def close(self) -> None:
        """Release everything: the client is gone."""
        self.arrived()
        self.handled()

    @property
    def _served(self) -> frozenset[CommandType]:
        return LARGE_COMMANDS if self._services.authentication is None else LARGE_COMMANDS_WITH_CREDENTIALS

    def on_head(self, head: FrameHead) -> None:
        """Take memory for a frame before its body is read; without memory now, stop reading and wait in the queue."""
        kind = head.command_type
        verdict = Verdict.CLOSE if kind is None else self._state.judge(kind)
        if kind is None:
            self._sender.close(DisconnectCause.MALFORMED_FRAME)
        elif verdict is Verdict.CLOSE:
            self._sender.close(DisconnectCause(self._state.close_cause(kind)))
        elif verdict is not Verdict.SERVE:
            self._decoder.skip()
            self._sender.refuse(kind, _request_id(head))
        elif kind not in self._served:
            self._refuse_size(kind, head)
        else:
            self._reserve(head)

    def _refuse_size(self, kind: int, head: FrameHead) -> None:
        """Refuse a request that would hold direct memory while it waits for the memory of its own answer."""
        self._services.requests.counters.request_refused("too_large")
        self._decoder.skip()
        name = CommandType(kind).name
        message = f"command {name} has {head.frame_bytes} bytes, at most {UNBOOKED_FRAME_BYTES} are served"
        self._sender.output.send(commands.error(_request_id(head), ServerError.NotAllowedError, message))

    def _reserve(self, head: FrameHead) -> None:
        cost = head.frame_bytes * LARGE_FRAME_COPIES
        self.permit = self._services.direct.try_acquire(cost, key=self._sender.charged)
        if self.permit is None:
            self._sender.hold(Hold.LARGE_FRAME)
            self._scope.start(self._wait(head, cost))
        else:
            self._store()

    def _store(self) -> None:
        self._decoder.store()
        # A client that sends the frame drop by drop would keep the permit for as long as it likes.
        seconds = self._services.limits.frame_seconds
        self._clock = self._services.loop.call_later(seconds, self._sender.abort, DisconnectCause.READ_TIMEOUT)

    async def _wait(self, head: FrameHead, cost: int) -> None:
        direct = self._services.direct
        try:
            self.permit = await direct.acquire(cost, key=self._sender.charged)
        except PermitAcquireError as error:
            command = CommandType(head.command_type).name if head.command_type is not None else "?"
            self._services.requests.refusals.note(error, Stage.DIRECT, direct, self._sender.name, command)
            request_id = _request_id(head)
            if request_id == commands.REQUEST_ID_NONE:
                self._sender.close(DisconnectCause.MEMORY_LIMIT)
                return
            self._sender.output.send(commands.error(request_id, ServerError.TooManyRequests, DIRECT_REFUSAL))
            self._decoder.skip()
        else:
            self._store()
        self._sender.unhold(Hold.LARGE_FRAME)


def _request_id(head: FrameHead) -> int:
    """Return the request id in a large frame's head, if its command has one and it stands first."""
    kind = head.command_type
    if kind is None or head.request_id is None or request_id_field(kind) is None:
        return commands.REQUEST_ID_NONE
    return head.request_id
