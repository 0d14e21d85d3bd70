"""Lists on disk: watch the lists that hold direct memory, move those of slow readers, read them back (ADR 20).

The clock runs only while there are lists that could move. Without `topicListSpillDirectory` nothing of this exists.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Final, NamedTuple, Self

from limiter.permit import Permit
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.counters import counter_by
from proxy.core.descriptors import descriptor_limit
from proxy.core.log import LinePace
from proxy.net.spill.body import ListInMemory, SpillableBody
from proxy.net.spill.directory import open_directory
from proxy.net.spill.disk import DirectoryDisk
from proxy.net.spill.judge import SWEEP_SECONDS, SpillJudge, in_order
from proxy.net.spill.moves import MOVED_LISTS, MOVES_AT_ONCE, WRITTEN_BYTES, ListMoves
from proxy.net.spill.read_back import READERS, ReadBack
from proxy.net.spill.space import MOST_FILES, Kept, SpillSpace
from proxy.net.spill.workers import WorkerThreads

MIB: Final = 1024 * 1024
# After a failure of the disk no list is moved for this long: each would fail, and each costs a step of writing.
REST_SECONDS: Final = 1.0
# Moves that have not come a step further for this long stand still: the disk does not answer.
HANG_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 5.0
# Lists judged in one turn of the loop (2 ms), and lists that may begin to move before the next sweep.
LISTS_A_TURN: Final = 500
# A list that its client leaves lying for this part of `topicListRequestTimeoutMillis` moves although nobody waits for
# its memory: behind an earlier list of its client its clock goes on, and would refuse what the proxy has ready.
PATIENT_PART: Final = 0.25
MOST_FOUND: Final = 256
# Memory that is short for less than this is a burst: 1,000 lists of 1 MB take one to two seconds of two cores. In a
# burst those that read are served from their part of memory (ADR 23); each move would take processor time from them.
BURST_SECONDS: Final = 2.0
_KEYS: Final = {
    Kept.NO_SPACE: Config.topic_list_spill_max_mb.name,
    Kept.NO_FILES: "the limit of open files",
    Kept.DISK_FULL: Config.topic_list_spill_directory.name,
    Kept.DISK_ERROR: Config.topic_list_spill_directory.name,
}
KEPT: Final = counter_by("reason", "spill_kept", "Times that a slow reader's list stayed in memory, by reason.", Kept)


class SpillSettings(NamedTuple):
    """The space on disk, what a key may have of it, and how long a list may lie in memory although nobody waits."""

    limit_bytes: int
    key_cap_percent: int
    patience_seconds: float

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the settings of a configuration."""
        return cls(
            config.topic_list_spill_max_mb * MIB,
            config.key_percent,
            PATIENT_PART * config.seconds(Config.topic_list_request_timeout_millis),
        )


class ListSpill:
    """The lists that may move to disk, those that are moving, and those that are there.

    `short` tells whether anybody waits for memory that slow readers hold.
    """

    def __init__(
        self,
        core: Core,
        disk: DirectoryDisk,
        space: SpillSpace,
        short: Callable[[], bool],
        writers: WorkerThreads,
        readers: WorkerThreads,
    ) -> None:
        loop, counters = core.loop, core.counters
        self.space = space
        space.moves = False
        self._patience_seconds = SpillSettings.of(core.config).patience_seconds
        self._loop = loop
        self._disk = disk
        self._short = short
        self._counters = counters
        self._log = core.log.of("net")
        self._workers = (writers, readers)
        self._judge = SpillJudge()
        self._read_back = ReadBack(loop, readers, counters, self._read_failed)
        self._moves = ListMoves(disk, space, writers, counters, self._kept, self._move_next, self._file_closed)
        self._in_memory: dict[SpillableBody, None] = {}
        self._slow: list[SpillableBody] = []
        # The sweep under way: lists that are not judged yet, and the slow ones among those that are.
        self._unseen: list[SpillableBody] = []
        self._found: list[SpillableBody] = []
        self._timer: asyncio.TimerHandle | None = None
        self._rests_until = 0.0
        # When memory became short, and since when sweeps find enough; None: the last sweep found memory short.
        self._short_since = -math.inf
        self._enough_since: float | None = -math.inf
        # The bytes and lists written so far, and when they last became more, or no move was under way.
        self._written: tuple[float, float] = (0, 0)
        self._written_at = 0.0
        self._pace = LinePace()
        self._untold = 0
        self._closing: asyncio.Event | None = None

    @property
    def busy(self) -> int:
        """Return how many lists, files and reads there are: 0 when nobody is being written to."""
        return len(self._in_memory) + self.space.files + len(self._read_back) + self._moves.under_way

    def watch(self, memory: ListInMemory, permit: Permit, *, shared: bool, behind_disk: bool = False) -> SpillableBody:
        """Return a body that may move to disk; the caller closes it, and releases `permit` if it is still held.

        `behind_disk`: each client of the list has an earlier list on disk, and has not taken that yet.
        """
        since = self._loop.time()
        body = SpillableBody(memory, permit, self._read_back, self._left_memory, shared=shared, since=since)
        if behind_disk:
            body.window = self._judge.slow_window()
        self._in_memory[body] = None
        if self._timer is None:
            self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        return body

    def apply(self, settings: SpillSettings) -> None:
        """Apply changed limits; lists on disk stay there."""
        self.space.limit, self.space.key_cap_percent, self._patience_seconds = settings

    async def close(self) -> None:
        """Close all files and end the threads; a disk that does not answer is not waited for longer than 5 s."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._moves.close()
        self._closing = asyncio.Event()
        if self.space.files:
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._closing.wait()
            except TimeoutError:
                self._log.warning("lists on disk were not closed in time", files=self.space.files)
        for workers in self._workers:
            workers.stop()
        self._disk.shut()

    # --- the clock --------------------------------------------------------------------------------

    def _sweep(self) -> None:
        self._timer = None
        if self._in_memory:
            self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        else:
            # Nobody sweeps until there is a list again.
            self._note_enough(self._loop.time())
        if self._unseen:
            # The sweep before is not over: the loop is busy.
            return
        now = self._loop.time()
        self._note_shortage(now)
        self._unseen = list(self._in_memory)
        self._found.clear()
        self._look(now)

    def _note_shortage(self, now: float) -> None:
        """Take note of whether memory is short; memory that is short again within a burst is still short."""
        if not self._short():
            self._note_enough(now)
        elif self._enough_since is not None:
            if now - self._enough_since > BURST_SECONDS:
                self._short_since = now
            self._enough_since = None
        # Lists that nobody moves count whole (`has_room_for`), or a burst would ask for twice as many that stay.
        enough = self._enough_since is not None and now - self._enough_since > BURST_SECONDS
        self.space.moves = not enough and not self._in_burst(now)

    def _note_enough(self, now: float) -> None:
        if self._enough_since is None:
            self._enough_since = now

    def _look(self, now: float) -> None:
        """Judge some lists, and the others in the next turns of the loop: a large memory holds many small lists."""
        some = self._unseen[-LISTS_A_TURN:]
        del self._unseen[-LISTS_A_TURN:]
        try:
            slow = self._judge.look(now, [body for body in some if body in self._in_memory and not body.moving])
            self._found = in_order([*self._found, *slow], self.space)[:MOST_FOUND]
        except Exception as error:
            # These lists stay where they are. A sweep that stopped here would be the last.
            self._counters.internal_error(error, "list to disk")
        if self._unseen:
            self._loop.call_soon(self._look, now)
        else:
            self._looked()

    def _looked(self) -> None:
        slow, self._found = self._found, []
        self._slow = list(filter(self._should_move, slow))
        self.space.ask_again()
        if self._hangs():
            self.space.failing = True
            for body in self._slow:
                body.kept = True
        elif not self._slow:
            self.space.disk_full(False)
            # A list that is moving tells soon whether the disk still fails.
            self.space.failing = self.space.failing and self._moves.under_way > 0
        self._move_next()

    def _hangs(self) -> bool:
        """Return whether all moves have stood still for long."""
        now, written = self._loop.time(), (self._counters[WRITTEN_BYTES].value, self._counters[MOVED_LISTS].value)
        if self._moves.free or written != self._written:
            self._written, self._written_at = written, now
        return now - self._written_at >= HANG_SECONDS

    def _move_next(self) -> None:
        if self._loop.time() < self._rests_until:
            for body in self._slow:
                body.kept = True
            return
        while self._slow and self._moves.free:
            body = self._slow.pop(0)
            if body.closed or body.moving or body.file is not None or not self._should_move(body):
                continue
            found = self.space.reserve(body.rest_bytes, body.key)
            if not isinstance(found, Kept):
                body.kept = False
                self._moves.start(body, found)
            elif self._short():
                body.kept = True
                self._kept(found, "")
            else:
                # Nobody has to leave the disk for a list whose memory nobody wants.
                self.space.ask_again()

    def _should_move(self, body: SpillableBody) -> bool:
        """Return whether somebody waits for the memory of a slow list, or its own clients would be refused soon."""
        now = self._loop.time()
        return (self._short() and not self._in_burst(now)) or now - body.since >= self._patience_seconds

    def _in_burst(self, now: float) -> bool:
        return now - self._short_since < BURST_SECONDS

    def _kept(self, reason: Kept, detail: str) -> None:
        """Count a list that stays in memory, and log it at most once a second."""
        self._counters[KEPT][reason] += 1
        now = self._loop.time()
        if reason in (Kept.DISK_FULL, Kept.DISK_ERROR):
            self._rests_until = now + REST_SECONDS
        self._untold += 1
        if not self._pace.due(now, "kept"):
            return
        self._log.warning(
            "slow readers' lists stay in memory",
            reason=str(reason),
            detail=detail,
            change=_KEYS[reason],
            lists=self._untold,
            held=self.space.held,
            limit=self.space.limit,
        )
        self._untold = 0

    def _read_failed(self, error: BaseException) -> None:
        """Log an error of the disk at most once a second; the client is logged with its cause."""
        if not self._pace.due(self._loop.time(), "read"):
            return
        detail = (error.strerror if isinstance(error, OSError) else None) or str(error)
        self._log.error("a list on disk cannot be read", detail=detail, change=_KEYS[Kept.DISK_ERROR])

    def _left_memory(self, body: SpillableBody) -> None:
        self._in_memory.pop(body, None)

    def _file_closed(self) -> None:
        if self._closing is not None and not self.space.files:
            self._closing.set()


def most_files() -> int:
    """Return the bound of files: a quarter of the descriptors that this process may have."""
    limit = descriptor_limit()
    return MOST_FILES if limit is None else min(MOST_FILES, limit // 4)


def make_space(core: Core) -> SpillSpace:
    """Return the space on the disk that a configuration allows."""
    settings = SpillSettings.of(core.config)
    return SpillSpace(settings.limit_bytes, most_files(), core.counters, settings.key_cap_percent)


def make_spill(core: Core, space: SpillSpace, short: Callable[[], bool]) -> ListSpill:
    """Return the spill of a configuration with a directory; raises SettingFault for a directory that is refused."""
    disk, loop = open_directory(core.config.topic_list_spill_directory), core.loop
    # Threads that write also close. Readers never wait for either.
    writers = WorkerThreads(loop, MOVES_AT_ONCE, "list-writer")
    readers = WorkerThreads(loop, READERS, "list-reader")
    return ListSpill(core, disk, space, short, writers, readers)
