"""Run a proxy as a process, and handle its signals from the start to the end of the drain.

SIGTERM and SIGINT begin the shutdown, whose phases are in `proxy.app.lifecycle`; a second signal ends it at once.
SIGHUP reads the configuration again, unless the terminal has closed: then a proxy started by hand shuts down. A signal
is an event of the loop, never an exception inside other code; only SIGQUIT and faults, which show the stacks of all
threads, need no loop that runs. The service manager is notified of each step.
"""

import asyncio
import faulthandler
import gc
import os
import resource
import signal
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from proxy.app.lifecycle import Phase, Shutdown, ShutdownPlan, StopSignal
from proxy.app.proxy import Proxy
from proxy.app.reload import LiveChanges, LoadConfig, Reloader
from proxy.cli.inherited import Inherited, Predecessor
from proxy.cli.systemd import ServiceManager
from proxy.config.config import Config
from proxy.core.descriptors import raise_descriptor_limit
from proxy.core.log import Logger
from proxy.core.threads import in_thread
from proxy.web.admin.process_control import NotUndone, ProcessControl

STANDARD_ERROR: Final = 2
# The exit code after a thread of the relay engine has died (EX_SOFTWARE of sysexits.h).
THREAD_DIED: Final = 70
# Interval at which a leaving proxy checks whether clients are left.
LOOK_SECONDS: Final = 0.05
# Time for closing after the drain, as reported to the service manager.
SECONDS_TO_CLOSE: Final = 5.0
# Young generations are collected often and cheaply: 25,000 objects take 12 ms in one step, although none is garbage.
# `app.Proxy` starts full collections itself.
GC_THRESHOLDS: Final = (5000, 4, 1_000_000)


async def run(
    config: Config, log: Logger, load: LoadConfig, manager: ServiceManager, inherited: Inherited | None = None
) -> int:
    """Run a proxy until a signal stops it; `load` reads the configuration again from the sources of `config`.

    `inherited`: listening sockets that other processes have handed over. Return the exit code. Raises OSError if the
    proxy cannot start.
    """
    inherited = inherited or Inherited()
    log.debug("file descriptors", limit=raise_descriptor_limit())
    if not config.core_dump_enabled:
        forbid_core_dumps()
    show_stacks_on_signals()
    proxy = Proxy(config, log)
    proxy.sockets.listening.inherit(inherited.handed)
    ending = _Ending(proxy, log, manager)
    loop = asyncio.get_running_loop()

    def reloads(result: str | None) -> None:
        if result is None:
            manager.reloading(time.monotonic())
        else:
            manager.ready(f"serving; configuration {result}")

    reloader = Reloader(proxy, load, log, reloads)
    changes = LiveChanges(proxy, log)
    process = _control(reloader, changes, ending)
    loop.add_signal_handler(signal.SIGTERM, ending.signalled, StopSignal.TERMINATE)
    loop.add_signal_handler(signal.SIGINT, ending.signalled, StopSignal.INTERRUPT)
    on_terminal = os.isatty(STANDARD_ERROR)

    def hung_up() -> None:
        if on_terminal and not os.isatty(STANDARD_ERROR):
            _forget_terminal()
            ending.signalled(StopSignal.INTERRUPT)
        else:
            reloader.ask()

    loop.add_signal_handler(signal.SIGHUP, hung_up)
    try:
        await proxy.start(process, control=inherited.predecessor is None)
        # Objects made at the start live as long as the process: the collector need not visit them during a storm.
        gc.collect()
        gc.freeze()
        # A full collection takes tens of milliseconds with thousands of clients, so it runs in quiet moments only.
        gc.set_threshold(*GC_THRESHOLDS)
        gc.enable()
        if inherited.predecessor is not None:
            await _replace(inherited.predecessor, proxy, ending, log)
        manager.ready(f"serving on port {proxy.client_port}")
        manager.watch(loop)
        await ending.run()
        changes.close()
        await reloader.close()
        log.info("stopped")
        return ending.exit_code
    finally:
        manager.close()
        proxy.abandon()
        loop.remove_signal_handler(signal.SIGHUP)
        ignore_hangup()


async def _replace(predecessor: Predecessor, proxy: Proxy, ending: "_Ending", log: Logger) -> None:
    """Stop the accepting of the process whose sockets this process has, as soon as this process is ready."""
    if not await ending.until_ready():
        # The predecessor accepts as before.
        return
    from proxy.app.memory.budget_report import log_two_budgets

    log_two_budgets(proxy.budget, log, predecessor.budget_bytes, predecessor.pid)
    connections = await in_thread(predecessor.leave, "hand-over", None)
    log.info("took over", pid=predecessor.pid, connections=connections)
    try:
        proxy.open_control()
    except OSError as error:
        # Clients are served, and by nobody else.
        log.warning("no control socket", detail=error.strerror or str(error))


def _control(reloader: Reloader, changes: LiveChanges, ending: "_Ending") -> ProcessControl:
    """Return what does for the admin API what signals do."""

    def set_key(name: str, text: str, seconds: float | None) -> Mapping[str, object]:
        change = changes.set(name, text, seconds)
        return {"key": change.key, "old": change.old, "new": change.new, "seconds": seconds}

    def drain(at_once: bool) -> Mapping[str, object] | None:
        return ending.begin(StopSignal.INTERRUPT if at_once else StopSignal.TERMINATE)

    return ProcessControl(reloader.reload, set_key, drain, ending.undo, ending.hand_over, ending.fail)


class _Ending:
    """Shuts a proxy down, phase by phase."""

    def __init__(self, proxy: Proxy, log: Logger, manager: ServiceManager) -> None:
        self._proxy = proxy
        self._log = log
        self._manager = manager
        self._loop = asyncio.get_running_loop()
        self._shutdown = Shutdown()
        self._signal = asyncio.Event()
        # The drain, or the closing after it.
        self._work: asyncio.Task[None] | None = None
        # Whether only the admin API has asked for the end, which may still call that off.
        self._may_undo = False
        self._told = False
        self.exit_code = 0

    def signalled(self, cause: StopSignal) -> None:
        """Called when a signal arrives: enter the next phase."""
        self._may_undo = False
        plan = self._enter_next(cause)
        self._tell_stopping(plan.longest_seconds + SECONDS_TO_CLOSE)

    def _tell_stopping(self, longest_seconds: float) -> None:
        """Notify the service manager, once, that the proxy stops: from then on it ends the process if need be."""
        if not self._told:
            self._told = True
            self._manager.stopping("stopping", longest_seconds)

    def _enter_next(self, cause: StopSignal) -> ShutdownPlan:
        first = self._shutdown.phase is Phase.SERVING
        plan = ShutdownPlan.of(self._proxy.config)
        self._shutdown.signalled(cause, plan, self._loop.time())
        self._update_phase()
        self._signal.set()
        if first:
            reason = f"{plan.role} asked to {cause.value}"
            self._log.info("stopping", connections=len(self._proxy.sessions), reason=reason)
        return plan

    def begin(self, cause: StopSignal) -> Mapping[str, object] | None:
        """Begin the shutdown as if by a signal, and return its longest time; None if the shutdown has begun already.

        Until the drain is over, `undo` calls the shutdown off: so the service manager is not told that the proxy stops.
        """
        if self._shutdown.phase is not Phase.SERVING:
            return None
        connections = len(self._proxy.sessions)
        plan = self._enter_next(cause)
        phase, self._may_undo = self._shutdown.phase, True
        self._manager.status(f"{phase}, as the admin API was asked to")
        seconds = plan.longest_seconds if cause is StopSignal.TERMINATE else plan.drain_seconds
        return {"phase": str(phase), "connections": connections, "longest_seconds": seconds}

    def fail(self) -> None:
        """Stop in order and for good, with an exit code that says that the proxy has failed."""
        self.exit_code = THREAD_DIED
        self.begin(StopSignal.INTERRUPT)
        self._may_undo = False

    def undo(self) -> None:
        """Serve again, although the admin API asked for the end; raises NotUndone."""
        if self._shutdown.phase is Phase.SERVING:
            raise NotUndone("the proxy serves: there is no drain to undo")
        if not self._may_undo or (self._work is not None and self._work.done()):
            raise NotUndone("the proxy stops because of a signal or a fault, or is closing: that cannot be undone")
        try:
            # First, because only this can fail: the drain goes on then.
            self._proxy.serve_again()
        except OSError as error:
            raise NotUndone(f"{error.strerror}: the drain goes on") from error
        if self._work is not None:
            self._work.cancel()
        self._may_undo = False
        self._shutdown.undone()
        self._log.info("drain undone", connections=len(self._proxy.sessions))
        self._manager.status("serving again")
        self._signal.set()

    def hand_over(self) -> Mapping[str, object]:
        """Accept no more and begin to drain, unless the shutdown has begun already: another process has the sockets."""
        path = self._proxy.hand_over()
        begun = self.begin(StopSignal.HAND_OVER) or {
            "phase": str(self._shutdown.phase),
            "connections": len(self._proxy.sessions),
            "longest_seconds": ShutdownPlan.of(self._proxy.config).longest_seconds,
        }
        # The other process serves at the same addresses.
        self._may_undo = False
        self._tell_stopping(ShutdownPlan.of(self._proxy.config).longest_seconds + SECONDS_TO_CLOSE)
        return {**begun, "control_socket": None if path is None else str(path)}

    async def until_ready(self) -> bool:
        """Wait until readiness probes succeed; return False if the shutdown begins before."""
        while self._shutdown.phase is Phase.SERVING and self._proxy.readiness.obstacle is not None:
            await self._wait_a_while()
        return self._shutdown.phase is Phase.SERVING

    async def run(self) -> None:
        """Wait for a signal, then return when everything is closed, or at a second signal."""
        while True:
            await self._signal.wait()
            while (phase := self._update_phase()) is Phase.LEAVING:
                self._signal.clear()
                await self._wait_a_while()
            self._signal.clear()
            if phase is Phase.SERVING:
                # The drain was undone before it closed anything.
                continue
            ends = self._loop.time() + self._shutdown.seconds_left(self._loop.time())
            if await self._do(self._proxy.drain(ends - self._loop.time())):
                self._may_undo = False
                self._tell_stopping(SECONDS_TO_CLOSE)
                await self._do(self._proxy.close(max(0.0, ends - self._loop.time())))
                return
            if self._shutdown.phase is Phase.CLOSING:
                return

    async def _do(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run a part of the end; return False if a signal, or an undo, came first and cancelled the work."""
        async with asyncio.TaskGroup() as group:
            task = self._work = group.create_task(work)
            again = group.create_task(self._signal.wait())
            await asyncio.wait((task, again), return_when=asyncio.FIRST_COMPLETED)
            done = task.done()
            task.cancel()
            again.cancel()
        self._work = None
        return done and not task.cancelled()

    def _update_phase(self) -> Phase:
        before = self._proxy.phase
        phase = self._shutdown.update(len(self._proxy.sessions), self._loop.time())
        if phase is not before:
            self._proxy.enter(phase, ready=self._shutdown.ready)
            seconds = self._shutdown.seconds_left(self._loop.time())
            self._log.info("shutdown phase", new=str(phase), old=str(before), seconds=round(seconds, 3))
        return phase

    async def _wait_a_while(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self._signal.wait()


def _forget_terminal() -> None:
    """Discard log lines: a write to a closed terminal would raise in the middle of the drain."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, STANDARD_ERROR)
    os.close(nowhere)


def ignore_hangup() -> None:
    """Ignore SIGHUP while no loop handles it: a reload before the start or after the end must not kill the process."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def show_stacks_on_signals() -> None:
    """Write the stacks of all Python threads to standard error at SIGQUIT, as a JVM does, and when a fault or SIGABRT
    (the watchdog of systemd) ends the process.

    The admin API shows more, but needs an event loop that runs. Only places in the code are written, never values.
    """
    faulthandler.enable(STANDARD_ERROR)
    faulthandler.register(signal.SIGQUIT, STANDARD_ERROR)


def forbid_core_dumps() -> None:
    """Set the limit of core dumps so that none is written: the memory holds keys, tokens and passwords of clients."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    # 1 and not 0: the kernel ignores 0 where core_pattern is a program (systemd-coredump), but starts none for 1; no
    # file is as small (fs/coredump.c). The hard limit stays: root can allow dumps of a running proxy by prlimit.
    resource.setrlimit(resource.RLIMIT_CORE, (min(1, hard) if hard != resource.RLIM_INFINITY else 1, hard))
