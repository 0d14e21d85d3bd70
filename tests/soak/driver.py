"""One soak: actions at a steady pace, reloads between them, and quiet moments in which everything is counted.

Rule: a quiet moment begins when the last client has left, and waits until the proxy's books are zero and there is no
more of anything than at the first such moment; what is not so after a while is what the verdict speaks of.
"""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from proxy.cli.demo.children import Child
from proxy.core.process_memory import MemoryPaths, resident_bytes
from proxy.core.tasks import TaskScope
from tests.soak.actions import ENDS, WEIGHTS, Action, Place
from tests.soak.verdict import Quiet, Record, Sample, grown
from tests.support.patience import patient

QUIET_SECONDS: Final = 40.0
CENSUS_SECONDS: Final = 30.0
MOST_AT_ONCE: Final = 60
_LOOK_SECONDS: Final = 0.5


class Soak:
    """Load on one proxy; `reload` changes its configuration and tells it so."""

    def __init__(self, place: Place, proxy: Child, census: Path, reload: Callable[[int], None]) -> None:
        self.record = Record()
        self._place = place
        self._proxy = proxy
        self._census = census
        self._asked = 0
        self._reload = reload
        self._memory = MemoryPaths(process=Path(f"/proc/{proxy.pid}"))
        self._clients = TaskScope(self._crashed)
        self._began = time.monotonic()

    async def run(self, seconds: float, pace: float, moments: int, sample_seconds: float) -> None:
        """Load for so long, `pace` actions a second, with a quiet moment behind each of `moments` equal parts."""
        self._began = time.monotonic()
        for action in WEIGHTS:
            self._clients.start(self._act(action))
        for _ in range(moments):
            await self._load_until(self._now + seconds / moments, pace, sample_seconds)
            await self._clients.emptied()
            self.record.quiet.append(await self._quiet())

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    async def _load_until(self, end: float, pace: float, sample_seconds: float) -> None:
        dice, due, sample_at = self._place.dice, self._now, self._now + sample_seconds
        while (now := self._now) < end:
            if now >= sample_at:
                self.record.samples.append(self._sample())
                sample_at += sample_seconds
            if len(self._clients) < MOST_AT_ONCE:
                action = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
                self._clients.start(self._act(action))
            if dice.random() < 0.01:
                self.record.reloads += 1
                self._reload(self.record.reloads)
            due = max(due + dice.expovariate(pace), now - 1)
            await asyncio.sleep(max(0.0, min(due, end) - self._now))

    async def _act(self, action: Action) -> None:
        name = action.__name__
        try:
            await action(self._place)
        except ENDS as error:
            text = f"{name}: {type(error).__name__}: {str(error)[:120]}"
            self.record.failed[text] = self.record.failed.get(text, 0) + 1
        else:
            self.record.done[name] = self.record.done.get(name, 0) + 1

    def _crashed(self, error: BaseException) -> None:
        text = f"crash of the soak: {error!r}"
        self.record.failed[text] = self.record.failed.get(text, 0) + 1

    def _sample(self) -> Sample:
        process = f"/proc/{self._proxy.pid}"
        descriptors, threads = len(os.listdir(f"{process}/fd")), len(os.listdir(f"{process}/task"))
        return Sample(self._now, resident_bytes(self._memory) or 0, descriptors, threads)

    async def _quiet(self) -> Quiet:
        first = self.record.quiet[0] if self.record.quiet else None
        end = time.monotonic() + patient(QUIET_SECONDS)
        while True:
            now = await self._counted()
            more = grown(now if first is None else first, now)
            if not more or time.monotonic() > end:
                return now
            await asyncio.sleep(_LOOK_SECONDS)

    async def _counted(self) -> Quiet:
        found = await self._ask()
        sample = self._sample()
        return Quiet(
            sample.seconds, sample.resident_bytes, _descriptors(self._proxy.pid), sample.threads,
            found["books"], found["tasks"], found["objects"], found["internal_errors"],
        )  # fmt: skip

    async def _ask(self) -> dict[str, Any]:
        self._asked += 1
        os.kill(self._proxy.pid, signal.SIGUSR2)
        end = time.monotonic() + patient(CENSUS_SECONDS)
        while time.monotonic() < end:
            if self._census.exists():
                found: dict[str, Any] = json.loads(self._census.read_text())
                if found["number"] >= self._asked:
                    return found
            await asyncio.sleep(0.02)
        raise TimeoutError(f"no census within {CENSUS_SECONDS:g} s\n{self._proxy.tail()}")


def _descriptors(pid: int) -> dict[str, int]:
    """Count the open files of a process by kind: `socket`, `pipe`, `anon_inode`, or the directory of a file."""
    kinds: Counter[str] = Counter()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        # A file may be closed between the two looks.
        with suppress(FileNotFoundError):
            target = os.readlink(entry)
            # Files of lists and events have numbers in their names.
            kinds[os.path.dirname(target) if target.startswith("/") else target.partition(":")[0]] += 1
    return dict(kinds)


def names(actions: Sequence[Action] = tuple(WEIGHTS)) -> list[str]:
    """Name the actions."""
    return [action.__name__ for action in actions]
