"""Where each thread and each task of the process is: for a proxy that hangs or is busy for no known reason.

Rule: only places in the code are shown, never values: these may be credentials.
"""

import asyncio
import sys
import threading
from collections.abc import Iterator, Mapping
from itertools import islice
from types import FrameType
from typing import Final

MOST_TASKS: Final = 200
MOST_LINES: Final = 40


def stacks() -> Mapping[str, object]:
    """Return the innermost places of each thread, and the place of each task of this thread's loop."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    tasks = asyncio.all_tasks()
    return {
        "threads": [
            {"name": names.get(number, str(number)), "lines": list(_lines(frame))}
            for number, frame in sys._current_frames().items()
        ],
        "tasks_total": len(tasks),
        "tasks": [_task(task) for task in islice(tasks, MOST_TASKS)],
    }


def _lines(frame: FrameType | None) -> Iterator[str]:
    found = list[str]()
    while frame is not None and len(found) < MOST_LINES:
        found.append(_place(frame))
        frame = frame.f_back
    return reversed(found)


def _task(task: "asyncio.Task[object]") -> Mapping[str, str]:
    coroutine = task.get_coro()
    frames = task.get_stack(limit=1)
    return {
        "name": getattr(coroutine, "__qualname__", type(coroutine).__name__),
        "line": _place(frames[0]) if frames else "",
    }


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}"
