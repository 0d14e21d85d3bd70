"""The threshold throttle (QPID-7918): which producing connections are not read while memory is short. No I/O, no clock.

NORMAL until the ratio reaches the high mark; PAUSED until it is below the low mark; RESUMING while connections are
released in turns; NORMAL when the last one is. While memory stays between the marks, so that no more can be released,
those that are read and those that wait change places at intervals. A paused connection still passes one whole frame at
intervals, so that neither its keep-alive nor the close of a producer dies, and one relay buffer after the longest
pause.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple

from proxy.overload.samples import Marks

# Frames above this stretch the interval of drips: 1,000 connections with frames of 5 MB each 5 s would be 1 GB/s.
LARGE_FRAME_BYTES: Final = 65_536
LARGE_FRAME_FACTOR: Final = 5
MIXED_FACTOR: Final = 4
MOST_RELEASED: Final = 64
# From this part of the limit on the longest pause ends none: a proxy that is killed loses more than a message that
# its client fails, and knows of.
HARD: Final = 0.95


class ThrottleState(StrEnum):
    """Whether producing connections are read."""

    NORMAL = "normal"
    PAUSED = "paused"
    RESUMING = "resuming"


@dataclass(frozen=True, slots=True)
class ThresholdSettings:
    """The marks and times; `read_bytes` is what a released connection may read at once. Seconds and fractions."""

    marks: Marks
    drip_seconds: float
    max_pause_seconds: float
    read_bytes: int
    enabled: bool
    observe_only: bool

    @property
    def acts(self) -> bool:
        """Return whether decisions are applied."""
        return self.enabled and not self.observe_only


class RelaySample(NamedTuple):
    """A producing connection: its number, whether it consumes too, and the bytes that it has sent to its broker."""

    number: int
    consumes: bool
    moved_bytes: int


@dataclass(slots=True)
class Paused:
    """A paused connection: since when, when it drips next, and the bytes that it had sent at the last look.

    `dripped_at` are those at the last drip, until its frame is known to be large; -1: none is judged.
    """

    since: float
    next_drip: float
    open_at: float
    consumes: bool
    moved_bytes: int
    dripped_at: int = -1


@dataclass(slots=True)
class ThresholdDecisions:
    """The connections, by their numbers, to pause, resume and drip; `opened` pass a relay buffer.

    `would_pause` counts in ObserveOnly, `paused_now` those that are paused from now on. `before` and `after` are the
    states: a transition if they differ.
    """

    before: ThrottleState
    after: ThrottleState
    paused: list[int] = field(default_factory=list)
    resumed: list[int] = field(default_factory=list)
    dripped: list[int] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)
    would_pause: int = 0
    paused_now: int = 0


class ThresholdThrottle:
    """Decides at each sample; `pick` returns a number below its argument: the random start of the releases.

    A decision is made in steps, one for each connection, and its caller may stop after each.
    """

    def __init__(self, settings: ThresholdSettings, pick: Callable[[int], int]) -> None:
        self.settings = settings
        self._pick = pick
        self.state = ThrottleState.NORMAL
        self._paused: dict[int, Paused] = {}
        # The connections that were released since memory was high, in the order of their release.
        self._released: dict[int, Paused] = {}
        self._turn_ends = 0.0
        self._mixed_too = False
        self._last = 0.0
        self._first_since: float | None = None

    def __len__(self) -> int:
        return len(self._paused)

    def __contains__(self, number: int) -> bool:
        return number in self._paused

    @property
    def needs_relays(self) -> bool:
        """Return whether the next step looks at connections: in quiet times none is looked at."""
        return bool(self._paused) or self.state is not ThrottleState.NORMAL

    def is_high(self, ratio: float | None) -> bool:
        """Return whether the ratio is at or above the high mark; a ratio that is not known is not."""
        return ratio is not None and ratio >= self.settings.marks.high

    def longest_pause(self, now: float) -> float:
        """Return the seconds since the first connection was paused that still was at the last sample."""
        return now - self._first_since if self._paused and self._first_since is not None else 0.0

    def forget(self, number: int) -> None:
        """Forget a connection that ended."""
        self._paused.pop(number, None)
        self._released.pop(number, None)

    def begun(self) -> ThresholdDecisions:
        """Return decisions that are still empty, for `steps`."""
        return ThresholdDecisions(self.state, self.state)

    def steps(
        self, made: ThresholdDecisions, now: float, ratio: float | None, limit_bytes: int, relays: Sequence[RelaySample]
    ) -> Iterator[None]:
        """Decide for a sample; `relays` are the producing connections, and may be empty unless they are needed."""
        settings, before = self.settings, self.state
        # A clock that goes back, or stands still, prolongs no pause and shortens none.
        if now < self._last:
            yield from self._shift(now - self._last)
        self._last = now
        if not settings.enabled:
            yield from self._change(ThrottleState.NORMAL)
        elif self.is_high(ratio):
            yield from self._change(ThrottleState.PAUSED)
        elif before is ThrottleState.PAUSED and (ratio is None or ratio < settings.marks.low):
            yield from self._change(ThrottleState.RESUMING)
        if not settings.acts:
            yield from self._release_all(made, relays)
        elif self.state is ThrottleState.PAUSED:
            yield from self._pause(made, now, ratio, relays, first=before is not ThrottleState.PAUSED)
        elif self.state is ThrottleState.RESUMING:
            yield from self._update(relays)
            yield from self._release(made, ratio, limit_bytes)
            self._exchange(made, now, ratio, limit_bytes)
        yield from self._drip(made, now, ratio)
        if self.state is ThrottleState.RESUMING and not self._paused:
            yield from self._change(ThrottleState.NORMAL)
        made.after, made.paused_now = self.state, len(self._paused)

    def _change(self, state: ThrottleState) -> Iterator[None]:
        if state is self.state:
            return
        self.state = state
        self._mixed_too = False
        self._released.clear()
        self._turn_ends = self._last + self.settings.drip_seconds
        if state is ThrottleState.RESUMING and self._paused:
            # In the order of pausing from a random start: nobody is the last each time.
            for number in list(islice(self._paused, self._pick(len(self._paused)))):
                self._paused[number] = self._paused.pop(number)
                yield

    def _pause(
        self, made: ThresholdDecisions, now: float, ratio: float | None, relays: Sequence[RelaySample], *, first: bool
    ) -> Iterator[None]:
        """Pause all producing connections; those that consume as well only if that was not enough at the last sample.

        Such connections hold acks, which free memory, and the client's consumers would stop with them.
        """
        alone = False
        for relay in relays:
            if not relay.consumes:
                alone = True
                self._pause_one(made, now, relay)
            yield
        if self.is_high(ratio) and (not first or not alone or (ratio is not None and ratio >= HARD)):
            self._mixed_too = True
        for relay in relays:
            if relay.consumes and self._mixed_too:
                self._pause_one(made, now, relay)
            yield
        yield from self._update(relays)

    def _pause_one(self, made: ThresholdDecisions, now: float, relay: RelaySample) -> None:
        if relay.number not in self._paused:
            self._paused[relay.number] = self._new(now, relay)
            made.paused.append(relay.number)

    def _new(self, now: float, relay: RelaySample) -> Paused:
        settings = self.settings
        drip = settings.drip_seconds / (MIXED_FACTOR if relay.consumes else 1)
        return Paused(now, now + drip, now + settings.max_pause_seconds, relay.consumes, relay.moved_bytes)

    def _update(self, relays: Sequence[RelaySample]) -> Iterator[None]:
        """Update who consumes by now, and stretch the interval of connections whose last drip was a large frame."""
        for relay in relays:
            paused = self._paused.get(relay.number)
            released = self._released.get(relay.number)
            if paused is not None:
                self._update_one(paused, relay)
            elif released is not None:
                released.consumes, released.moved_bytes = relay.consumes, relay.moved_bytes
            yield

    def _update_one(self, paused: Paused, relay: RelaySample) -> None:
        interval = self._interval(relay.consumes)
        # Bytes under way when the pause began, or a whole read, are no large frame.
        if 0 <= paused.dripped_at < relay.moved_bytes - LARGE_FRAME_BYTES:
            paused.next_drip, paused.dripped_at = self._last + LARGE_FRAME_FACTOR * interval, -1
        elif relay.consumes and not paused.consumes:
            paused.next_drip -= self._interval(consumes=False) - interval
        paused.consumes, paused.moved_bytes = relay.consumes, relay.moved_bytes

    def _interval(self, consumes: bool) -> float:
        return self.settings.drip_seconds / (MIXED_FACTOR if consumes else 1)

    def _release(self, made: ThresholdDecisions, ratio: float | None, limit_bytes: int) -> Iterator[None]:
        """Release as many as may read once without memory passing the low mark; those that consume go first."""
        room = self.settings.marks.low if ratio is None else self.settings.marks.low - ratio
        if room <= 0:
            return
        # Without a limit of our own (only brokers are watched, or nothing is known) there is no room to compute.
        most = MOST_RELEASED if ratio is None or limit_bytes <= 0 else self._reads_in(room * limit_bytes)
        for consumes in (True, False):
            for number, paused in self._paused.items():
                if len(made.resumed) == most:
                    break
                if paused.consumes is consumes:
                    made.resumed.append(number)
                yield
        for number in made.resumed:
            self._leave(number)

    def _reads_in(self, size: float) -> int:
        """Return how many connections are released at once into room for so many bytes: at least one."""
        return max(1, min(MOST_RELEASED, int(size) // max(1, self.settings.read_bytes)))

    def _leave(self, number: int) -> None:
        paused = self._paused.pop(number)
        if not paused.consumes:
            self._released[number] = paused

    def _exchange(self, made: ThresholdDecisions, now: float, ratio: float | None, limit_bytes: int) -> None:
        """Exchange, each turn, connections that were released first for those that wait longest; 64 of them at most.

        Memory may stay between the marks for as long as producers send more than brokers take. Without this the first
        to be released would be read all that time, and the others next to never.
        """
        if made.resumed or ratio is None or now < self._turn_ends:
            return
        self._turn_ends = now + self.settings.drip_seconds
        room = (self.settings.marks.high - ratio) * limit_bytes
        most = min(MOST_RELEASED if limit_bytes <= 0 else self._reads_in(room), len(self._paused))
        leaving = [number for number, each in islice(self._released.items(), most) if not each.consumes]
        for number in list(islice(self._paused, len(leaving))):
            self._leave(number)
            made.resumed.append(number)
        for number in leaving:
            released = self._released.pop(number)
            self._paused[number] = self._new(now, RelaySample(number, released.consumes, released.moved_bytes))
            made.paused.append(number)

    def _release_all(self, made: ThresholdDecisions, relays: Sequence[RelaySample]) -> Iterator[None]:
        """Release everybody at once: the throttle was switched off, or only observes."""
        for number in self._paused:
            made.resumed.append(number)
            yield
        self._paused.clear()
        self._released.clear()
        if self.settings.enabled and self.state is ThrottleState.PAUSED:
            made.would_pause = len(relays)
        elif self.state is ThrottleState.RESUMING:
            yield from self._change(ThrottleState.NORMAL)

    def _drip(self, made: ThresholdDecisions, now: float, ratio: float | None) -> Iterator[None]:
        bound_wins = ratio is not None and ratio >= HARD
        first = now
        for number, paused in self._paused.items():
            first = min(first, paused.since)
            if now >= paused.open_at and not bound_wins:
                made.opened.append(number)
                paused.open_at = now + self.settings.max_pause_seconds
                paused.next_drip, paused.dripped_at = now + self._interval(paused.consumes), -1
            elif now >= paused.next_drip:
                made.dripped.append(number)
                paused.next_drip = now + self._interval(paused.consumes)
                paused.dripped_at = paused.moved_bytes
            yield
        self._first_since = first

    def _shift(self, seconds: float) -> Iterator[None]:
        for paused in self._paused.values():
            paused.since += seconds
            paused.next_drip += seconds
            paused.open_at += seconds
            yield
        self._turn_ends += seconds
