"""Read the configuration again while the proxy runs, and apply the keys that may change (SIGHUP).

`LiveChanges` changes single keys, for the admin API.

Rule: all or nothing. A configuration with a fault changes nothing, and every fault is logged with file, line and key.
A part says what it reads of a configuration as one value, and gets that value when it is another than before: nobody
lists which key reaches which part. The whole change is one step of the event loop, so that no request sees half of it.
Keys that need a restart keep their value until then.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from proxy.app.lifecycle import Phase
from proxy.app.metrics.counters import CONFIG_ACCEPTED, CONFIG_RELOADS
from proxy.config.config import Config, ConfigError
from proxy.config.core import Core
from proxy.config.keys.authentication import AuthenticationKeys
from proxy.config.keys.brokers import TargetKeys
from proxy.config.keys.key import Key
from proxy.config.keys.tls import TlsKeys
from proxy.config.page import pending_values
from proxy.core.errors import ProxyError
from proxy.core.log import Logger
from proxy.core.tasks import TaskScope
from proxy.core.threads import NoThread, in_thread
from proxy.web.admin.reload_report import KeyChange, ReloadReport

LoadConfig = Callable[[], Config]
S = TypeVar("S")

READ_SECONDS: Final = 10.0
REFUSED: Final = "configuration refused, the old one stays in force"
# Dynamic keys that only the sources of the configuration change.
NOT_LIVE_SECTIONS: Final = frozenset({TargetKeys.section, AuthenticationKeys.section, TlsKeys.section})
NOT_LIVE: Final[frozenset[Key[Any]]] = frozenset({Config.web_service_allowed_hosts, Config.web_service_allowed_origins})


@dataclass(frozen=True, slots=True)
class LivePart(Generic[S]):
    """A part of a running proxy: what it reads of a configuration, and how it takes other settings."""

    settings: Callable[[Config], S]
    apply: Callable[[S], None]

    def change(self, old: Config, new: Config) -> None:
        """Apply the settings of `new`, unless they are those of `old`."""
        settings = self.settings(new)
        if settings != self.settings(old):
            self.apply(settings)


class Reloadable(Protocol):
    """A proxy as far as a reload sees it."""

    core: Core
    phase: Phase

    def live_parts(self) -> Iterable[LivePart[Any]]:
        """Return the parts that a change of live keys reaches, in the order in which they change."""

    def renew_budget(self) -> None:
        """Compute the worst case of all memory, of which any key may be a part, and log it if it is another."""

    def files_may_have_changed(self) -> None:
        """Check the files of certificates soon."""


def apply(proxy: Reloadable, newer: Config, log: Logger) -> ReloadReport:
    """Apply the dynamic keys of `newer`, log every difference, and return the report.

    Raises ConfigError, before any change. A part that fails is an internal error; the other parts are applied anyway.
    """
    core, old = proxy.core, proxy.core.config
    differing = list(old.differences(newer))
    config = old.adopt(newer)
    core.take(config, pending_values(config, newer))
    changed = [key for key in differing if key.dynamic]
    steps: list[Callable[[], None]] = [partial(part.change, old, config) for part in proxy.live_parts()]
    for step in [*steps, proxy.renew_budget]:
        try:
            step()
        except Exception as error:
            core.counters.internal_error(error, "reload")
    report = ReloadReport(
        "applied",
        changed=tuple(KeyChange(key.name, _shown(key, old), _shown(key, config)) for key in changed),
        needs_restart=tuple(
            KeyChange(key.name, _shown(key, old), _shown(key, newer)) for key in differing if not key.dynamic
        ),
        warnings=tuple(map(str, newer.warnings)),
    )
    for change in report.changed:
        log.info("configuration changed", key=change.key, old=change.old, new=change.new)
    for change in report.needs_restart:
        log.warning("a change needs a restart", key=change.key, old=change.old, new=change.new)
    return report


def _shown(key: Key[Any], config: Config) -> str:
    return key.shown(config.value(key))


class LiveChanges:
    """Changes of single dynamic keys by the admin API, some of which end after a time.

    A reload ends all of them: it puts the values of the sources in force. Keys that say whom clients may reach or who
    may see the pages do not change in this way: a client of the admin API should not widen them without a trace in the
    configuration.
    """

    def __init__(self, proxy: Reloadable, log: Logger) -> None:
        self._proxy = proxy
        self._log = log
        # The end of each change that has one, and the configuration before it.
        self._ends: dict[str, tuple[asyncio.TimerHandle, Config]] = {}

    def set(self, name: str, text: str, seconds: float | None) -> KeyChange:
        """Change a key for `seconds`, or until the next reload if None; raise ConfigError."""
        core, old = self._proxy.core, self._proxy.core.config
        key = next((key for key in old.keys() if key.name == name and key.dynamic), None)  # noqa: SIM118
        if key is not None and (key in NOT_LIVE or key.section in NOT_LIVE_SECTIONS or key.secret):
            raise ConfigError([old.live_fault(key, text, "a change in the configuration, and a reload")], [])
        newer = old.replace({name: text})
        assert key is not None
        before = old
        if (ending := self._ends.pop(name, None)) is not None:
            ending[0].cancel()
            # A reload since then is the state to return to.
            before = ending[1] if old.origin(key) == "live" else old
        self._take(newer)
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(seconds, self._end, key)
            self._ends[name] = timer, before
        return KeyChange(name, _shown(key, old), _shown(key, core.config))

    def close(self) -> None:
        """Forget the ends of all changes."""
        for timer, _ in self._ends.values():
            timer.cancel()
        self._ends.clear()

    def _end(self, key: Key[Any]) -> None:
        _, before = self._ends.pop(key.name)
        if self._proxy.core.config.origin(key) != "live" or self._proxy.phase is Phase.CLOSING:
            return
        try:
            self._take(self._proxy.core.config.with_source_of(key, before))
        except ConfigError as error:
            self._log.error("a live change could not be taken back", key=key.name, detail=str(error))
            return
        self._log.warning("a live change has ended", key=key.name, new=_shown(key, self._proxy.core.config))

    def _take(self, newer: Config) -> None:
        core = self._proxy.core
        pending = core.pending
        apply(self._proxy, newer, self._log)
        core.take(core.config, pending)


class ConfigUnreadable(ProxyError):
    """The sources of the configuration were not read in time."""


class Reloader:
    """Runs one reload at a time; a request during a reload starts another reload after it.

    `tell` is called with None when a reload begins, and with its result when it ends.
    """

    def __init__(
        self, proxy: Reloadable, load: LoadConfig, log: Logger, tell: Callable[[str | None], None] = lambda result: None
    ) -> None:
        self._tell = tell
        self._proxy = proxy
        self._load = load
        self._log = log
        self._scope = TaskScope(lambda error: proxy.core.counters.internal_error(error, "reload"))
        self._asked = False
        self._running = False
        # Callers that wait for the report of the next reload.
        self._waiters: list[asyncio.Future[ReloadReport]] = []

    async def reload(self) -> ReloadReport:
        """Reload, and return the report of a reload that began after this call."""
        if self._stopping():
            return ReloadReport("ignored", reason="the proxy is stopping")
        waiter: asyncio.Future[ReloadReport] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self.ask()
        return await waiter

    def ask(self) -> None:
        """Start a reload soon; do nothing while the proxy is stopping."""
        if self._stopping():
            return
        self._proxy.files_may_have_changed()
        self._asked = True
        if not self._running:
            self._running = True
            self._scope.start(self._work())

    async def close(self) -> None:
        """Cancel a reload in progress."""
        self._scope.cancel()
        await self._scope.emptied()

    async def _work(self) -> None:
        try:
            while self._asked:
                self._asked = False
                waiters, self._waiters = self._waiters, []
                try:
                    await self._reload_and_report(waiters)
                finally:
                    # The waiters of a cancelled reload must not wait forever.
                    for waiter in waiters:
                        waiter.cancel()
        finally:
            # Cleared in the same step as the check above, so that a later `ask` starts a new task.
            self._running = False

    async def _reload_and_report(self, waiters: list[asyncio.Future[ReloadReport]]) -> None:
        self._tell(None)
        report = await self._reload()
        self._tell(report.result)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(report)

    async def _reload(self) -> ReloadReport:
        reloads = self._proxy.core.counters[CONFIG_RELOADS]
        try:
            newer = await self._read()
            if self._stopping():
                return ReloadReport("ignored", reason="the proxy is stopping")
            report = apply(self._proxy, newer, self._log)
        except ConfigError as error:
            self._refuse(error)
            failed = ReloadReport(
                "refused",
                faults=error.problems,
                warnings=tuple(map(str, error.warnings)),
                reason=f"{REFUSED}: {len(error.problems)} faults",
            )
        except Exception as error:
            self._log.error(REFUSED, detail=str(error))
            failed = ReloadReport("refused", reason=f"{REFUSED}: {error}")
            if not isinstance(error, ConfigUnreadable):
                self._proxy.core.counters.internal_error(error, "reload")
        else:
            reloads["applied"] += 1
            self._proxy.core.counters[CONFIG_ACCEPTED].value = 1.0
            for warning in newer.warnings:
                self._log.warning("configuration", detail=str(warning))
            self._log.info("configuration reloaded", keys=list(self._proxy.core.pending))
            return report
        reloads["refused"] += 1
        self._proxy.core.counters[CONFIG_ACCEPTED].value = 0.0
        return failed

    def _refuse(self, error: ConfigError) -> None:
        for problem in error.problems:
            self._log.error(
                "configuration fault",
                file=problem.file,
                line=problem.line,
                key=problem.key,
                got=problem.got,
                expected=problem.expected,
            )
        self._log.error(REFUSED, detail=f"faults: {len(error.problems)}")

    def _stopping(self) -> bool:
        if self._proxy.phase is Phase.SERVING:
            return False
        self._proxy.core.counters[CONFIG_RELOADS]["ignored"] += 1
        self._log.warning("reload ignored: the proxy is stopping")
        return True

    async def _read(self) -> Config:
        """Read the sources in a thread with a timeout, as a file may be on a disk that hangs."""
        try:
            return await in_thread(self._load, "reload", READ_SECONDS)
        except TimeoutError:
            raise ConfigUnreadable(f"not read within {READ_SECONDS:g} s") from None
        except NoThread as error:
            raise ConfigUnreadable(error.strerror) from None
