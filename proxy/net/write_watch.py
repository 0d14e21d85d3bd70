"""Watch the clients that have bytes to take: a client that takes nothing is closed, a client that takes too little is
closed while others wait for its memory.

Rules:
- Progress is what the client's kernel has acknowledged, not what ours has taken: our kernel takes bytes from us in
  steps of a third of the send buffer, so that a slow reader's write buffer may stand still for half a minute.
- A client that has taken all its bytes is not late.
- A client that takes no byte for the stall timeout is closed, whether anybody waits or not.
- A client slower than the least rate is closed only while others wait for direct memory, or for heap memory that a list
  for this client holds until it has taken its earlier ones; slowest first and one at a time, until one of the
  waiters was served. Only clients that hold direct memory are looked at.
- A client that has shown that it reads and then stands still for two seconds is closed while others wait, if such
  clients hold more than their part of direct memory, or lists behind theirs more than a part of heap memory
  (`proxy.net.owed`). After those the slow ones: they move, and take less than a quick client does (`pace`).
- A client whose list is on disk holds no memory but that of its answers behind the list which cannot move, too. Without
  such answers the client is closed for its rate only while the disk has no space for the list of another
  (`proxy.net.spill`): as many as make room for that list.
- A second in which the proxy itself stood still does not count against a client.

The decisions have no I/O and no clock of their own; samples are the output's business (`proxy.net.output.Output`).
"""

import asyncio
import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, Self

from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.counters import counter, gauge
from proxy.core.errors import DisconnectCause
from proxy.net.owed import OwedLists

if TYPE_CHECKING:
    from proxy.net.spill.space import SpillSpace

RATE_WINDOW_SECONDS: Final = 10.0
# A client that reads fast enough now is not closed for an earlier silence: its list will soon be over.
RECENT_SECONDS: Final = 2.0
LONGEST_WINDOW_SECONDS: Final = 60.0
# So few marks keep the record of a writer under 1.5 KiB.
MARKS_A_WINDOW: Final = 5
STALLED_SECONDS: Final = 1.0
# More than a receive buffer takes by itself (Linux: 128 KiB at first): a client that took so much reads.
PROOF_BYTES: Final = 256 * 1024
# A client that takes less than that in so long is slow: four times the least rate, by default.
QUICK_SECONDS: Final = 2.0
# Slow clients that keep to the least rate are closed only while quick ones come: one was seen in this time.
QUICK_SEEN_SECONDS: Final = 60.0
# A sweep comes once a second; any longer time between two sweeps is the proxy's own delay.
LONGEST_STEP_SECONDS: Final = 2.0
# Writers sampled in one iteration of the loop: a system call each, about 2 ms together.
WRITERS_A_TURN: Final = 250
# Clients closed in one iteration: about 11 us each, and their tasks end in the next ones.
EVICTIONS_A_TURN: Final = 50
# An evicted client's tasks end in the next iteration of the loop, the waiters for its memory one iteration later.
TURNS_TO_SERVE: Final = 4
# The rule that closes a client, by the cause it is closed with.
_KEYS: Final = {
    DisconnectCause.WRITE_STALLED: "topicListWriteStallTimeoutMillis",
    DisconnectCause.READS_TOO_SLOWLY: "topicListWriteMinBytesPerSecond",
}
WRITERS: Final = gauge("client_writers", "Clients with unsent data at the last check; the check runs once a second.")
STALLED_READERS: Final = gauge(
    "client_stalled_readers", "Clients with unsent data that have taken no byte for more than a second."
)
WRITERS_KERNEL_BYTES: Final = gauge(
    "client_writers_kernel_bytes",
    "Bytes in the kernel for clients with unsent data that these have not acknowledged.",
    "bytes",
)
EVICTED_BYTES: Final = counter(
    "client_evicted_bytes",
    "Unsent bytes, the kernel's included, of clients that were disconnected for not reading.",
    "bytes",
)


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """When a client is closed for not reading, in seconds and bytes per second; 0: never."""

    stall_seconds: float
    min_bytes_per_second: int

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the limits of a configuration."""
        return cls(
            stall_seconds=config.seconds(Config.topic_list_write_stall_timeout_millis),
            min_bytes_per_second=config.topic_list_write_min_bytes_per_second,
        )


class WriteProgress:
    """The bytes that one client has taken since something waits for it; made only for clients that are written to."""

    __slots__ = (
        "_buffer_bytes",
        "_delivered",
        "_marks",
        "_paced_bytes",
        "_paced_from",
        "_window_seconds",
        "handed_bytes",
        "kernel_bytes",
        "pace",
        "progressed_at",
    )

    def __init__(self) -> None:
        self.handed_bytes = 0
        self.kernel_bytes = 0
        self.progressed_at = 0.0
        # Bytes per second of a client that is slow; None: it is quick, or not known yet.
        self.pace: float | None = None
        self._paced_from, self._paced_bytes = 0.0, 0
        self._delivered = 0
        # Bytes that the client's receive buffer took at first.
        self._buffer_bytes = 0
        self._window_seconds = RATE_WINDOW_SECONDS
        # The times of progress, and the bytes delivered before and after each.
        self._marks: list[tuple[float, int, int]] = []

    def note(self, now: float, buffered_bytes: int, kernel_bytes: int) -> bool:
        """Take a sample of the bytes that are still in user space and in the kernel.

        Return whether the client has taken anything since the last sample.
        """
        before, self._delivered = self._delivered, self.handed_bytes - buffered_bytes - kernel_bytes
        self.kernel_bytes = kernel_bytes
        if not self._marks:
            self._buffer_bytes = max(0, self._delivered)
            self._begin(now, min(0, self._delivered))
            return False
        moved = self._delivered > before
        if not buffered_bytes + kernel_bytes:
            self._begin(now, self._delivered)
        elif moved:
            self.progressed_at = now
            self._mark(now, before)
        self._judge(now)
        return moved

    def stands(self, now: float) -> bool:
        """Return whether the client has taken nothing for a second."""
        return now - self.progressed_at > STALLED_SECONDS

    def _judge(self, now: float) -> None:
        taken, seconds = self._delivered - self._paced_bytes, now - self._paced_from
        if taken >= PROOF_BYTES:
            self.pace = None
        elif seconds >= QUICK_SECONDS:
            self.pace = taken / seconds
        else:
            return
        self._paced_from, self._paced_bytes = now, self._delivered

    def _begin(self, now: float, before: int) -> None:
        self.progressed_at = now
        self._marks = [(now, before, self._delivered)]
        # A kernel without bytes for the client waits for the proxy, not for the client.
        self.pace, self._paced_from, self._paced_bytes = None, now, self._delivered

    def _mark(self, now: float, before: int) -> None:
        marks, window = self._marks, self._window_seconds
        if now - marks[-1][0] >= window / MARKS_A_WINDOW:
            marks.append((now, before, self._delivered))
        while len(marks) > 1 and marks[1][0] <= now - window:
            del marks[0]

    def rate(self, now: float, least: int) -> float | None:
        """Return the bytes per second of the last window or of the last seconds, the better; None if it is too early.

        A large receive buffer is reopened in steps: a steady reader may show nothing for seconds, and then all of it at
        once. So a window is ten seconds or, if that is longer, what a buffer lasts at the `least` rate; it counts what
        came at its very beginning, and ends with what came last, unless nothing came for a whole window.
        """
        self._window_seconds = min(max(RATE_WINDOW_SECONDS, self._buffer_bytes / least), LONGEST_WINDOW_SECONDS)
        start, before, _ = self._marks[0]
        if now - start < self._window_seconds:
            return None
        end = self.progressed_at if now - self.progressed_at < self._window_seconds else now
        recent = ((self._delivered - after) / max(now - time, RECENT_SECONDS) for time, _, after in self._marks)
        return max((self._delivered - before) / (end - start), *recent)


class WriteLock(asyncio.Lock):
    """The right to write a list to one client; it can be reserved for a list that has no memory yet.

    A list on disk holds the lock, and no memory. A reservation keeps other lists of this client from asking for memory,
    not from writing: a list that waits for memory must not hold up a list that has its memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reserved = 0
        self._on_disk = False
        # The heap memory of each list that waits, and whether its question went out without a turn.
        self._listeners: dict[Callable[[], None], tuple[int, bool]] = {}

    @property
    def free(self) -> bool:
        """Return whether no list in memory is being written, and no write is reserved."""
        return not self._reserved and (self._on_disk or not self.locked())

    @property
    def on_disk(self) -> bool:
        """Return whether the list being written is on disk."""
        return self._on_disk

    @property
    def awaited(self) -> bool:
        """Return whether anybody listens for the lock to become free."""
        return bool(self._listeners)

    def waiting(self, *, without_turn: bool = False) -> Iterable[tuple[Hashable, int]]:
        """Return the listeners, or those without a turn only, with the heap memory that the list of each holds."""
        return [(each, size) for each, (size, no_turn) in self._listeners.items() if no_turn or not without_turn]

    def reserve(self) -> None:
        """Count one list that is about to have its memory."""
        self._reserved += 1

    def unreserve(self) -> None:
        """End a reservation: the list was written, or never will be."""
        self._reserved -= 1
        self._notify()

    def moved_to_disk(self) -> None:
        """Record that the list being written holds no memory any more: the next list may take memory."""
        self._on_disk = True
        self._notify()

    def release(self) -> None:
        """Release the lock and notify the listeners."""
        self._on_disk = False
        super().release()
        self._notify()

    def listen(self, on_change: Callable[[], None], heap_bytes: int = 0, *, without_turn: bool = False) -> None:
        """Call `on_change` whenever the lock may have become free, until `forget`; a list holds heap memory for it.

        `without_turn`: the question went out as that of a client that reads.
        """
        self._listeners[on_change] = heap_bytes, without_turn

    def forget(self, on_change: Callable[[], None]) -> None:
        """Stop calling `on_change`."""
        self._listeners.pop(on_change, None)

    def _notify(self) -> None:
        for on_change in list(self._listeners):
            on_change()


class Writer(Protocol):
    """A client's output under watch (`proxy.net.output.Output`, over HTTP `AnswerWriter`)."""

    progress: WriteProgress | None

    @property
    def client(self) -> str:
        """Return the client's name for the log."""

    @property
    def waiting(self) -> bool:
        """Return whether anything waits to be written to a client that is still there."""

    @property
    def holds_memory(self) -> bool:
        """Return whether a direct permit owns the waiting bytes."""

    @property
    def disk_bytes(self) -> int:
        """Return the unsent bytes of a list on disk, which holds space there and no memory; 0 if there is none."""

    @property
    def holds_up_a_list(self) -> bool:
        """Return whether a list that holds heap memory waits for this client to take its earlier lists."""

    @property
    def reads(self) -> bool:
        """Return whether the client has taken more than its receive buffer holds since it last stood or was slow."""

    @property
    def owed(self) -> tuple[int, int] | None:
        """Return the list in progress (a number that names the list) and what memory it holds, if in no share."""

    def give_back(self, most: int) -> int:
        """End a share of at most so many bytes that the list in progress has because its client was awake.

        Return what is owed for that.
        """

    @property
    def held_up(self) -> Iterable[tuple[Hashable, int]]:
        """Return names and sizes of lists in heap memory behind the list in progress, if that or they are owed."""

    @property
    def goes_to_disk(self) -> bool:
        """Return whether the list in progress is on disk, or will be soon if its memory is needed."""

    def sample(self, progress: WriteProgress, now: float) -> None:
        """Record in `progress` the bytes that the client has taken."""

    def evict(self, cause: DisconnectCause) -> int:
        """End the connection and drop unsent bytes; return how many were under way."""

    def crashed(self, error: BaseException) -> None:
        """End the connection because of an exception of its own."""


@dataclass(slots=True)
class _Evictions:
    """The clients that one sweep closed for one cause: how many, the bytes under way to them, and one of them."""

    clients: int = 0
    size: int = 0
    client: str = ""


class Memory(Protocol):
    """Memory that may be waited for (`UnprovenReaders` and `BrokerQueues` of `proxy.requests`)."""

    @property
    def short(self) -> bool:
        """Return whether anybody waits for memory that others hold."""


# How many bytes may be owed while others wait for direct memory, and how much heap memory lists behind owed lists may
# hold while others wait for that (None: no bound); and whether a list waits only for a share of those awake.
MostOwed = Callable[[], tuple[int | None, int | None, bool]]


class WriteWatch:
    """All clients that are being written to.

    `served` returns the number of waiters that were granted memory; `disk` is None if no list goes to disk, and
    `most_owed` says how much may be owed.
    """

    def __init__(
        self,
        core: Core,
        direct: Memory,
        heap: Memory,
        served: Callable[[], int],
        most_owed: "MostOwed",
        disk: "SpillSpace | None",
    ) -> None:
        self.limits = WriteLimits.of(core.config)
        self._disk = disk
        self._most_owed = most_owed
        self._direct = direct
        self._heap = heap
        self._served = served
        self._counters = core.counters
        self._log = core.log.of("net")
        self._evictions: dict[DisconnectCause, _Evictions] = {}
        self._quick_at = -math.inf
        self._writers: set[Writer] = set()
        self._swept_at: float | None = None
        self._time = 0.0

    def __len__(self) -> int:
        return len(self._writers)

    def apply(self, limits: WriteLimits) -> None:
        """Close clients by other limits from now on."""
        self.limits = limits

    @property
    def short(self) -> bool:
        """Return whether anybody waits for memory that slow clients may hold, directly or by lists that wait for them.

        A client that does not read holds direct memory for its first list, and heap memory for the next ones: with
        many such clients nobody waits for direct memory any more, because nobody has heap memory for a list.
        """
        return self._direct.short or (self._heap.short and any(each.holds_up_a_list for each in self._writers))

    def add(self, writer: Writer) -> None:
        """Watch `writer` from now on, until nothing waits for its client any more."""
        if writer.progress is None:
            writer.progress = WriteProgress()
            self._writers.add(writer)

    def saw_quick(self) -> None:
        """Record that a client has shown that it reads: for such clients slow ones make room."""
        self._quick_at = self._time

    def discard(self, writer: Writer) -> None:
        """Forget `writer`: its client is gone."""
        self._writers.discard(writer)
        writer.progress = None

    async def sweep(self, now: float) -> None:
        """Close clients that stand still, then as many slow clients as others need; called once a second."""
        time = self._advance(now)
        writers = stalled = kernel_bytes = 0
        slow: list[tuple[float, int, Writer]] = []
        awaited = self._most_owed()[2]
        unsure, moving = list[Writer](), OwedLists[Writer]()
        owed, held_up = OwedLists[Writer](), OwedLists[Writer]()
        for number, writer in enumerate(list(self._writers), 1):
            rate = self._look(writer, time)
            if rate is not None:
                slow.append((rate, number, writer))
            if (progress := writer.progress) is not None:
                writers += 1
                stands = progress.stands(time)
                if stands or (progress.pace is not None and not writer.goes_to_disk):
                    stalled += stands
                    since, pace = progress.progressed_at, None if stands else progress.pace
                    body = writer.owed
                    owed.note(writer, since, () if body is None else (body,), pace)
                    held_up.note(writer, since, writer.held_up, pace)
                elif awaited and not writer.reads and not writer.goes_to_disk:
                    body = writer.owed
                    if body is None:
                        unsure.append(writer)
                    else:
                        # It may read yet: nobody is closed for what it has.
                        moving.note(writer, time, (body,))
                kernel_bytes += progress.kernel_bytes
            if not number % WRITERS_A_TURN:
                await asyncio.sleep(0)
        counters = self._counters
        counters[WRITERS].value, counters[STALLED_READERS].value = writers, stalled
        counters[WRITERS_KERNEL_BYTES].value = kernel_bytes
        if self.limits.min_bytes_per_second:
            most, most_held_up, awaited = self._most_owed()
            if awaited and most is not None:
                self._hand_on(unsure, most - owed.total - moving.total)
            await self._end_owing(owed, most, self._direct, time)
            await self._end_owing(held_up, most_held_up, self._heap, time)
        if slow:
            await self._make_room(sorted(slow))
        self._tell_evictions()

    def _advance(self, now: float) -> float:
        if self._swept_at is not None:
            self._time += min(now - self._swept_at, LONGEST_STEP_SECONDS)
        self._swept_at = now
        return self._time

    def _look(self, writer: Writer, time: float) -> float | None:
        """Judge one writer, and return its rate if the rate is too low."""
        progress = writer.progress
        if progress is None or not writer.waiting:
            self.discard(writer)
            return None
        try:
            writer.sample(progress, time)
        except Exception as error:
            self.discard(writer)
            writer.crashed(error)
            return None
        limits = self.limits
        if 0 < limits.stall_seconds <= time - progress.progressed_at:
            self._evict(writer, DisconnectCause.WRITE_STALLED)
            return None
        least = limits.min_bytes_per_second
        rate = progress.rate(time, least) if least else None
        return rate if rate is not None and rate < least else None

    def _hand_on(self, unsure: list[Writer], room: int) -> None:
        """Have those that wait get the shares of clients that answered a PING, and have not shown that they read.

        At most `room` bytes go on: no list may have those owed hold more than their part.
        """
        for writer in unsure:
            if not self._most_owed()[2]:
                return
            room -= writer.give_back(room)

    async def _end_owing(self, lists: OwedLists[Writer], most: int | None, memory: Memory, time: float) -> None:
        if most is None or not memory.short:
            return
        quick_come = time - self._quick_at < QUICK_SEEN_SECONDS
        above = lists.above(most, time, math.inf if quick_come else self.limits.min_bytes_per_second)
        for number, writer in enumerate(above, 1):
            if writer.waiting:
                self._evict(writer, DisconnectCause.READS_TOO_SLOWLY)
            if not number % EVICTIONS_A_TURN:
                await asyncio.sleep(0)

    async def _make_room(self, slowest_first: list[tuple[float, int, Writer]]) -> None:
        served = self._served()
        lacking = 0 if self._disk is None else self._disk.lacking
        for _, _, writer in slowest_first:
            if self._served() != served:
                return
            if not writer.waiting:
                continue
            if lacking > 0 and (on_disk := writer.disk_bytes):
                # The space is free a little later, when a thread has closed the file.
                lacking -= on_disk
            elif not (writer.holds_memory and self._others_wait_for(writer)):
                continue
            self._evict(writer, DisconnectCause.READS_TOO_SLOWLY)
            for _ in range(TURNS_TO_SERVE):
                await asyncio.sleep(0)

    def _others_wait_for(self, writer: Writer) -> bool:
        return self._direct.short or (writer.holds_up_a_list and self._heap.short)

    def _evict(self, writer: Writer, cause: DisconnectCause) -> None:
        self.discard(writer)
        try:
            client = writer.client
            under_way = writer.evict(cause)
        except Exception as error:
            writer.crashed(error)
            return
        self._counters[EVICTED_BYTES].value += under_way
        evictions = self._evictions.setdefault(cause, _Evictions())
        evictions.clients += 1
        evictions.size += under_way
        evictions.client = client

    def _tell_evictions(self) -> None:
        """Write a line for each cause: a sweep comes once a second, so they need no other pace."""
        for cause, evictions in self._evictions.items():
            self._log.warning(
                "client closed for not reading",
                cause=str(cause),
                change=_KEYS[cause],
                client=evictions.client,
                bytes=evictions.size,
                evictions=evictions.clients,
            )
        self._evictions.clear()
