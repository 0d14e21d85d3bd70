"""Apply the decisions of the threshold throttle to relays; the only caller of pause and resume with THRESHOLD.

Relays have numbers while memory is short, so that the throttle's state has none of them in it. Work goes in slices of
250 relays an iteration of the loop. A relay that ended answers to nothing; one that raises is counted, and the others
go on.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Final

from proxy.overload.slices import in_slices
from proxy.overload.threshold import RelaySample, ThresholdDecisions, ThresholdThrottle
from proxy.relay.engine import Direction, PauseReason, Relay

# Some 2 us each, and a call into the native engine.
SLICE: Final = 250
_WAY: Final = Direction.TO_BROKER
_WHY: Final = PauseReason.THRESHOLD


class PausedRelays:
    """The relays by number; `failed` is called with each exception of a relay."""

    def __init__(
        self,
        relays: Callable[[], Iterable[Relay]],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._relays = relays
        self._failed = failed
        self._numbers: dict[Relay, int] = {}
        self._by_number: dict[int, Relay] = {}
        self._next = count()
        self._paused: set[int] = set()

    async def look(self, throttle: ThresholdThrottle) -> list[RelaySample]:
        """Return the connections that produce; those that ended are forgotten."""
        found: list[RelaySample] = []
        await in_slices(self._seen(found, throttle), SLICE)
        return found

    def _seen(self, found: list[RelaySample], throttle: ThresholdThrottle) -> Iterator[None]:
        present: set[int] = set()
        for relay in list(self._relays()):
            try:
                if relay.produces:
                    number = self._number(relay)
                    found.append(RelaySample(number, relay.consumes, relay.snapshot().moved[_WAY]))
                    present.add(number)
            except Exception as error:
                self._failed(error)
            yield
        for gone in self._by_number.keys() - present:
            self._forget(gone)
            throttle.forget(gone)
            yield

    async def apply(self, made: ThresholdDecisions) -> None:
        """Pause, release and drip."""
        await in_slices(self._applied(made), SLICE)

    def _applied(self, made: ThresholdDecisions) -> Iterator[None]:
        steps: list[tuple[Callable[[Relay], None], list[int]]] = [
            (self._pause, made.paused),
            (self._resume, made.resumed),
            (_drip, made.dripped),
            (_open, made.opened),
        ]
        for step, numbers in steps:
            for number in numbers:
                relay = self._by_number.get(number)
                if relay is not None:
                    self._guarded(step, relay)
                yield

    async def release_all(self) -> None:
        """Release everybody: overload control ends."""
        await in_slices(self._all_resumed(), SLICE)
        await self.forget_all()

    async def forget_all(self) -> None:
        """Forget all relays, of which none is paused: nobody looks at them until memory is short again."""
        await in_slices(self._all_forgotten(), SLICE)

    def _all_forgotten(self) -> Iterator[None]:
        for number in list(self._by_number):
            self._forget(number)
            yield

    def _all_resumed(self) -> Iterator[None]:
        for number in list(self._paused):
            self._guarded(self._resume, self._by_number[number])
            yield

    def _number(self, relay: Relay) -> int:
        number = self._numbers.get(relay)
        if number is None:
            number = self._numbers[relay] = next(self._next)
            self._by_number[number] = relay
        return number

    def _forget(self, number: int) -> None:
        self._numbers.pop(self._by_number.pop(number), None)
        self._paused.discard(number)

    def _pause(self, relay: Relay) -> None:
        self._paused.add(self._numbers[relay])
        relay.pause(_WAY, _WHY)

    def _resume(self, relay: Relay) -> None:
        self._paused.discard(self._numbers[relay])
        relay.resume(_WAY, _WHY)

    def _guarded(self, step: Callable[[Relay], None], relay: Relay) -> None:
        try:
            step(relay)
        except Exception as error:
            self._failed(error)


def _drip(relay: Relay) -> None:
    relay.drip(_WAY)


def _open(relay: Relay) -> None:
    """Read the connection once: its longest pause is over."""
    relay.drip(_WAY, whole_read=True)
