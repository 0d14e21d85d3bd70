"""The TLS contexts in force, made anew when files of certificates and keys change.

Rule: a change is a change of contents, read through any symlink, so that a rename, a rewrite and the swap of a whole
directory are the same. Files that do not fit together leave the old contexts in force. Connections that are there keep
the context they began with. Files are read off the loop.
"""

import asyncio
import hashlib
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from proxy.config.config import Config, ConfigError, ConfigProblem
from proxy.core.log import Logger
from proxy.core.tasks import TaskScope
from proxy.core.threads import in_thread
from proxy.net.tls.contexts import LoadedContext, Name, PemFile, context_settings, load
from proxy.net.tls.counters import TlsCounters
from proxy.net.tls.suites import BadTlsSetting

# Files that do not fit together are being written: they are looked at again after so long.
RETRY_SECONDS: Final = 2.0
READ_SECONDS: Final = 10.0
Contexts = Mapping[Name, LoadedContext]
_Seen = tuple[bytes, ...]


def check(config: Config, now: Callable[[], float] = time.time) -> list[str]:
    """Try all contexts of a configuration, and give warnings; raises ConfigError with every fault."""
    return _expired(_load_all(config), now())


def _expired(contexts: Contexts, now: float) -> list[str]:
    return [
        f"the certificate of {name} has expired"
        for name, loaded in contexts.items()
        if loaded.expires_at is not None and loaded.expires_at <= now
    ]


def _load_all(config: Config) -> Contexts:
    problems: list[ConfigProblem] = []
    contexts: dict[Name, LoadedContext] = {}
    try:
        wanted = context_settings(config)
    except BadTlsSetting as bad:
        raise ConfigError([config.fault(bad.key, bad.got, bad.expected)], []) from bad
    for settings in wanted:
        try:
            contexts[settings.name] = load(settings)
        except BadTlsSetting as bad:
            problems.append(config.fault(bad.key, bad.got, bad.expected))
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)), [])
    return contexts


class TlsFiles:
    """The contexts in force. The first ones are made at once; raises ConfigError then."""

    def __init__(
        self,
        config: Config,
        counters: TlsCounters,
        log: Logger,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._counters = counters
        self._log = log
        self._now = now
        self._files = _files(config)
        self._seen = _contents(self._files)
        self._contexts = _load_all(config)
        self._told = ""
        self._asked = asyncio.Event()
        self._scope = TaskScope(lambda error: counters.internal_error(error, "tls files"))
        self._web: ssl.SSLContext | None = None
        counters.expiries = self.expiries
        self._warn_of_expired()

    # --- what is in force ---------------------------------------------------------------------------

    def server(self) -> ssl.SSLContext:
        """Give the context for the next client."""
        return self._contexts["server"].context

    def broker_client(self) -> ssl.SSLContext:
        """Give the context for the next connection to a broker."""
        return self._contexts["broker_client"].context

    def web(self) -> ssl.SSLContext:
        """Give the context for the next connection to the web port."""
        return self._contexts["web"].context

    def web_listener(self) -> ssl.SSLContext:
        """Give one context for the life of a listener: each of its handshakes goes on with the one in force."""
        if self._web is None:
            self._web = self.web()
            self._web.sni_callback = self._use_current_web
        return self._web

    def _use_current_web(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self.web()

    def expiries(self) -> dict[str, float]:
        """Compute the seconds that each certificate has left, below 0 if it has expired."""
        now = self._now()
        return {
            name: loaded.expires_at - now for name, loaded in self._contexts.items() if loaded.expires_at is not None
        }

    # --- looking for changes ------------------------------------------------------------------------

    def start(self) -> None:
        """Look at the files now and then, until closed."""
        if self._files:
            self._scope.start(self._watch())

    def look(self) -> None:
        """Look at the files soon (SIGHUP)."""
        self._asked.set()

    async def close(self) -> None:
        """Look no more."""
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
        """Look at the files now; tells whether what is in force is what they hold."""
        try:
            seen, contexts = await in_thread(partial(self._read, self._seen, self._told != ""), "tls", READ_SECONDS)
        except ConfigError as error:
            self._refused("; ".join(f"{bad.key}: got {bad.got}, expected {bad.expected}" for bad in error.problems))
            return False
        except TimeoutError:
            self._refused(f"not read within {READ_SECONDS:g} s")
            return False
        self._seen, self._told = seen, ""
        if contexts is not None:
            self._contexts = contexts
            self._counters.reloads["applied"] += 1
            self._log.info("new certificates are in force", names=sorted(contexts))
            self._warn_of_expired()
        return True

    def _read(self, before: _Seen, again: bool) -> tuple[_Seen, Contexts | None]:
        # First what is there, then what it makes: what changes in between is a change at the next look.
        seen = _contents(self._files)
        return seen, _load_all(self._config) if again or seen != before else None

    def _refused(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._counters.reloads["refused"] += 1
            self._log.warning("certificates refused, the old ones stay in force", detail=text)

    def _warn_of_expired(self) -> None:
        for text in _expired(self._contexts, self._now()):
            self._log.warning(text)


def _files(config: Config) -> tuple[PemFile, ...]:
    try:
        wanted = context_settings(config)
    except BadTlsSetting:
        return ()
    return tuple(dict.fromkeys(file for settings in wanted for file in settings.files))


def _contents(files: tuple[PemFile, ...]) -> _Seen:
    return tuple(_digest(file) for file in files)


def _digest(file: PemFile) -> bytes:
    try:
        return hashlib.sha256(file.read()).digest()
    except BadTlsSetting:
        return b""
