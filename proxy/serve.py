"""Run a proxy as a process: its signals, from the start to the end of the drain.

SIGTERM or SIGINT drains, a second one ends the drain at once, SIGHUP reads the configuration again; but a proxy whose
terminal is gone leaves, as one would expect of what was started by hand. A signal is an event here, never an exception
in the middle of something.
"""

import asyncio
import gc
import os
import resource
import signal
from typing import Final

from proxy.app import Proxy
from proxy.config import Config
from proxy.log import Logger
from proxy.reload import LoadConfig, Reloader

STANDARD_ERROR: Final = 2
# Young objects are looked at often and cheaply, all of them only when `app.Proxy` says so.
GC_THRESHOLDS: Final = (5000, 20, 1_000_000)


async def run(config: Config, log: Logger, load: LoadConfig) -> None:
    """Run a proxy until it is told to stop; `load` reads the configuration again from where `config` came from.

    Raises OSError if the proxy cannot start.
    """
    _raise_file_limit(log)
    proxy = Proxy(config, log)
    reloader = Reloader(proxy, load, log)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    on_terminal = os.isatty(STANDARD_ERROR)

    def hung_up() -> None:
        if on_terminal and not os.isatty(STANDARD_ERROR):
            _forget_terminal()
            stopping.set()
        else:
            reloader.ask()

    loop.add_signal_handler(signal.SIGHUP, hung_up)
    try:
        await proxy.start()
        # What start-up made lives as long as the process: the collector need not look at it in the middle of a storm.
        gc.collect()
        gc.freeze()
        # A look at everything takes tens of milliseconds with thousands of clients: it is done in quiet moments.
        gc.set_threshold(*GC_THRESHOLDS)
        await stopping.wait()
        log.info("stopping", connections=len(proxy.sessions))
        stopping.clear()
        await _stop_or_be_told_again(proxy, stopping)
        await reloader.close()
        log.info("stopped")
    finally:
        proxy.close_control()
        loop.remove_signal_handler(signal.SIGHUP)
        ignore_hangup()


def _forget_terminal() -> None:
    """Write log lines to nowhere: those to a terminal that is gone would raise in the middle of the drain."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, STANDARD_ERROR)
    os.close(nowhere)


def ignore_hangup() -> None:
    """Let SIGHUP pass while no loop takes it: a reload that comes a moment too early or late must not end the proxy."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


async def _stop_or_be_told_again(proxy: Proxy, told_again: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        stop = group.create_task(proxy.stop())
        again = group.create_task(told_again.wait())
        await asyncio.wait((stop, again), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        again.cancel()


def _raise_file_limit(log: Logger) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    log.debug("file descriptors", limit=hard)
