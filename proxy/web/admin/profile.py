"""A profile of the process on demand: where its Python threads are, looked at by a thread that sleeps in between.

Rules: only places in the code are shown, never values. A look needs the interpreter lock, so it waits up to 5 ms for
a busy thread to give that up between two instructions: time inside a call of C counts for the line that called it. A
look costs some 5 us a thread, so a profile costs the event loop a fraction of a percent. At most
`MOST_STACKS` stacks of `MOST_CALLS` calls are kept. A thread that waits is sampled like one that works: the kernel is
asked what each thread used of a processor, threads of the native engine included.
"""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from proxy.core.threads import NoThread, in_thread

LOOKS_A_SECOND: Final = 100
MOST_STACKS: Final = 1000
MOST_CALLS: Final = 50
MOST_THREADS: Final = 256
NAME: Final = "profile"
_TASKS: Final = Path("/proc/self/task")
# The fields of /proc/self/task/*/stat behind the name, which may have blanks: user and system time are the 14th and
# 15th of all, in ticks.
_USER_TICKS: Final = 11
_TICK_SECONDS: Final = 1 / os.sysconf("SC_CLK_TCK")

# A thread's name and the numbers of its calls: a code object's own hash looks at all of its instructions.
Stack = tuple[str, tuple[int, ...]]


class Busy(Exception):
    """Another profile is being made."""


class Profiler:
    """Makes one profile at a time."""

    def __init__(self) -> None:
        self._busy = False

    async def profile(self, seconds: float) -> Mapping[str, object]:
        """Return the profile of the next seconds; raises Busy."""
        if self._busy:
            raise Busy
        self._busy = True
        stop = threading.Event()
        try:
            return await in_thread(partial(self._sample, seconds, stop), NAME, None)
        except NoThread:
            self._busy = False
            raise
        finally:
            # A client that leaves ends the profile; the thread then notices within a look.
            stop.set()

    def _sample(self, seconds: float, stop: threading.Event) -> Mapping[str, object]:
        try:
            return sample(seconds, stop)
        finally:
            self._busy = False


def sample(
    seconds: float, stop: threading.Event, now: Callable[[], float] = time.monotonic, most_stacks: int = MOST_STACKS
) -> Mapping[str, object]:
    """Return the profile of this process for `seconds`, or until `stop` is set; the calling thread is left out."""
    own, began, before = threading.get_ident(), now(), _processor_seconds()
    counts: Counter[Stack] = Counter()
    # Calls of the kept stacks by their numbers, which no other object gets while the calls are kept.
    kept: dict[int, CodeType] = {}
    looks = left_out = 0
    while (left := began + seconds - now()) > 0 and not stop.wait(min(left, 1 / LOOKS_A_SECOND)):
        looks += 1
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for number, frame in sys._current_frames().items():
            if number == own:
                continue
            calls = _calls(frame)
            stack = names.get(number, str(number)), tuple(map(id, calls))
            if stack in counts:
                counts[stack] += 1
            elif len(counts) < most_stacks:
                counts[stack] = 1
                kept.update(zip(stack[1], calls, strict=True))
            else:
                left_out += 1
    return {
        "seconds": round(now() - began, 3), "samples": looks, "threads": _used(before),
        **_shown(counts, kept), "left_out": left_out,
    }  # fmt: skip


def _calls(frame: FrameType | None) -> list[CodeType]:
    """Return the innermost calls of a thread, innermost last."""
    found = list[CodeType]()
    while frame is not None and len(found) < MOST_CALLS:
        found.append(frame.f_code)
        frame = frame.f_back
    found.reverse()
    return found


def _shown(counts: Mapping[Stack, int], kept: Mapping[int, CodeType]) -> Mapping[str, object]:
    """Return the stacks with each function named once: thousands of stacks share most of their calls."""
    places: dict[int, int] = {}
    stacks = [
        {"thread": thread, "calls": [places.setdefault(call, len(places)) for call in calls], "samples": count}
        for (thread, calls), count in sorted(counts.items(), key=lambda item: item[1], reverse=True)
    ]
    functions = [_name(kept[call]) for call in places]
    return {"functions": functions, "stacks": stacks}


def _name(code: CodeType) -> str:
    return f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"


def _processor_seconds() -> Mapping[int, float]:
    """Return the processor time of each thread of the process, by its number in the kernel; nothing where not known."""
    found: dict[int, float] = {}
    with suppress(OSError):
        for entry in sorted(map(int, os.listdir(_TASKS)))[:MOST_THREADS]:
            with suppress(OSError, ValueError, IndexError):
                fields = (_TASKS / str(entry) / "stat").read_text().rpartition(")")[2].split()
                found[entry] = (int(fields[_USER_TICKS]) + int(fields[_USER_TICKS + 1])) * _TICK_SECONDS
    return found


def _used(before: Mapping[int, float]) -> list[Mapping[str, object]]:
    """Return what each thread has used since then, those that used most first."""
    own, rows = threading.get_native_id(), list[tuple[float, str]]()
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    for number, used in _processor_seconds().items():
        if number != own:
            rows.append((round(used - before.get(number, 0.0), 2), names.get(number) or _name_of(number)))
    return [{"name": name, "cpu_seconds": used} for used, name in sorted(rows, key=lambda row: (-row[0], row[1]))]


def _name_of(number: int) -> str:
    """Return the name that a thread of a library gave itself."""
    try:
        return (_TASKS / str(number) / "comm").read_text().strip()
    except OSError:
        return str(number)
