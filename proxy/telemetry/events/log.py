"""The event log of a proxy: make, start and close its sinks.

Rule: only `close` waits for a sink, and only for the given time: a slow disk or broker must not delay requests or the
end of the proxy.
"""

import secrets
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson
from isal import igzip_lib

from eventlog.buffer import EventBuffer, Stamp, Tee
from eventlog.drain import Drain, DrainThread, Store
from eventlog.files import FileSettings, FileStore
from eventlog.sink import EventSink
from proxy.auth.own.broker_credentials import BrokerCredentials
from proxy.config.core import Core
from proxy.core.counters import PREFIX, Derived
from proxy.core.instrument import Kind, Unit
from proxy.core.log import LinePace
from proxy.core.tasks import TaskScope
from proxy.core.threads import EVENT_LOG, NoThread, in_thread

if TYPE_CHECKING:
    from proxy.telemetry.events.topic import TopicParts
    from proxy.telemetry.events.topic_watch import TopicWatch

__all__ = ["EventLog", "gzip_member"]

MIB: Final = 1024 * 1024
# Measured on events: a fifth of the time of zlib's level 1, with files 8 % smaller. Level 2 makes files 1 % smaller
# still; more memory than these 130 KiB gains nothing.
GZIP_LEVEL: Final = 1
GZIP_MEMORY: Final = igzip_lib.MEM_LEVEL_SMALL
# Sinks get this time at the end even if the drain has used up its time: about a second of events is left.
LEAST_CLOSE_SECONDS: Final = 2.0
# An event waits so long to be written together with others; a crash loses as much.
FLUSH_SECONDS: Final = 1.0
# The age at which a file is finished: the pipeline reads only finished files.
FILE_SECONDS: Final = 60.0
# The size of a file, compressed, at which the next is begun: small for the pipeline, and many where all of them have
# little room, because the oldest is deleted whole.
LARGEST_FILE_BYTES: Final = 64 * MIB
LEAST_FILES: Final = 4


def gzip_member(data: bytes) -> bytes:
    """Compress `data` into a gzip member (`eventlog.files.Compress`) by ISA-L, which releases the interpreter lock."""
    return igzip_lib.compress(data, GZIP_LEVEL, igzip_lib.COMP_GZIP, GZIP_MEMORY)


class SinkNumbers(NamedTuple):
    """The numbers of a sink of the event log."""

    written: int
    dropped: int
    bytes_written: int
    errors: int
    buffer_bytes: int


def _of_sinks(
    name: str, kind: Kind, text: str, read: Callable[[SinkNumbers], int], unit: Unit = ""
) -> "Derived[EventLog]":
    return Derived(
        f"{PREFIX}event_log_{name}", kind, text,
        lambda log: {sink: read(numbers) for sink, numbers in log.sinks().items()},
        labels=("sink",), unit=unit,
    )  # fmt: skip


EVENTS: "Final[tuple[Derived[EventLog], ...]]" = (
    _of_sinks("written", "counter", "Events that a sink has written; the sinks are files and topic.",
              lambda numbers: numbers.written),
    _of_sinks("dropped", "counter", "Events that a sink has lost, including events in an open file that was deleted; "
              "the next event that is written has the number.",
              lambda numbers: numbers.dropped),
    _of_sinks("bytes", "counter", "Bytes of written events, as the sink has stored or sent them.",
              lambda numbers: numbers.bytes_written, "bytes"),
    _of_sinks("errors", "counter", "Attempts to write events that failed; most are repeated.",
              lambda numbers: numbers.errors),
    _of_sinks("buffer_bytes", "gauge", "Memory of events that a sink has not written yet.",
              lambda numbers: numbers.buffer_bytes, "bytes"),
    Derived(f"{PREFIX}event_log_files", "counter",
            "Event files by result: finished, finished for a proxy that had died, found damaged, deleted.",
            lambda log: log.files(), labels=("result",)),
    Derived(f"{PREFIX}event_log_topic_keeps", "gauge",
            "1: the topic keeps events that nobody has read; 0: the topic loses them; absent: not known.",
            lambda log: None if log.topic_keeps is None else int(log.topic_keeps)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Sink:
    name: str
    buffer: EventBuffer
    drain: Drain
    thread: DrainThread


class EventLog:
    """The event log; `sink` is None if the configuration has none."""

    def __init__(
        self,
        core: Core,
        own: BrokerCredentials,
        broker_tls: Callable[[], ssl.SSLContext],
        flush_seconds: float = FLUSH_SECONDS,
    ) -> None:
        """Create the sinks of the configuration; raises SettingFault if a needed package is not installed."""
        self.boot_id = secrets.token_hex(8)
        config, counters = self._config, self._counters = core.config, core.counters
        self._loop = core.loop
        self._own = own
        self._broker_tls = broker_tls
        self._log = core.log.of("events")
        self._pace = LinePace()
        self._last_note = ""
        self._scope = TaskScope(lambda error: counters.internal_error(error, EVENT_LOG))
        self._watch: TopicWatch | None = None
        self._parts: TopicParts | None = None
        self._store: FileStore | None = None
        proxy_id = config.event_log_proxy_id or socket.gethostname()
        self._flush_seconds = flush_seconds
        self._stamp = Stamp(proxy_id, self.boot_id, orjson.dumps, config.cluster_name)
        self._sinks: list[_Sink] = []
        if config.event_log_directory:
            self._add("files", self._files())
        if config.event_log_topic:
            self._add("topic", self._topic())
        self.sink: EventSink | None = self._tee().put if self._sinks else None
        counters.derive(EVENTS, lambda: self)

    def start(self) -> None:
        """Start the threads that write."""
        for sink in self._sinks:
            sink.thread.start()
        if self._watch is not None:
            self._scope.start(self._watch.run())

    async def close(self, seconds: float) -> None:
        """Write the remaining events within `seconds`, at least `LEAST_CLOSE_SECONDS`; then stop waiting."""
        self._scope.cancel()
        await self._scope.emptied()
        ends = self._loop.time() + max(seconds, LEAST_CLOSE_SECONDS)
        for sink in self._sinks:
            sink.buffer.close()
        for sink in self._sinks:
            await self._closed(sink, ends - self._loop.time())
        if self._parts is not None:
            await self._parts.close()

    async def _closed(self, sink: _Sink, seconds: float) -> None:
        ended = False
        with suppress(TimeoutError, NoThread):
            ended = await in_thread(lambda: sink.thread.join(seconds), f"end of {EVENT_LOG}", max(seconds, 0.1) + 1.0)
        if not ended:
            left = sink.drain.in_hand + len(sink.buffer)
            self._log.warning("events were not written", where=sink.name, limit=seconds, queued=left)

    def _tee(self) -> Tee:
        def failed(error: Exception) -> None:
            self._counters.internal_error(error, EVENT_LOG)

        return Tee([sink.buffer for sink in self._sinks], orjson.dumps, failed)

    # --- parts --------------------------------------------------------------------------------------

    def _add(self, name: str, store: Store) -> None:
        config = self._config
        buffer = EventBuffer(config.event_log_buffer_mb * MIB)
        failed = partial(self._from_thread, self._failed, name)
        drain = Drain(buffer, self._stamp, store, self._flush_seconds, failed)
        crashed = partial(self._from_thread, self._counters.internal_error)
        thread = DrainThread(f"{EVENT_LOG} {name}", buffer, drain, time.monotonic,
                             lambda error: crashed(error, EVENT_LOG))  # fmt: skip
        self._sinks.append(_Sink(name, buffer, drain, thread))

    def _files(self) -> FileStore:
        config, total = self._config, self._config.event_log_files_max_total_mb * MIB
        settings = FileSettings(
            directory=Path(config.event_log_directory),
            proxy_id=self._stamp.proxy_id,
            boot_id=self.boot_id,
            max_bytes=min(LARGEST_FILE_BYTES, total // LEAST_FILES or LARGEST_FILE_BYTES),
            max_age_seconds=FILE_SECONDS,
            max_total_bytes=total,
        )
        store = FileStore(settings, partial(self._from_thread, self._noted), gzip_member)
        self._store = store
        return store

    def _topic(self) -> Store:
        # Import the admin API's client and pulsar-client only if a topic is configured.
        from proxy.telemetry.events.topic import TopicParts

        crashed = partial(self._counters.internal_error, where=EVENT_LOG)
        parts = self._parts = TopicParts(self._config, self._loop, self._own, self._broker_tls, crashed)
        self._watch = parts.watch(self._log)
        return parts.store()

    # --- calls from threads -------------------------------------------------------------------------

    def _from_thread(self, function: Callable[..., None], *arguments: object) -> None:
        # The loop may be closed already if the thread outlived `close`.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def _failed(self, name: str, detail: str) -> None:
        if self._pace.due(self._loop.time(), name):
            self._log.warning("events cannot be written", where=name, detail=detail)

    def _noted(self, detail: str) -> None:
        # Each file gets its line; the same line again only once a second.
        if self._pace.due(self._loop.time(), "note") or detail != self._last_note:
            self._last_note = detail
            self._log.info("event files of a proxy that has ended", detail=detail)

    @property
    def topic_keeps(self) -> bool | None:
        """Whether the topic keeps events that nobody has read; None: not known."""
        return None if self._watch is None else self._watch.topic_keeps

    def files(self) -> Mapping[str, int]:
        """Return the number of files by what became of them."""
        return {} if self._store is None else asdict(self._store.counts)

    def sinks(self) -> Mapping[str, SinkNumbers]:
        """Return the numbers of each sink."""
        return {
            sink.name: SinkNumbers(
                written=sink.drain.counts.written,
                dropped=sink.buffer.dropped + sink.drain.counts.lost,
                bytes_written=sink.drain.counts.bytes_written,
                errors=sink.drain.counts.errors,
                buffer_bytes=sink.buffer.pending_bytes,
            )
            for sink in self._sinks
        }
