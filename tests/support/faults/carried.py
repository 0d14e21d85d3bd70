"""Own one connection that a fault proxy carries, and what a fault does to its bytes.

Rule: bytes are never changed, added or reordered. A fault begins at its byte, and holds until it is lifted.
"""

import asyncio
from contextlib import suppress
from typing import Final

from proxy.core.tasks import TaskScope
from tests.support.clients.async_client import AsyncClient
from tests.support.faults.kinds import End, Fault, Kind, Point

_PIECE_BYTES: Final = 64 * 1024
# A slow direction sends this often: a timer for each byte would be slower than the rate.
_STEP_SECONDS: Final = 0.05
_ENDLESS: Final = frozenset({Kind.STOP, Kind.DROP, Kind.HALF_OPEN})


class Carried:
    """A connection between two ends; `passed` counts the bytes that each end has sent through, `struck` is a fault."""

    def __init__(self, client: AsyncClient) -> None:
        self.ends = {End.CLIENT: client}
        self.passed = {End.CLIENT: 0, End.TARGET: 0}
        self.struck: Fault | None = None
        # Set when a fault has begun.
        self.begun = asyncio.Event()
        self._flows = asyncio.Event()
        self._flows.set()
        self._armed: tuple[Fault, Point, int] | None = None
        self._pumps = TaskScope(lambda error: None)
        self._streams = 2
        self._clean = False
        # Set when nothing is carried any more.
        self._over = asyncio.Event()

    # --- faults -----------------------------------------------------------------------------------

    def arm(self, fault: Fault, point: Point) -> None:
        """Have a fault begin at a point of what comes from now on."""
        self._armed = fault, point, self.passed[point.sender] + point.after_bytes

    def strike(self, fault: Fault) -> None:
        """Have a fault begin now."""
        self._armed, self.struck = None, fault
        self.begun.set()
        if fault.kind is Kind.RESET:
            self.cut()
        elif fault.kind in (Kind.STOP, Kind.HALF_OPEN):
            self._flows.clear()
            if fault.kind is Kind.HALF_OPEN:
                # The task of the connection resets the end: no RST goes out while a pump reads its socket.
                self._pumps.cancel()
        elif fault.kind is Kind.HALF_CLOSE:
            with suppress(OSError, KeyError):
                self.ends[fault.at.other].fin()

    def lift(self) -> None:
        """End a fault; a connection that has lost bytes or an end is cut."""
        ended = self.struck
        self._armed = self.struck = None
        if ended is not None and ended.kind in (Kind.DROP, Kind.HALF_OPEN, Kind.HALF_CLOSE):
            self.cut()
        self._flows.set()

    def cut(self) -> None:
        """Reset both ends."""
        self._over.set()
        self._pumps.cancel()

    # --- bytes ------------------------------------------------------------------------------------

    async def carry(self, target_port: int) -> None:
        """Pass bytes both ways until both ends have ended their streams, or one of them is lost."""
        try:
            await self._flows.wait()
            self.ends[End.TARGET] = await AsyncClient.open(target_port)
            self._pumps.start(self._pump(End.CLIENT), self._ended)
            self._pumps.start(self._pump(End.TARGET), self._ended)
            await self._pumps.emptied()
            if self.struck is not None and self.struck.kind is Kind.HALF_OPEN:
                self._reset(self.struck.at)
            await self._over.wait()
        except OSError:
            # Nobody listens at the target: the client gets the RST of the end.
            pass
        finally:
            self._pumps.cancel()
            await self._pumps.emptied()
            for end, peer in self.ends.items():
                if self._clean:
                    peer.close()
                else:
                    self._reset(end)

    def _ended(self) -> None:
        """Begin the end when both directions have ended."""
        self._streams -= 1
        if not self._streams and (self.struck is None or self.struck.kind not in _ENDLESS):
            # An RST would take what the kernel has not delivered yet.
            self._clean = not self._over.is_set()
            self._over.set()

    async def _pump(self, sender: End) -> None:
        loop, source = asyncio.get_running_loop(), self.ends[sender]
        try:
            while True:
                await self._flows.wait()
                piece = await loop.sock_recv(source.sock, _PIECE_BYTES)
                if not piece:
                    break
                await self._pass(sender, piece)
            await self._end_of_stream(sender)
        except OSError:
            # An end that was lost during these faults is nobody's news.
            if self.struck is None or self.struck.kind not in _ENDLESS:
                self.cut()

    async def _end_of_stream(self, sender: End) -> None:
        if self._swallows():
            # The end of the stream vanishes, too; what the other end sends goes on vanishing.
            return
        await self._flows.wait()
        if self.struck is None or self.struck.kind is not Kind.HALF_CLOSE or self.struck.at is not sender:
            self.ends[sender.other].fin()

    async def _pass(self, sender: End, piece: bytes) -> None:
        armed = self._armed
        if armed is not None and armed[1].sender is sender:
            fault, _, at_byte = armed
            room = at_byte - self.passed[sender]
            if len(piece) >= room:
                await self._send(sender, piece[:room])
                self.strike(fault)
                piece = piece[room:]
        # The fault may begin in the other direction while this piece waits for its end.
        await self._flows.wait()
        if piece:
            await self._send(sender, piece)

    async def _send(self, sender: End, piece: bytes) -> None:
        loop, fault = asyncio.get_running_loop(), self.struck
        if fault is not None and fault.only is sender.other:
            fault = None
        receiver = self.ends[sender.other].sock
        if fault is not None and fault.kind is Kind.HALF_CLOSE and fault.at is sender:
            return
        if self._swallows():
            return
        if fault is not None and fault.kind is Kind.LATENCY:
            await asyncio.sleep(fault.seconds)
        for part in _parts(piece, fault):
            await self._flows.wait()
            if self._swallows():
                return
            await loop.sock_sendall(receiver, part)
            self.passed[sender] += len(part)
            if fault is not None and fault.kind is Kind.RATE:
                await asyncio.sleep(len(part) / fault.bytes_per_second)
            elif len(part) < len(piece):
                await asyncio.sleep(0)

    def _swallows(self) -> bool:
        return self.struck is not None and self.struck.kind in (Kind.DROP, Kind.RESET, Kind.HALF_OPEN)

    def _reset(self, end: End) -> None:
        found = self.ends.get(end)
        if found is not None and found.sock.fileno() >= 0:
            with suppress(OSError):
                found.reset()


def _parts(piece: bytes, fault: Fault | None) -> list[bytes]:
    step = len(piece)
    if fault is not None and fault.kind is Kind.SLICE:
        step = 1
    elif fault is not None and fault.kind is Kind.RATE:
        step = max(1, int(fault.bytes_per_second * _STEP_SECONDS))
    return [piece[start : start + step] for start in range(0, len(piece), step)]
