"""The TLS contexts in force, reloaded when the files of certificates and keys change.

Rule: a change is a change of contents, read through symlinks, so a rename, a rewrite and the swap of a whole directory
(as Kubernetes does) are the same. If the files do not fit together, the old contexts stay in force. Open connections
keep the context they began with. Files are read in a thread.
"""

import asyncio
import hashlib
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from proxy.config.config import Config, ConfigError, ConfigProblem
from proxy.core.counters import Counters, counter_by, gauge_by
from proxy.core.log import Logger
from proxy.core.tasks import TaskScope
from proxy.core.threads import in_thread
from proxy.net.tls.suites import BadTlsSetting

if TYPE_CHECKING:
    from proxy.core.native import TlsConfig
    from proxy.net.tls.contexts import LoadedContext, Name
    from proxy.net.tls.pem import TlsFile

# Files that do not fit together are probably being written: read them again after this time.
RETRY_SECONDS: Final = 2.0
READ_SECONDS: Final = 10.0
Contexts: TypeAlias = "Mapping[Name, LoadedContext]"
_Seen = tuple[bytes, ...]
EXPIRIES: Final = gauge_by(
    "cert", "tls_cert_expiration_timestamp_seconds", "Unix time at which this proxy's certificates expire.", "seconds"
)
LIST_EXPIRIES: Final = gauge_by(
    "cert",
    "tls_revocation_list_expiration_timestamp_seconds",
    "Unix time at which a revocation list expires, after which the certificates of its authority are refused.",
    "seconds",
)
RELOADS: Final = counter_by(
    "result", "tls_reloads", "Reloads of certificate files that changed, by result.", ("applied", "refused")
)


def check(config: Config, now: Callable[[], float] = time.time) -> list[str]:
    """Load all contexts of a configuration and return the warnings; raises ConfigError with every fault."""
    return _doubts(_load_all(config, now()), now())


def _doubts(contexts: Contexts, now: float) -> list[str]:
    found = [
        f"the certificate of {name} has expired"
        for name, loaded in contexts.items()
        if loaded.expires_at is not None and loaded.expires_at <= now
    ]
    return found + list(dict.fromkeys(doubt for loaded in contexts.values() for doubt in loaded.doubts))


def _uses_tls(config: Config) -> bool:
    """Return whether there is a context at all; without one the code that makes contexts is not imported."""
    ports = (config.service_port_tls, config.web_service_port_tls)
    return config.tls_enabled_with_broker or any(port is not None for port in ports)


def _load_all(config: Config, now: float) -> Contexts:
    if not _uses_tls(config):
        return {}
    from proxy.net.tls.contexts import context_settings, load, unreadable

    problems: list[ConfigProblem] = []
    contexts: dict[Name, LoadedContext] = {}
    try:
        wanted = context_settings(config)
    except BadTlsSetting as bad:
        raise ConfigError([config.fault(bad.key, bad.got, bad.expected)], []) from bad
    for settings in wanted:
        try:
            contexts[settings.name] = load(settings, now)
        except BadTlsSetting as bad:
            problems += [config.fault(each.key, each.got, each.expected) for each in (bad, *unreadable(settings))]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)), [])
    return contexts


class TlsFiles:
    """The contexts in force. The constructor loads them; raises ConfigError."""

    def __init__(
        self,
        config: Config,
        counters: Counters,
        log: Logger,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._counters = counters
        self._log = log
        self._now = now
        self._files = _files(config)
        self._seen = _contents(self._files)
        self._contexts = _load_all(config, now())
        self._last_refusal = ""
        self._asked = asyncio.Event()
        self._scope = TaskScope(lambda error: counters.internal_error(error, "tls files"))
        counters.show(EXPIRIES, self.expiries)
        counters.show(LIST_EXPIRIES, self.list_expiries)
        self._warn()

    # --- contexts in force --------------------------------------------------------------------------

    def server(self) -> "TlsConfig":
        """Return the settings for the next client."""
        return self._contexts["server"].config

    def broker(self) -> "TlsConfig":
        """Return the settings for the next connection to a broker."""
        return self._contexts["broker_client"].config

    def broker_client(self, certificate: bool = True) -> ssl.SSLContext:
        """Return the context for the next https to a broker, which shows the proxy's certificate if asked to."""
        loaded = self._contexts["broker_client"]
        found = loaded.https if certificate else loaded.https_bare
        assert found is not None
        return found

    def web(self) -> "TlsConfig":
        """Return the settings for the next connection to the web port."""
        return self._contexts["web"].config

    def expiries(self) -> dict[str, float]:
        """Return the Unix time at which each certificate expires."""
        ends = {name: loaded.expires_at for name, loaded in self._contexts.items()}
        return {name: round(end) for name, end in ends.items() if end is not None}

    def list_expiries(self) -> dict[str, float]:
        """Return the Unix time at which the first revocation list of each context expires."""
        ends = {name: loaded.lists_expire_at for name, loaded in self._contexts.items()}
        return {name: round(end) for name, end in ends.items() if end is not None}

    # --- looking for changes ------------------------------------------------------------------------

    def start(self) -> None:
        """Start to check the files at intervals (tlsCertRefreshCheckDurationSec), until `close`."""
        if self._files:
            self._scope.start(self._watch())

    def look(self) -> None:
        """Check the files soon (SIGHUP)."""
        self._asked.set()

    async def close(self) -> None:
        """Stop checking the files."""
        self._scope.cancel()
        await self._scope.emptied()

    async def _watch(self) -> None:
        pause = float(self._config.tls_cert_refresh_check_duration_sec)
        wait: float | None = pause or None
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._asked.wait()
            self._asked.clear()
            wait = (pause or None) if await self.refresh() else RETRY_SECONDS

    async def refresh(self) -> bool:
        """Check the files now; return whether the contexts in force are those of the files."""
        try:
            read = partial(self._read, self._seen, self._last_refusal != "")
            seen, contexts = await in_thread(read, "tls", READ_SECONDS)
        except ConfigError as error:
            self._refused("; ".join(f"{bad.key}: got {bad.got}, expected {bad.expected}" for bad in error.problems))
            return False
        except TimeoutError:
            self._refused(f"not read within {READ_SECONDS:g} s")
            return False
        except OSError as error:
            # Without a thread, for one.
            self._refused((error.strerror or str(error)).lower())
            return False
        except Exception as error:
            # Whatever a file makes of its reader: this watch must outlive it, or no certificate is ever renewed again.
            if self._refused(f"unexpected {error!r}"):
                self._counters.internal_error(error, "tls files")
            return False
        self._seen, self._last_refusal = seen, ""
        if contexts is not None:
            self._contexts = contexts
            self._counters[RELOADS]["applied"] += 1
            self._log.info("new certificates are in force", names=sorted(contexts))
            self._warn()
        return True

    def _read(self, before: _Seen, again: bool) -> "tuple[_Seen, Contexts | None]":
        # Digests first, contexts second: a file that changes in between differs again at the next check.
        seen = _contents(self._files)
        return seen, _load_all(self._config, self._now()) if again or seen != before else None

    def _refused(self, text: str) -> bool:
        """Tell of a refusal, and return whether it is a new one."""
        if text == self._last_refusal:
            return False
        self._last_refusal = text
        self._counters[RELOADS]["refused"] += 1
        self._log.warning("certificates refused, the old ones stay in force", detail=text)
        return True

    def _warn(self) -> None:
        for text in _doubts(self._contexts, self._now()):
            self._log.warning(text)


def _files(config: Config) -> "tuple[TlsFile, ...]":
    if not _uses_tls(config):
        return ()
    from proxy.net.tls.contexts import context_settings

    try:
        wanted = context_settings(config)
    except BadTlsSetting:
        return ()
    return tuple(dict.fromkeys(file for settings in wanted for file in settings.files))


def _contents(files: "tuple[TlsFile, ...]") -> _Seen:
    return tuple(_digest(file) for file in files)


def _digest(file: "TlsFile") -> bytes:
    try:
        return hashlib.sha256(file.read()).digest()
    except BadTlsSetting:
        return b""
