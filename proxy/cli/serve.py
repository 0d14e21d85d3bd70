"""Run a proxy as a process: its signals, from the start to the end of the drain.

SIGTERM and SIGINT begin its end, in the order that `proxy.app.lifecycle` knows; a second one ends it at once. SIGHUP
reads the configuration again; but a proxy whose terminal is gone leaves, as one would expect of what was started by
hand. A signal is an event here, never an exception in the middle of something. The service manager hears of all of it.
"""

import asyncio
import gc
import os
import resource
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from proxy.app.lifecycle import Phase, Shutdown, ShutdownPlan, StopSignal
from proxy.app.proxy import Proxy
from proxy.app.reload import LoadConfig, Reloader
from proxy.cli.systemd import ServiceManager
from proxy.config.config import Config
from proxy.core.log import Logger
from proxy.web.admin.reload_report import ReloadReport

STANDARD_ERROR: Final = 2
# How often a proxy that leaves looks whether somebody is still there.
LOOK_SECONDS: Final = 0.05
# What closing takes beyond the drain, for the service manager.
SECONDS_TO_CLOSE: Final = 5.0
# Young objects are looked at often and cheaply, all of them only when `app.Proxy` says so.
GC_THRESHOLDS: Final = (5000, 20, 1_000_000)


async def run(config: Config, log: Logger, load: LoadConfig, manager: ServiceManager) -> None:
    """Run a proxy until it is told to stop; `load` reads the configuration again from where `config` came from.

    Raises OSError if the proxy cannot start.
    """
    _raise_file_limit(log)
    proxy = Proxy(config, log)
    ending = _Ending(proxy, log, manager)
    loop = asyncio.get_running_loop()
    reloader = Reloader(proxy, load, log, _ReloadNotes(manager))
    proxy.process = _Process(reloader, ending)
    loop.add_signal_handler(signal.SIGTERM, ending.told, StopSignal.TERMINATE)
    loop.add_signal_handler(signal.SIGINT, ending.told, StopSignal.INTERRUPT)
    on_terminal = os.isatty(STANDARD_ERROR)

    def hung_up() -> None:
        if on_terminal and not os.isatty(STANDARD_ERROR):
            _forget_terminal()
            ending.told(StopSignal.INTERRUPT)
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
        manager.ready(f"serving on port {proxy.client_port}")
        manager.watch(loop)
        await ending.run()
        await reloader.close()
        log.info("stopped")
    finally:
        manager.close()
        proxy.close_control()
        loop.remove_signal_handler(signal.SIGHUP)
        ignore_hangup()


class _Process:
    """Do what signals do, for the admin API."""

    def __init__(self, reloader: Reloader, ending: "_Ending") -> None:
        self._reloader = reloader
        self._ending = ending

    async def reload(self) -> ReloadReport:
        return await self._reloader.reload()

    def drain(self, *, at_once: bool) -> Mapping[str, object] | None:
        return self._ending.begin(StopSignal.INTERRUPT if at_once else StopSignal.TERMINATE)


class _ReloadNotes:
    """Tell the service manager of reloads."""

    def __init__(self, manager: ServiceManager) -> None:
        self._manager = manager

    def reload_began(self) -> None:
        self._manager.reloading(time.monotonic())

    def reload_ended(self, result: str) -> None:
        self._manager.ready(f"serving; configuration {result}")


class _Ending:
    """Lead one proxy through its end."""

    def __init__(self, proxy: Proxy, log: Logger, manager: ServiceManager) -> None:
        self._proxy = proxy
        self._log = log
        self._manager = manager
        self._loop = asyncio.get_running_loop()
        self._shutdown = Shutdown()
        self._told = asyncio.Event()

    def told(self, what: StopSignal) -> None:
        """Take a signal."""
        first = self._shutdown.phase is Phase.SERVING
        plan = ShutdownPlan.of(self._proxy.config)
        self._shutdown.told(what, plan, self._loop.time())
        self._look()
        self._told.set()
        if first:
            reason = f"{plan.role} told to {what.value}"
            self._log.info("stopping", connections=len(self._proxy.sessions), reason=reason)
            self._manager.stopping("stopping", plan.longest_seconds + SECONDS_TO_CLOSE)

    def begin(self, what: StopSignal) -> Mapping[str, object] | None:
        """Take it as a signal if it is the first, and say how long the end may take; None if it has begun already."""
        if self._shutdown.phase is not Phase.SERVING:
            return None
        connections = len(self._proxy.sessions)
        self.told(what)
        plan, phase = ShutdownPlan.of(self._proxy.config), self._shutdown.phase
        seconds = plan.longest_seconds if what is StopSignal.TERMINATE else plan.drain_seconds
        return {"phase": str(phase), "connections": connections, "longest_seconds": seconds}

    async def run(self) -> None:
        """Wait for a signal, and return when everything is closed, or at the second signal."""
        await self._told.wait()
        while (phase := self._look()) is Phase.LEAVING:
            self._told.clear()
            await self._wait_a_while()
        self._told.clear()
        left = self._shutdown.seconds_left(self._loop.time())
        async with asyncio.TaskGroup() as group:
            stop = group.create_task(self._proxy.stop(left if phase is Phase.DRAINING else 0.0))
            again = group.create_task(self._told.wait())
            await asyncio.wait((stop, again), return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            again.cancel()

    def _look(self) -> Phase:
        before = self._proxy.phase
        phase = self._shutdown.look(len(self._proxy.sessions), self._loop.time())
        if phase is not before:
            self._proxy.enter(phase, ready=self._shutdown.ready)
            seconds = self._shutdown.seconds_left(self._loop.time())
            self._log.info("shutdown phase", new=str(phase), old=str(before), seconds=round(seconds, 3))
        return phase

    async def _wait_a_while(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self._told.wait()


def _forget_terminal() -> None:
    """Write log lines to nowhere: those to a terminal that is gone would raise in the middle of the drain."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, STANDARD_ERROR)
    os.close(nowhere)


def ignore_hangup() -> None:
    """Let SIGHUP pass while no loop takes it: a reload that comes a moment too early or late must not end the proxy."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _raise_file_limit(log: Logger) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    log.debug("file descriptors", limit=hard)
