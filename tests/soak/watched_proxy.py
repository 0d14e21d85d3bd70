"""`python -m tests.soak.watched_proxy serve ...`: the proxy's command line, and a census of the process on SIGUSR2.

Rule: the proxy is not changed, but that connections to brokers end while a quiet moment waits. The census runs between
two steps of the loop, in the handler of a signal, and is written to the file that SOAK_CENSUS names; each has the
number of its request.
"""

import asyncio
import gc
import itertools
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Final

from proxy.app.proxy import Proxy
from proxy.brokers import clocks
from proxy.cli.main import main
from tests.support.proxies.books import books_of
from tests.support.proxies.counted import counted, counted_by

FILE: Final = "SOAK_CENSUS"
_numbers = itertools.count(1)
_proxies: list[Proxy] = []


def watch() -> None:
    """Remember the proxy that is made in this process, and count at each SIGUSR2 from now on."""
    clocks.IDLE_SECONDS = 1.0  # type: ignore[misc]
    make = Proxy.__init__

    def remember(proxy: Proxy, *arguments: Any, **more: Any) -> None:
        make(proxy, *arguments, **more)
        _proxies.append(proxy)

    Proxy.__init__ = remember  # type: ignore[assignment, method-assign]
    signal.signal(signal.SIGUSR2, _count)


def _count(number: int, frame: FrameType | None) -> None:
    del number, frame
    place = Path(os.environ[FILE])
    beside = place.with_suffix(".new")
    beside.write_text(json.dumps({"number": next(_numbers), **census()}))
    beside.replace(place)


def census() -> dict[str, Any]:
    """Count what is in this process."""
    # The collector runs in quiet moments only: what waits for it is no growth.
    gc.collect()
    proxy = _proxies[0]
    return {
        "books": {
            **books_of(proxy),
            # A connection in the pool is no client's, but a descriptor: it must have ended before others are counted.
            "connections to brokers": sum(proxy.broker_side.pool.states().values()),
            "requests over HTTP": counted(proxy.counters, "http_requests_in_work"),
            "WebSockets": counted(proxy.counters, "http_tunnels"),
        },
        "tasks": dict(Counter(_name(task) for task in asyncio.all_tasks(proxy.loop))),
        "objects": dict(Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())),
        "internal_errors": dict(counted_by(proxy.counters, "internal_errors")),
    }


def _name(task: "asyncio.Task[Any]") -> str:
    return getattr(task.get_coro(), "__qualname__", "task")


if __name__ == "__main__":
    watch()
    sys.exit(main())
